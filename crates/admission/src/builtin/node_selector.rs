//! Node selectors of namespaces: pods run only on nodes that match the selector in an annotation of their namespace.
//!
//! This is upstream's plugin PodNodeSelector. The settings have a selector for namespaces without the annotation. For
//! single namespaces they list the labels that pods may select.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value};
use keelson_meta::names::{label_key_faults, label_value_faults};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

use super::reading::is_new;
use crate::matching::namespace;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";

const NOT_ALLOWED: &str = "pod node label selector labels conflict with its namespace whitelist";
/// The key of the settings with the selector for namespaces without the annotation.
const DEFAULT: &str = "clusterDefaultNodeSelector";

/// The settings of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelectors(BTreeMap<String, String>);

impl NodeSelectors {
    /// Adds the selector of one namespace, or of all namespaces without the annotation.
    ///
    /// # Errors
    /// The selector is not of the form `key=value,key=value`.
    pub(crate) fn add(&mut self, name: &str, selector: &str) -> Result<(), String> {
        read(selector)?;
        self.0.insert(name.to_owned(), selector.to_owned());
        Ok(())
    }

    /// Refuses a pod whose selector has a label that its namespace does not allow. A namespace without an entry allows
    /// all.
    fn check_allowed(&self, namespace: &str, pod: &Object) -> Result<(), &'static str> {
        let allowed = self.0.get(namespace).map(|selector| read(selector).unwrap_or_default()).unwrap_or_default();
        let stated = pod.get(&["spec", "nodeSelector"]).and_then(Value::as_object);
        let is_allowed = |(key, value): (&str, &Value)| {
            allowed.iter().any(|(allowed, needed)| *allowed == key && value.as_str() == Some(*needed))
        };
        match allowed.is_empty() || stated.into_iter().flatten().all(is_allowed) {
            true => Ok(()),
            false => Err(NOT_ALLOWED),
        }
    }
}

/// Adds the selector of the namespace to pods.
#[derive(Debug)]
pub(crate) struct PodNodeSelector {
    settings: NodeSelectors,
}

/// Parses a selector of the form `key=value,key=value`.
fn read(selector: &str) -> Result<Vec<(&str, &str)>, String> {
    let parts = selector.split(',').filter(|_| !selector.is_empty());
    let mut labels = Vec::new();
    for part in parts {
        let invalid = || format!("invalid selector: {part}");
        let (key, value) = part.split_once('=').filter(|(_, value)| !value.contains('=')).ok_or_else(invalid)?;
        let (key, value) = (key.trim(), value.trim());
        if let Some(fault) = label_key_faults(key).into_iter().chain(label_value_faults(value)).next() {
            return Err(format!("{}: {fault}", invalid()));
        }
        labels.push((key, value));
    }
    Ok(labels)
}

/// Adds labels to the selector of a pod. Fails if the pod selects another value of one of them.
fn merge(pod: &mut Object, labels: &[(&str, &str)]) -> Result<(), &'static str> {
    check(pod, labels)?;
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let selector = spec.entry("nodeSelector").or_insert(Value::Null);
    if selector.is_null() {
        *selector = Value::Object(Map::default());
    }
    let Some(selector) = selector.as_object_mut() else { return Ok(()) };
    for (key, value) in labels {
        selector.insert(*key, *value);
    }
    Ok(())
}

fn check(pod: &Object, labels: &[(&str, &str)]) -> Result<(), &'static str> {
    let stated = |key: &str| pod.get(&["spec", "nodeSelector"]).and_then(|selector| selector.get(key));
    let conflicts = labels.iter().any(|(key, value)| stated(key).is_some_and(|other| other != *value));
    if conflicts { Err(CONFLICT) } else { Ok(()) }
}

impl PodNodeSelector {
    pub(crate) fn new(settings: NodeSelectors) -> Self {
        Self { settings }
    }

    /// The selector for a new pod, from its namespace or the settings.
    fn selector(&self, attributes: &AdmissionAttributes<'_>) -> Result<String, ApiError> {
        let Some(name) = attributes.target.namespace.as_deref() else { return Ok(String::new()) };
        let namespace = namespace(attributes, name)?;
        let found = namespace.annotations().find(|(key, _)| *key == ANNOTATION).map(|(_, selector)| selector);
        let found = found.or_else(|| self.settings.0.get(DEFAULT).map(String::as_str));
        Ok(found.unwrap_or_default().to_owned())
    }

    fn check_allowed(&self, attributes: &AdmissionAttributes<'_>, pod: &Object) -> Result<(), ApiError> {
        let namespace = attributes.target.namespace.as_deref().unwrap_or_default();
        self.settings.check_allowed(namespace, pod).map_err(|message| attributes.refused(message))
    }
}

impl Admission for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_new(attributes, "pods") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(Mutation::Unchanged) };
            let selector = self.selector(attributes)?;
            let labels = read(&selector).map_err(ApiError::Internal)?;
            if labels.is_empty() {
                return self.check_allowed(attributes, pod).map(|()| Mutation::Unchanged);
            }
            merge(pod, &labels).map_err(|message| attributes.refused(message))?;
            self.check_allowed(attributes, pod).map(|()| Mutation::Changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let selector = self.selector(attributes)?;
            let labels = read(&selector).map_err(ApiError::Internal)?;
            check(pod, &labels).map_err(|message| attributes.refused(message))?;
            self.check_allowed(attributes, pod)
        })
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_namespace_with_an_entry_may_select_by_its_labels_alone() {
        let mut settings = NodeSelectors::default();
        settings.add("narrow", "a=b,c=d").unwrap();
        settings.add(DEFAULT, "x=y").unwrap();
        assert_eq!(settings.add("wrong", "a"), Err("invalid selector: a".to_owned()));
        let check = |namespace: &str, selector: Value, expected: Result<(), &str>| {
            let pod = Object::from_value(json!({ "spec": { "nodeSelector": selector } })).unwrap();
            assert_eq!(settings.check_allowed(namespace, &pod), expected, "{namespace} {selector:?}");
        };
        check("narrow", json!({ "a": "b" }), Ok(()));
        check("narrow", json!({ "a": "b", "c": "d" }), Ok(()));
        check("narrow", json!({ "a": "other" }), Err(NOT_ALLOWED));
        check("narrow", json!({ "a": "b", "e": "f" }), Err(NOT_ALLOWED));
        check("narrow", json!(null), Ok(()));
        check("wide", json!({ "e": "f" }), Ok(()));
    }

    #[test]
    fn a_selector_is_pairs_of_labels() {
        let check = |selector: &str, expected: Result<&[(&str, &str)], &str>| {
            let read = read(selector);
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{selector}");
        };
        check("", Ok(&[]));
        check("a=b", Ok(&[("a", "b")]));
        check("a = b, example.com/c=", Ok(&[("a", "b"), ("example.com/c", "")]));
        check("a", Err("invalid selector: a"));
        check("a=b,", Err("invalid selector: "));
        check("a==b", Err("invalid selector: a==b"));
    }
}
