//! Subresources that a kubelet, a pod or a service answers: logs, commands, forwarded ports, proxied requests.
//!
//! The registry runs upstream's checks and returns the endpoint that answers. It makes no connections: a server without
//! access to nodes answers 503 instead.

use keelson_meta::json::Value;
use keelson_meta::options::GetOptions;
use keelson_meta::{ApiError, Object};

use keelson_resources::{SubresourceHandler, Verb};

use super::endpoints::{self, KubeletEndpoint, NodeAddresses, ProxiedEndpoint, SchemeNamePort};
use crate::caller::Caller;
use crate::registry::Registry;
use crate::rights;
use crate::target::Target;

/// The endpoint that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// No endpoint: nothing has run yet, so the response is empty.
    Nothing,
    /// The kubelet of a pod.
    Kubelet(KubeletEndpoint),
    /// A pod, an endpoint of a service, or a node.
    Proxied(ProxiedEndpoint),
}

impl Registry {
    /// Returns the endpoint that answers a request. `said` has the options of the connection, as an object of the kind
    /// that the subresource accepts. Admission does not see requests for logs. `nodes` is `None` in a server that
    /// connects to no nodes.
    ///
    /// # Errors
    /// - 404 if the object does not exist
    /// - 400 for forbidden options or addresses
    /// - 403 for a session with a pod by a user who may get but not create
    /// - 503 without `nodes` or without an endpoint
    /// - the errors of admission
    pub async fn remote(
        &self,
        target: &Target,
        name: &str,
        said: Object,
        nodes: Option<&NodeAddresses>,
        caller: &Caller,
    ) -> Result<Remote, ApiError> {
        let answer = async {
            let container = said.get(&["container"]).and_then(Value::as_str).unwrap_or_default().to_owned();
            if target.taken_kind() != *target.kind() {
                // Admission sees the name as in the URL, with the scheme and the port of a service.
                self.admit_connection(target, name, caller, said).await?;
            }
            require_creation(target, name, caller).await?;
            self.locate(target, name, &container, nodes).await
        };
        caller.in_time(answer).await
    }

    async fn locate(
        &self,
        target: &Target,
        name: &str,
        container: &str,
        nodes: Option<&NodeAddresses>,
    ) -> Result<Remote, ApiError> {
        let handler = target.subresource.as_ref().map(|below| below.handler).ok_or(ApiError::MethodNotAllowed)?;
        match handler {
            SubresourceHandler::Kubelet => self.kubelet_of(target, name, container, nodes).await,
            SubresourceHandler::PodProxy => {
                let port = SchemeNamePort::parse(name, "pod")?;
                let pod = self.named(target, port.name).await?;
                let endpoint = endpoints::of_pod(&pod, &port)?;
                nodes.ok_or_else(|| unreachable(&format!("requests to pod \"{}\"", pod.name())))?;
                Ok(Remote::Proxied(endpoint))
            }
            SubresourceHandler::Proxy if target.is_namespaced() => {
                let port = SchemeNamePort::parse(name, "service")?;
                let service = self.named(target, port.name).await?;
                nodes.ok_or_else(|| unreachable(&format!("requests to service \"{}\"", service.name())))?;
                self.service_endpoint(target, &service, &port).await.map(Remote::Proxied)
            }
            SubresourceHandler::Proxy => {
                let port = SchemeNamePort::parse(name, "node")?;
                let node = self.named(target, port.name).await?;
                let nodes = nodes.ok_or_else(|| unreachable(&format!("requests to node \"{}\"", node.name())))?;
                endpoints::of_node(&node, &port, nodes).map(Remote::Proxied)
            }
            // This server answers these itself.
            SubresourceHandler::Confined
            | SubresourceHandler::Scale
            | SubresourceHandler::Binding
            | SubresourceHandler::Eviction
            | SubresourceHandler::Token => Err(ApiError::MethodNotAllowed),
        }
    }

