//! Defaults of ingress classes and network policies.
//!
//! What a policy restricts follows from what it says. Services are in the core group.

use keelson_meta::json::{Map, Value, json};

use crate::shape::Rule::{Always, Each, In, TextIfAbsent};
use crate::shape::{Shape, Step, is_absent, list, set};

/// The shape of a kind of `networking.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "IngressClass" => Some(&INGRESS_CLASS),
        "NetworkPolicy" => Some(&NETWORK_POLICY),
        _ => None,
    }
}

const INGRESS_CLASS: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape::of(&[("parameters", In(&const { Shape::of(&[("scope", TextIfAbsent("Cluster"))]) }))]) }),
)]);

const NETWORK_POLICY: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape {
                fields: &[("ingress", Each(&PEERS)), ("egress", Each(&PEERS))],
                then: &[Step::Run(&["policyTypes", "egress"], policy_types)],
            }
        },
    ),
)]);

const PEERS: Shape = Shape::of(&[("ports", Each(&const { Shape::of(&[("protocol", TextIfAbsent("TCP"))]) }))]);

/// Every policy restricts what comes in; what goes out only if it says something about it.
fn policy_types(spec: &mut Map) {
    if matches!(spec.get("policyTypes"), None | Some(Value::Null)) || list_is_empty(spec) {
        let egress = !is_absent(spec, "egress") && !list(spec, "egress").is_empty();
        set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

fn list_is_empty(spec: &Map) -> bool {
    matches!(spec.get("policyTypes"), Some(Value::Array(types)) if types.is_empty())
}
