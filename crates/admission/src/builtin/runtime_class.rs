//! Upstream's plugin RuntimeClass: pods get the overhead and the scheduling rules of their runtime class.
//!
//! Values in the pod must agree with the class. A pod with an overhead is refused if its class has none.

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{Amounts, ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

use super::reading::is_new;
use super::stored::StoredObjects;

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const WITHOUT_CLASS: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// Adds the overhead and scheduling rules of the runtime class to pods.
#[derive(Debug)]
pub(crate) struct RuntimeClasses;

/// The runtime class of a pod; `None` if the pod names none.
fn class_of(attributes: &AdmissionAttributes<'_>, pod: &Object) -> Result<Option<Object>, ApiError> {
    let Some(name) = pod.get(&["spec", "runtimeClassName"]).and_then(Value::as_str) else { return Ok(None) };
    match StoredObjects::new(attributes.registry, "node.k8s.io", "runtimeclasses")?.object(name) {
        Some(class) => Ok(Some(class)),
        None => Err(attributes.refused(format!("pod rejected: RuntimeClass \"{name}\" not found"))),
    }
}

fn overhead(of: &Object, path: &[&str]) -> Amounts {
    Amounts::read(of.get(path))
}

fn is_same(one: &Amounts, other: &Amounts) -> bool {
    one.0.len() == other.0.len()
        && one.0.iter().all(|(name, amount)| other.get(name).is_some_and(|other| other.quantity() == amount.quantity()))
}

fn take_over(class: &Object, pod: &mut Object) -> Result<(), String> {
    let fixed = class.get(&["overhead", "podFixed"]).filter(|fixed| fixed.as_object().is_some_and(|it| !it.is_empty()));
    if let Some(fixed) = fixed {
        let stated = overhead(pod, &["spec", "overhead"]);
        if !stated.0.is_empty() && !is_same(&stated, &Amounts::read(Some(fixed))) {
            return Err(MISMATCH.to_owned());
        }
    }
    let (selector, tolerations) =
        (class.get(&["scheduling", "nodeSelector"]), class.get(&["scheduling", "tolerations"]));
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if let Some(fixed) = fixed {
        spec.insert("overhead", fixed.clone());
    }
    for (key, value) in selector.and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let chosen = spec.entry("nodeSelector").or_insert(Value::Null);
        if chosen.is_null() {
            *chosen = json!({});
        }
        match chosen.get(key) {
            Some(other) if other != value => {
                let (value, other) = (value.as_str().unwrap_or_default(), other.as_str().unwrap_or_default());
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {other}"
                ));
            }
            _ => chosen[key] = value.clone(),
        }
    }
    if let Some(Value::Array(of_class)) = tolerations.filter(|list| list.as_array().is_some_and(|it| !it.is_empty())) {
        let own = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
        let all: Vec<Value> = own.into_iter().chain(of_class.iter().cloned()).collect();
        let merged = merged(&all);
        spec.insert("tolerations", Value::Array(merged));
    }
    Ok(())
}

/// The tolerations without those that another one covers. Of equal tolerations the first stays.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_included = kept.iter().any(|other| includes(other, toleration))
            || all[index + 1..].iter().any(|other| other != toleration && includes(other, toleration));
        if !is_included {
            kept.push(toleration.clone());
        }
    }
    kept
}

/// Returns true if the first toleration covers the second.
fn includes(wide: &Value, narrow: &Value) -> bool {
    fn text<'v>(toleration: &'v Value, field: &str) -> &'v str {
        toleration.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    if wide == narrow {
        return true;
    }
    let of_any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !of_any_key {
        return false;
    }
    if text(wide, "effect") != text(narrow, "effect") && !text(wide, "effect").is_empty() {
        return false;
    }
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    if text(wide, "effect") == "NoExecute"
        && let Some(most) = seconds(wide)
        && seconds(narrow).is_none_or(|stated| stated > most)
    {
        return false;
    }
    match text(wide, "operator") {
        "Exists" => true,
        "" | "Equal" => text(narrow, "operator") == "Equal" && text(wide, "value") == text(narrow, "value"),
        _ => false,
    }
}

impl Admission for RuntimeClasses {
    fn name(&self) -> &'static str {
        "RuntimeClass"
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
            let Some(class) = class_of(attributes, pod)? else { return Ok(Mutation::Unchanged) };
            take_over(&class, pod).map_err(|message| attributes.refused(message))?;
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
            let stated = overhead(pod, &["spec", "overhead"]);
            let class = class_of(attributes, pod)?;
            let fixed = class.map(|class| overhead(&class, &["overhead", "podFixed"])).unwrap_or_default();
            match (fixed.0.is_empty(), is_same(&stated, &fixed)) {
                (false, false) => Err(attributes.refused(MISMATCH)),
                (true, false) => Err(attributes.refused(WITHOUT_CLASS)),
                (_, true) => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_that_others_include_are_left_out() {
        let narrow = json!({ "key": "special", "operator": "Exists", "effect": "NoSchedule" });
        let wide = json!({ "key": "special", "operator": "Exists" });
        let other = json!({ "key": "mine", "operator": "Equal", "value": "a" });
        let check = |all: &[&Value], expected: &[&Value]| {
            let copied = |list: &[&Value]| list.iter().map(|it| (*it).clone()).collect::<Vec<_>>();
            assert_eq!(merged(&copied(all)), copied(expected));
        };
        check(&[&narrow, &narrow], &[&narrow]);
        check(&[&wide, &narrow], &[&wide]);
        check(&[&narrow, &wide], &[&wide]);
        check(&[&other, &narrow], &[&other, &narrow]);
    }
}
