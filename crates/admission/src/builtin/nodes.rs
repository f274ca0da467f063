//! New nodes get the taint "not ready", and pods that are created on a node get the topology labels of the node.
//!
//! These are upstream's plugins TaintNodesByCondition and PodTopologyLabels. For pods that are bound later, the
//! registry adds the labels when it writes the binding.

use futures::future::BoxFuture;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

use super::reading::is_new;
use super::stored::StoredObjects;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Taints new nodes as not ready.
#[derive(Debug)]
pub(crate) struct TaintNodesByCondition;

/// Adds the topology labels of the node to pods.
#[derive(Debug)]
pub(crate) struct PodTopologyLabels;

impl Admission for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_new(attributes, "nodes") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        _attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move { Ok(object.map_or(Mutation::Unchanged, taint)) })
    }
}

fn taint(node: &mut Object) -> Mutation {
    let spec = node.0.entry("spec").or_insert(Value::Null);
    if spec.is_null() {
        *spec = json!({});
    }
    let Some(spec) = spec.as_object_mut() else { return Mutation::Unchanged };
    let taints = spec.entry("taints").or_insert(Value::Null);
    if taints.is_null() {
        *taints = json!([]);
    }
    let Some(taints) = taints.as_array_mut() else { return Mutation::Unchanged };
    let is = |taint: &Value, field: &str, value: &str| taint.get(field).and_then(Value::as_str) == Some(value);
    if taints.iter().any(|taint| is(taint, "key", NOT_READY) && is(taint, "effect", "NoSchedule")) {
        return Mutation::Unchanged;
    }
    taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
    Mutation::Changed
}

impl Admission for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
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
            let node = pod.get(&["spec", "nodeName"]).and_then(Value::as_str).filter(|name| !name.is_empty());
            let Some(node) = node else { return Ok(Mutation::Unchanged) };
            let Some(node) = StoredObjects::new(attributes.registry, "", "nodes")?.get(node) else {
                return Ok(Mutation::Unchanged);
            };
            let mut mutation = Mutation::Unchanged;
            for (key, value) in TOPOLOGY.into_iter().filter_map(|key| Some((key, node.labels.get(key)?))) {
                let labels = pod.metadata_mut().entry("labels").or_insert(Value::Null);
                if labels.is_null() {
                    *labels = json!({});
                }
                if let Some(labels) = labels.as_object_mut() {
                    labels.insert(key, value);
                    mutation = Mutation::Changed;
                }
            }
            Ok(mutation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_not_ready_whatever_else_it_says() {
        let check = |taints: Value, expected: Value| {
            let mut node = Object::from_value(json!({ "spec": { "taints": taints } })).unwrap();
            taint(&mut node);
            assert_eq!(node.0["spec"]["taints"], expected);
        };
        let (ours, other) =
            (json!({ "key": NOT_READY, "effect": "NoSchedule" }), json!({ "key": "a", "effect": "NoExecute" }));
        check(Value::Null, json!([ours]));
        check(json!([other]), json!([other, ours]));
        let valued = json!({ "key": NOT_READY, "value": "x", "effect": "NoSchedule" });
        check(json!([valued]), json!([valued]));
        let evicts = json!({ "key": NOT_READY, "effect": "NoExecute" });
        check(json!([evicts]), json!([evicts, ours]));
    }
}
