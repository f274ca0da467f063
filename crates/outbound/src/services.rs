//! Resolves services of the cluster: to ready endpoints in the cached slices, or to the route that the operator has
//! set.
//!
//! A server outside of the cluster's network can't reach endpoints. There, and in clusters without a controller for
//! slices, `--service-route` sets the address of a service. Only the address changes: the certificate must still be
//! that of the service.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, Weak};

use http::Uri;
use keelson_cache::Entry;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{Object, Random, Revision};
use keelson_registry::{Registry, ready_endpoints, service_port_name, service_slices};

/// The most addresses returned for a service. The first that accepts a connection is used.
const ADDRESSES: usize = 3;
/// The most endpoints of a service that are inspected.
const LOOKED_AT: usize = 1000;

/// Resolves services to addresses.
pub trait Services: fmt::Debug + Send + Sync {
    /// Resolves a port of a service to hosts and ports, in the order to try. Returns at least one.
    ///
    /// # Errors
    /// The service has no usable address, in upstream's words.
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<(String, u16)>, String>;

    /// Returns true if the operator set a route for a service.
    fn is_routed(&self, _namespace: &str, _name: &str) -> bool {
        false
    }
}

/// A route for a service: `NAMESPACE/NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRoute {
    namespace: String,
    name: String,
    host: String,
    port: u16,
}

impl FromStr for ServiceRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "a route is NAMESPACE/NAME=https://HOST[:PORT]";
        let (service, url) = text.split_once('=').ok_or(FORM)?;
        let (namespace, name) = service.split_once('/').ok_or(FORM)?;
        let url: Uri = url.parse().map_err(|_| FORM)?;
        let (Some("https"), Some(host), "/" | "", None) = (url.scheme_str(), url.host(), url.path(), url.query())
        else {
            return Err(FORM.to_owned());
        };
        if namespace.is_empty() || name.is_empty() || name.contains('/') || url.authority().is_none_or(has_user) {
            return Err(FORM.to_owned());
        }
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(443);
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), host, port })
    }
}

fn has_user(authority: &http::uri::Authority) -> bool {
    authority.as_str().contains('@')
}

/// All routes of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRoutes(BTreeMap<(String, String), (String, u16)>);

impl FromIterator<ServiceRoute> for ServiceRoutes {
    fn from_iter<I: IntoIterator<Item = ServiceRoute>>(routes: I) -> Self {
        Self(routes.into_iter().map(|route| ((route.namespace, route.name), (route.host, route.port))).collect())
    }
}

/// The services of a cluster.
pub struct ClusterServices {
    /// Weak, since the registry owns the served resources, and these own their webhooks. Empty until the registry
    /// exists, since webhooks are needed to build it.
    registry: OnceLock<Weak<Registry>>,
    routes: ServiceRoutes,
    random: Arc<dyn Random>,
}

impl ClusterServices {
    /// Resolves services of a registry, except for routed ones.
    pub fn new(registry: &Arc<Registry>, routes: ServiceRoutes, random: Arc<dyn Random>) -> Self {
        Self { registry: OnceLock::from(Arc::downgrade(registry)), routes, random }
    }

    /// Resolves services of a registry that [`are_those_of`](Self::are_those_of) sets later.
    pub fn to_come(routes: ServiceRoutes, random: Arc<dyn Random>) -> Self {
        Self { registry: OnceLock::new(), routes, random }
    }

    /// Sets the registry whose services are resolved.
    pub fn are_those_of(&self, registry: &Arc<Registry>) {
        // If a registry was set before, it stays: a server has only one.
        let _ = self.registry.set(Arc::downgrade(registry));
    }
}

