//! Checks the service of an aggregated server in the store: it must exist, have the port, and have ready endpoints.
//!
//! Upstream checks this before it calls the server, and only for services with cluster IPs.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Revision};
use keelson_outbound::RemoteService;
use keelson_registry::{Target, service_port_name, service_slices};

use crate::api_service::Condition;

/// The collections of services and of their endpoints.
pub(crate) struct Endpoints<'t> {
    pub(crate) services: &'t Target,
    pub(crate) slices: &'t Target,
}

impl Endpoints<'_> {
    /// Returns the condition for a problem with a service, if there is one.
    ///
    /// # Errors
    /// 500 when services are not served.
    pub(crate) fn check(&self, remote: &RemoteService) -> Result<Option<Condition>, ApiError> {
        let RemoteService { namespace, name, port, .. } = remote;
        let wrong = |reason, message| Ok(Some(Condition::new(false, reason, message)));
        let Some(service) = self.services.collection()?.get(&format!("{namespace}/{name}")) else {
            return wrong("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
        };
        let service = service.object().decode(Revision::ZERO);
        if service.get(&["spec", "type"]).and_then(Value::as_str).unwrap_or("ClusterIP") != "ClusterIP" {
            return Ok(None);
        }
        let Some(port_name) = service_port_name(&service, *port) else {
            let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
            return wrong("ServicePortError", message);
        };
        let slices = self.slices.collection()?.snapshot();
        let mut slices = service_slices(&slices, namespace, name).peekable();
        if slices.peek().is_none() {
            return wrong(
                "EndpointsNotFound",
                format!("cannot find endpointslices for service/{name} in {namespace:?}"),
            );
        }
        if !slices.any(|slice| leads_to_somebody(slice, &port_name)) {
            let message = format!(
                "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
            );
            return wrong("MissingEndpoints", message);
        }
        Ok(None)
    }
}

/// Returns true if a slice has this port and a ready endpoint.
fn leads_to_somebody(slice: &Arc<Entry>, port_name: &str) -> bool {
    let slice = slice.object().decode(Revision::ZERO);
    let list = |field: &str| slice.get(&[field]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has_port = list("ports").iter().any(|port| port["name"].as_str().unwrap_or_default() == port_name);
    has_port && list("endpoints").iter().any(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false))
}
