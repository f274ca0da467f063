//! Nodes of a namespace: its pods run on those that an annotation of it selects.
//!
//! This is upstream's plugin PodNodeSelector, without the file that names selectors for all namespaces.

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value};
use keelson_meta::names::{label_key_faults, label_value_faults};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, Interest, Mutation};

use super::reading::is_new;
use crate::matching::namespace;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";

/// Gives pods the node selector of their namespace.
#[derive(Debug)]
pub(crate) struct PodNodeSelector;

/// The labels that a selector of the form `key=value,key=value` demands.
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

/// Adds the labels to a pod's selector; whether it had others of them.
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

/// The selector of the namespace of a new pod.
fn selector(attributes: &AdmissionAttributes<'_>) -> Result<String, ApiError> {
    let Some(name) = attributes.target.namespace.as_deref() else { return Ok(String::new()) };
    let namespace = namespace(attributes, name)?;
    let found = namespace.annotations().find(|(key, _)| *key == ANNOTATION);
    Ok(found.map(|(_, selector)| selector.to_owned()).unwrap_or_default())
}

impl Admission for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> Interest {
        if is_new(attributes, "pods") { Interest::Object } else { Interest::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(Mutation::Unchanged) };
            let selector = selector(attributes)?;
            let labels = read(&selector).map_err(ApiError::Internal)?;
            if labels.is_empty() {
                return Ok(Mutation::Unchanged);
            }
            merge(pod, &labels).map_err(|message| attributes.refused(message))?;
            Ok(Mutation::Changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let selector = selector(attributes)?;
            let labels = read(&selector).map_err(ApiError::Internal)?;
            check(pod, &labels).map_err(|message| attributes.refused(message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
