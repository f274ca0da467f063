//! Pods that request extended resources get tolerations for the taints of the nodes that have these resources.
//!
//! This is upstream's plugin ExtendedResourceToleration. A taint for a resource has the resource's name as its key.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::names::label_key_faults;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

use super::reading::{is_written, items};

/// Adds tolerations to pods for the extended resources that they request.
#[derive(Debug)]
pub(crate) struct ExtendedResourceToleration;

/// Returns true for a resource outside of Kubernetes' own names, which pods request as an integer.
fn is_extended(resource: &str) -> bool {
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    !is_native && !resource.starts_with("requests.") && label_key_faults(&format!("requests.{resource}")).is_empty()
}

fn asked_for(pod: &Object) -> BTreeSet<String> {
    let lists = ["containers", "initContainers"].into_iter().flat_map(|list| items(pod.get(&["spec", list])));
    let requests = lists.filter_map(|container| container.get("resources")?.get("requests")?.as_object());
    requests.flat_map(Map::keys).filter(|name| is_extended(name)).map(ToString::to_string).collect()
}

/// Adds the missing tolerations and returns true if there were any.
fn tolerate(pod: &mut Object) -> bool {
    let mut missing: Vec<Value> = asked_for(pod)
        .into_iter()
        .map(|resource| json!({ "key": resource, "operator": "Exists", "effect": "NoSchedule" }))
        .filter(|wanted| !items(pod.get(&["spec", "tolerations"])).contains(wanted))
        .collect();
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !missing.is_empty()) else {
        return false;
    };
    match spec.entry("tolerations").or_insert(Value::Null) {
        Value::Array(known) => known.append(&mut missing),
        none => *none = Value::Array(missing),
    }
    true
}

impl Admission for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_written(attributes, "pods") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        _attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        let is_changed = object.is_some_and(tolerate);
        Box::pin(async move { Ok(if is_changed { Mutation::Changed } else { Mutation::Unchanged }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_of_another_is_extended() {
        let check = |name: &str, expected: bool| assert_eq!(is_extended(name), expected, "{name}");
        check("example.com/gpu", true);
        check("cpu", false);
        check("hugepages-2Mi", false);
        check("kubernetes.io/gpu", false);
        check("attachable.kubernetes.io/gpu", false);
        check("requests.example.com/gpu", false);
        check("example.com/", false);
    }
}
