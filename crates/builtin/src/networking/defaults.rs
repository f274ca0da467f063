//! Defaults of ingress classes and network policies.
//!
//! The policy types depend on the rules of a network policy. Services are in the core group.

use keelson_meta::json::{Map, Value, json};

use crate::defaulting::type_defaults::Rule::{Always, Each, In, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, is_absent, list, set};

/// The defaults of a kind of `networking.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "IngressClass" => Some(&INGRESS_CLASS),
        "NetworkPolicy" => Some(&NETWORK_POLICY),
        _ => None,
    }
}

const INGRESS_CLASS: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    In(&const {
        TypeDefaults::new(&[("parameters", In(&const { TypeDefaults::new(&[("scope", TextIfAbsent("Cluster"))]) }))])
    }),
)]);

const NETWORK_POLICY: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults {
                fields: &[("ingress", Each(&PEERS)), ("egress", Each(&PEERS))],
                then: &[FollowUp::Run(&["policyTypes", "egress"], policy_types)],
            }
        },
    ),
)]);

const PEERS: TypeDefaults =
    TypeDefaults::new(&[("ports", Each(&const { TypeDefaults::new(&[("protocol", TextIfAbsent("TCP"))]) }))]);

/// Every network policy restricts incoming traffic. It restricts outgoing traffic only if it has rules for it.
fn policy_types(spec: &mut Map) {
    if matches!(spec.get("policyTypes"), None | Some(Value::Null)) || list_is_empty(spec) {
        let egress = !is_absent(spec, "egress") && !list(spec, "egress").is_empty();
        set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

fn list_is_empty(spec: &Map) -> bool {
    matches!(spec.get("policyTypes"), Some(Value::Array(types)) if types.is_empty())
}
