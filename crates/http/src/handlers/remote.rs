//! Requests that a kubelet, a pod or a service answers: logs, commands, forwarded ports, proxied requests.
//!
//! This handler parses the query into upstream's options object. `crate::nodes` does all else.

use http::Response;
use keelson_meta::json::json;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};

use super::resolve;
use crate::body::ResponseBody;
use crate::nodes::{self, NodeAccess};
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    nodes: Option<&NodeAccess>,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let said = session_options(target, &request);
    nodes::answer(registry, nodes, target, resolve::name(target)?, said, request).await
}

/// The options of a requested connection, as upstream's options object.
fn session_options(target: &Target, request: &ApiRequest) -> Object {
    let mut said = Object::default();
    said.set_type(&target.taken_kind());
    let query = request.query.pairs();
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(flag) == Some(true) {
            said.0.insert(flag, json!(true));
        }
    }
    if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
        said.0.insert("container", json!(container));
    }
    let command: Vec<&str> = query.all("command").collect();
    if !command.is_empty() {
        said.0.insert("command", json!(command));
    }
    let ports = query.all("ports").flat_map(|ports| ports.split(','));
    let ports: Vec<i64> = ports.filter_map(|port| port.trim().parse().ok()).collect();
    if !ports.is_empty() {
        said.0.insert("ports", json!(ports));
    }
    // The path after the subresource goes to the remote server.
    let endpoint = target.subresource_name().unwrap_or_default();
    if let Some((_, path)) = request.parts.uri.path().split_once(&format!("/{endpoint}/")) {
        said.0.insert("path", json!(format!("/{path}")));
    }
    said
}
