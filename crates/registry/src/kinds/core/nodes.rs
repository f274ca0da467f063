//! Nodes: a new one is not ready, so nothing is scheduled on it before somebody says that it is.
//!
//! The taint is upstream's, and is taken off by whoever watches over nodes. The creator of a node also states its status.

use keelson_meta::Object;
use keelson_meta::json::{Value, json};

use crate::caller::Caller;
use crate::kinds::strategy::Strategy;
use crate::warnings::Warnings;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

fn taint_until_ready(node: &mut Object) {
    let spec = node.0.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if let Value::Array(taints) = taints
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == EFFECT)
    {
        taints.push(json!({ "key": NOT_READY, "effect": EFFECT }));
    }
}

/// The strategy of nodes.
pub(super) struct Nodes;

impl Strategy for Nodes {
    /// A kubelet registers its node whole.
    fn keeps_status_on_create(&self, _: &Caller) -> bool {
        true
    }

    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        taint_until_ready(object);
        true
    }
}