    /// The kubelet of a pod, and the requested container.
    async fn kubelet_of(
        &self,
        target: &Target,
        name: &str,
        container: &str,
        nodes: Option<&NodeAddresses>,
    ) -> Result<Remote, ApiError> {
        let endpoint = target.subresource_name().unwrap_or_default();
        let pod = self.named(target, name).await?;
        let container = if endpoint == "portforward" { String::new() } else { container_of(&pod, container)? };
        let node = pod.get(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default();
        match (node, endpoint) {
            ("", "log") => return Ok(Remote::Nothing),
            ("", _) => {
                let message = format!("pod {name} does not have a host assigned");
                return Err(ApiError::BadRequest(message));
            }
            _ => {}
        }
        // The request is for a log of a pod or a session with it, so a missing node is reported with the pod's
        // resource.
        let found = self.named(&self.target("", "nodes")?, node).await.map_err(|error| match error {
            ApiError::NotFound { name, .. } => ApiError::NotFound { resource: target.group_resource(), name },
            error => error,
        })?;
        let nodes =
            nodes.ok_or_else(|| unreachable(&format!("{} of pod \"{name}\" on node \"{node}\"", what(endpoint))))?;
        let namespace = pod.namespace().to_owned();
        endpoints::kubelet(&found, nodes, namespace, name.to_owned(), container).map(Remote::Kubelet)
    }

    pub(super) async fn named(&self, target: &Target, name: &str) -> Result<Object, ApiError> {
        let entry = self.read(target, name, &GetOptions::default()).await?;
        Ok(entry.object().decode(entry.revision))
    }
}

/// Refuses a session with a pod (a command, its streams or its ports) if the caller may not `create` it. A websocket
/// begins with a GET, and the filter has checked only the right to `get`.
async fn require_creation(target: &Target, name: &str, caller: &Caller) -> Result<(), ApiError> {
    let is_session = target
        .subresource
        .as_ref()
        .is_some_and(|below| below.handler == SubresourceHandler::Kubelet && below.verbs.contains(&Verb::Create));
    if !is_session {
        return Ok(());
    }
    rights::require(caller, rights::attributes(target, Verb::Create.as_str(), Some(name))).await
}

/// 503: this server connects to no endpoints.
fn unreachable(what: &str) -> ApiError {
    ApiError::ServiceUnavailable {
        message: format!("this server cannot forward {what}: it has no connections to kubelets, pods or services"),
        retry_after_seconds: None,
    }
}

fn what(endpoint: &str) -> &'static str {
    match endpoint {
        "log" => "the logs",
        "exec" => "commands to a container",
        "attach" => "the streams",
        _ => "connections to ports",
    }
}

/// The lists of containers, in the order in which upstream names them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The requested container. The only container of the pod if the request has none.
fn container_of(pod: &Object, container: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.get(&["spec", list]).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container.get("name")?.as_str()).map(str::to_owned).collect()
    };
    let all = CONTAINERS.map(names).concat();
    let name = pod.name();
    let message = match names("containers").as_slice() {
        _ if all.iter().any(|known| known == container) => return Ok(container.to_owned()),
        _ if !container.is_empty() => format!("container {container} is not valid for pod {name}"),
        [only] => return Ok(only.clone()),
        [] => format!("a container name must be specified for pod {name}"),
        _ => format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" ")),
    };
    Err(ApiError::BadRequest(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn a_container_is_named_when_there_are_several() {
        let pod = |spec: Value| Object::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let check = |spec: Value, container: &str, expected: Result<&str, &str>| {
            let outcome = container_of(&pod(spec.clone()), container).map_err(|error| error.to_string());
            assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{spec} {container}");
        };
        let one = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]});
        check(one.clone(), "", Ok("a"));
        check(one.clone(), "i", Ok("i"));
        check(one, "x", Err("container x is not valid for pod p"));
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(two, "", Err("a container name must be specified for pod p, choose one of: [i a b]"));
    }
}
