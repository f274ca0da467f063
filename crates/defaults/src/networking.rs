//! Services, endpoints, ingress classes and network policies.

use serde_json::{Value, json};

use crate::shape::Rule::{Always, Each, Flag, In, Number, Text};
use crate::shape::{Shape, Tree, each, is_unset, is_zero, list, set, text};

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
                fields: &[("sessionAffinity", Text("None")), ("type", Text("ClusterIP"))],
                then: &[affinity, target_ports, traffic],
            }
        },
    ),
)]);

const AFFINITY: Shape = Shape::of(&[("clientIP", Always(&const { Shape::of(&[("timeoutSeconds", Number(10_800))]) }))]);

/// How long a client stays with one pod.
fn affinity(spec: &mut Tree) {
    match text(spec, "sessionAffinity") {
        "ClientIP" => Always(&AFFINITY).apply(spec, "sessionAffinityConfig"),
        "None" => {
            spec.shift_remove("sessionAffinityConfig");
        }
        _ => {}
    }
}

fn target_ports(spec: &mut Tree) {
    each(spec, "ports", |port| {
        if is_zero(port, "targetPort")
            && let Some(number) = port.get("port").cloned()
        {
            set(port, "targetPort", number);
        }
    });
}

/// Which nodes take part in leading traffic to the service.
fn traffic(spec: &mut Tree) {
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
        Text("Cluster").apply(spec, "internalTrafficPolicy");
    }
    if balanced {
        Flag(true).apply(spec, "allocateLoadBalancerNodePorts");
    }
}

const PROTOCOL: Shape = Shape::of(&[("protocol", Text("TCP"))]);

const ENDPOINTS: Shape = Shape::of(&[("subsets", Each(&const { Shape::of(&[("ports", Each(&PROTOCOL))]) }))]);

const ENDPOINT_SLICE: Shape =
    Shape::of(&[("ports", Each(&const { Shape::of(&[("name", Text("")), ("protocol", Text("TCP"))]) }))]);

const INGRESS_CLASS: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape::of(&[("parameters", In(&const { Shape::of(&[("scope", Text("Cluster"))]) }))]) }),
)]);

const NETWORK_POLICY: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape { fields: &[("ingress", Each(&PEERS)), ("egress", Each(&PEERS))], then: &[policy_types] } }),
)]);

const PEERS: Shape = Shape::of(&[("ports", Each(&PROTOCOL))]);

/// Every policy restricts what comes in; what goes out only if it says something about it.
fn policy_types(spec: &mut Tree) {
    if matches!(spec.get("policyTypes"), None | Some(Value::Null)) || list_is_empty(spec) {
        let egress = !is_unset(spec, "egress") && !list(spec, "egress").is_empty();
        set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

fn list_is_empty(spec: &Tree) -> bool {
    matches!(spec.get("policyTypes"), Some(Value::Array(types)) if types.is_empty())
}
