//! Defaults of services, endpoints, ingress classes and network policies.
//!
//! Those of a service depend on its type, and are functions beside its shape.

use keelson_meta::json::{Map, Value, json};

use crate::shape::Rule::{Always, CopiedOverText, Each, Flag, In, Number, Text, TextIfAbsent};
use crate::shape::{Shape, Step, is_absent, list, set, text};

/// The shape of a kind of `networking.k8s.io` and `discovery.k8s.io`, and of services and endpoints.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "Service" => Some(&SERVICE),
        "Endpoints" => Some(&ENDPOINTS),
        "EndpointSlice" => Some(&ENDPOINT_SLICE),
        "IngressClass" => Some(&INGRESS_CLASS),
        "NetworkPolicy" => Some(&NETWORK_POLICY),
        _ => None,
    }
}

const SERVICE: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape {
                fields: &[
                    ("sessionAffinity", Text("None")),
                    ("type", Text("ClusterIP")),
                    ("ports", Each(&SERVICE_PORT)),
                ],
                then: &[
                    Step::Run(&["sessionAffinity", "sessionAffinityConfig"], affinity),
                    Step::Run(TRAFFIC, traffic),
                ],
            }
        },
    ),
)]);

const SERVICE_PORT: Shape = Shape::of(&[("protocol", Text("TCP")), ("targetPort", CopiedOverText("port"))]);

/// What traffic depends on, and what is said about it.
const TRAFFIC: &[&str] =
    &["type", "externalIPs", "externalTrafficPolicy", "internalTrafficPolicy", "allocateLoadBalancerNodePorts"];

const AFFINITY: Shape = Shape::of(&[("clientIP", Always(&const { Shape::of(&[("timeoutSeconds", Number(10_800))]) }))]);

/// How long a client stays with one pod.
fn affinity(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "ClientIP" => Always(&AFFINITY).apply(spec, "sessionAffinityConfig"),
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        _ => {}
    }
}

/// Which nodes take part in leading traffic to the service.
fn traffic(spec: &mut Map) {
    let (outside, balanced, inside) = match text(spec, "type") {
        "NodePort" => (true, false, true),
        "LoadBalancer" => (true, true, true),
        "ClusterIP" => (!list(spec, "externalIPs").is_empty(), false, true),
        _ => (false, false, false),
    };
    if outside {
        Text("Cluster").apply(spec, "externalTrafficPolicy");
    }
    if inside {
        TextIfAbsent("Cluster").apply(spec, "internalTrafficPolicy");
    }
    if balanced {
        Flag(true).apply(spec, "allocateLoadBalancerNodePorts");
    }
}

const PROTOCOL: Shape = Shape::of(&[("protocol", Text("TCP"))]);

const ENDPOINTS: Shape = Shape::of(&[("subsets", Each(&const { Shape::of(&[("ports", Each(&PROTOCOL))]) }))]);

const ENDPOINT_SLICE: Shape =
    Shape::of(&[("ports", Each(&const { Shape::of(&[("name", Text("")), ("protocol", TextIfAbsent("TCP"))]) }))]);

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
