//! Accessors for the `spec` of a service. Values of the wrong type read as absent, since the schema has refused them.
//!
//! The accessors cover the few fields that allocation reads and writes. They contain no rules.

use std::net::IpAddr;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

/// The value of `clusterIP` for a headless service.
pub(crate) const NONE: &str = "None";

/// Accessors for the fields of a `spec`.
pub(crate) trait Spec {
    /// The string in a field; empty if absent.
    fn text(&self, field: &str) -> &str;
    /// The strings in a list field.
    fn texts(&self, field: &str) -> Vec<&str>;
    /// A port number; 0 if absent.
    fn port(&self, field: &str) -> u16;
    /// The objects in a list field.
    fn items(&self, field: &str) -> Vec<&Map>;
    /// Sets a field, or removes it.
    fn put(&mut self, field: &str, value: Option<Value>);
}

impl Spec for Map {
    fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn texts(&self, field: &str) -> Vec<&str> {
        self.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn port(&self, field: &str) -> u16 {
        self.get(field).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
    }

    fn items(&self, field: &str) -> Vec<&Map> {
        self.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).collect()
    }

    fn put(&mut self, field: &str, value: Option<Value>) {
        match value {
            Some(value) => self.insert(field, value),
            None => self.remove(field),
        };
    }
}

/// The `spec` of a service.
pub(crate) fn spec(service: &Object) -> Option<&Map> {
    service.0.get("spec")?.as_object()
}

/// The `spec` of a service, for changes.
pub(crate) fn spec_mut(service: &mut Object) -> Option<&mut Map> {
    service.0.get_mut("spec")?.as_object_mut()
}

/// Returns true if services of this type have cluster addresses, unless they are headless. Also true for unknown types,
/// so that validation reports only the type.
pub(crate) fn needs_addresses(spec: &Map) -> bool {
    spec.text("type") != "ExternalName"
}

/// Returns true if services of this type have node ports.
pub(crate) fn needs_node_ports(spec: &Map) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

/// Returns true if nodes need a port for health checks of the service.
pub(crate) fn needs_health_check(spec: &Map) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Returns true for a headless service.
pub(super) fn is_headless(spec: &Map) -> bool {
    spec.text("clusterIP") == NONE || spec.texts("clusterIPs").first() == Some(&NONE)
}

/// The cluster addresses of a service.
pub(super) fn held_addresses(spec: &Map) -> Vec<IpAddr> {
    if !needs_addresses(spec) || is_headless(spec) {
        return Vec::new();
    }
    spec.texts("clusterIPs").into_iter().filter_map(|address| address.parse().ok()).collect()
}

/// The node ports of a service.
pub(super) fn held_ports(spec: &Map) -> Vec<u16> {
    let mut ports = Vec::new();
    if needs_node_ports(spec) {
        ports.extend(spec.items("ports").into_iter().map(|port| port.port("nodePort")));
    }
    if needs_health_check(spec) {
        ports.push(spec.port("healthCheckNodePort"));
    }
    ports.retain(|port| *port != 0);
    ports.sort_unstable();
    ports.dedup();
    ports
}