impl fmt::Debug for ClusterServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterServices").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Services for ClusterServices {
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<(String, u16)>, String> {
        if let Some(routed) = self.routes.0.get(&(namespace.to_owned(), name.to_owned())) {
            return Ok(vec![routed.clone()]);
        }
        let registry = self.registry.get().ok_or("the server is starting")?;
        let registry = registry.upgrade().ok_or("the server is stopping")?;
        let surface = registry.surface();
        let collection = |group, plural| {
            let target = surface.target(group, plural).map_err(|error| error.to_string())?;
            target.collection().cloned().map_err(|error| error.to_string())
        };
        let service = collection("", "services")?.get(&format!("{namespace}/{name}"));
        let service = service.ok_or_else(|| format!("service {} not found", quote(name)))?;
        let service = service.object().decode(Revision::ZERO);
        if let Some(elsewhere) = external_name(&service) {
            return Ok(vec![(elsewhere.to_owned(), port)]);
        }
        let port_name = addressed_port(&service, name, port)?;
        let slices = collection("discovery.k8s.io", "endpointslices")?.snapshot();
        let mut found: Vec<(String, u16)> = service_slices(&slices, namespace, name)
            .flat_map(|slice| ready(slice, &port_name))
            .take(LOOKED_AT)
            .collect();
        if found.is_empty() {
            return Err(format!("no endpoints available for service {}", quote(name)));
        }
        // Starts at a random endpoint, so that calls spread over all of them.
        let first = self.random.u64() % found.len() as u64;
        found.rotate_left(usize::try_from(first).unwrap_or_default());
        found.truncate(ADDRESSES);
        Ok(found)
    }

    fn is_routed(&self, namespace: &str, name: &str) -> bool {
        self.routes.0.contains_key(&(namespace.to_owned(), name.to_owned()))
    }
}

/// The host of a service of type ExternalName.
fn external_name(service: &Object) -> Option<&str> {
    let text = |field: &str| service.get(&["spec", field]).and_then(Value::as_str);
    text("externalName").filter(|name| text("type") == Some("ExternalName") && !name.is_empty())
}

/// The name of a port of a service that has endpoints.
fn addressed_port(service: &Object, name: &str, port: u16) -> Result<String, String> {
    let kind = service.get(&["spec", "type"]).and_then(Value::as_str).unwrap_or("ClusterIP");
    if !matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        return Err(format!("unsupported service type {}", quote(kind)));
    }
    service_port_name(service, port).ok_or_else(|| format!("no service port {port} found for service {}", quote(name)))
}

/// The ready addresses of a slice with this port.
fn ready(slice: &Arc<Entry>, port_name: &str) -> Vec<(String, u16)> {
    let slice = slice.object().decode(Revision::ZERO);
    ready_endpoints(&slice, port_name).map(|(_, address, port)| (address.to_owned(), port)).collect()
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_route_names_a_service_and_where_it_is() {
        let route: ServiceRoute = "team/hook=https://127.0.0.1:8443".parse().unwrap();
        let expected = ("team".to_owned(), "hook".to_owned(), "127.0.0.1".to_owned(), 8443);
        assert_eq!((route.namespace, route.name, route.host, route.port), expected);
        let route: ServiceRoute = "a/b=https://[::1]/".parse().unwrap();
        assert_eq!((&*route.host, route.port), ("::1", 443));
        let bad = ["a/b", "a=https://h", "a/b=http://h", "a/b=https://h/p", "/b=https://h", "a/b=https://u@h", "a/b=h"];
        for bad in bad {
            assert!(bad.parse::<ServiceRoute>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_is_found_by_its_number_and_known_by_its_name() {
        let check = |spec: Value, port: u16, expected: Result<&str, &str>| {
            let service = Object::from_value(json!({ "spec": spec })).unwrap();
            let found = addressed_port(&service, "s", port);
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let ports = json!([{ "port": 443, "name": "https" }, { "port": 80 }]);
        check(json!({ "ports": ports.clone() }), 443, Ok("https"));
        check(json!({ "ports": ports.clone(), "type": "NodePort" }), 80, Ok(""));
        check(json!({ "ports": ports }), 99, Err("no service port 99 found for service \"s\""));
        check(json!({ "type": "ExternalName" }), 443, Err("unsupported service type \"ExternalName\""));
    }
}
