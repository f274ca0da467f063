//! Defaults of services and endpoints.
//!
//! Defaults that depend on the type of a service are functions.

use keelson_meta::json::{Map, Value};

use crate::defaulting::type_defaults::Rule::{Always, CopiedOverText, Each, Flag, Number, Text, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, each, is_absent, list, object, peek, set, text};

pub(super) const SERVICE: TypeDefaults = TypeDefaults {
    fields: &[("spec", Always(&SPEC))],
    then: &[FollowUp::Run(&["spec.type", "status.loadBalancer.ingress"], modes_of_addresses)],
};

const SPEC: TypeDefaults = TypeDefaults {
    fields: &[("sessionAffinity", Text("None")), ("type", Text("ClusterIP")), ("ports", Each(&SERVICE_PORT))],
    then: &[FollowUp::Run(&["sessionAffinity", "sessionAffinityConfig"], affinity), FollowUp::Run(TRAFFIC, traffic)],
};

/// Sets the default IP mode of a load balancer's addresses: the address belongs to the load balancer itself.
fn modes_of_addresses(service: &mut Map) {
    if peek(service, "spec").is_none_or(|spec| text(spec, "type") != "LoadBalancer") {
        return;
    }
    let Some(balancer) = object(service, "status").and_then(|status| object(status, "loadBalancer")) else { return };
    each(balancer, "ingress", |address| {
        if matches!(address.get("ip"), Some(Value::String(ip)) if !ip.is_empty()) && is_absent(address, "ipMode") {
            set(address, "ipMode", "VIP");
        }
    });
}

const SERVICE_PORT: TypeDefaults =
    TypeDefaults::new(&[("protocol", Text("TCP")), ("targetPort", CopiedOverText("port"))]);

/// The fields that the defaults of traffic policies read and set.
const TRAFFIC: &[&str] =
    &["type", "externalIPs", "externalTrafficPolicy", "internalTrafficPolicy", "allocateLoadBalancerNodePorts"];

const AFFINITY: TypeDefaults =
    TypeDefaults::new(&[("clientIP", Always(&const { TypeDefaults::new(&[("timeoutSeconds", Number(10_800))]) }))]);

/// Sets or removes the configuration of the session affinity.
fn affinity(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "ClientIP" => Always(&AFFINITY).apply(spec, "sessionAffinityConfig"),
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        _ => {}
    }
}

/// Sets the default traffic policies of the service type.
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

/// A port whose protocol defaults to TCP.
pub(super) const PROTOCOL: TypeDefaults = TypeDefaults::new(&[("protocol", Text("TCP"))]);

pub(super) const ENDPOINTS: TypeDefaults =
    TypeDefaults::new(&[("subsets", Each(&const { TypeDefaults::new(&[("ports", Each(&PROTOCOL))]) }))]);
