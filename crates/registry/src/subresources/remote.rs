//! Subresources that only a kubelet, a pod or a service can answer: logs, commands, forwarded ports, proxied requests.
//!
//! This server stores objects and connects to none of them. It says so, after it has checked what upstream checks before
//! it connects, so that a client learns first what is wrong with its own request.

use std::net::IpAddr;

use keelson_meta::json::Value;
use keelson_meta::options::GetOptions;
use keelson_meta::{ApiError, Object};

use keelson_resources::{SubresourceHandler, Verb};

use crate::caller::Caller;
use crate::registry::Registry;
use crate::rights;
use crate::target::Target;

/// What can be said without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nothing has run yet, so there is nothing to show.
    Nothing,
}

impl Registry {
    /// Answers a request that would be passed on to somebody else; `said` is what it says of the connection, of the kind that the
    /// endpoint takes. To read a log is no connection.
    ///
    /// # Errors
    /// 404 when the object is not there, 400 when the request could not be passed on by anybody, 503 otherwise, and what admission says.
    /// 403 where the caller may get a session with a pod but create none.
    pub async fn remote(&self, target: &Target, name: &str, said: Object, caller: &Caller) -> Result<Remote, ApiError> {
        let answer = async {
            let container = said.get(&["container"]).and_then(Value::as_str).unwrap_or_default().to_owned();
            if target.taken_kind() != *target.kind() {
                self.admit_connection(target, name, caller, said).await?;
            }
            require_creation(target, name, caller).await?;
            self.answer_for(target, name, &container).await
        };
        caller.in_time(answer).await
    }

    async fn answer_for(&self, target: &Target, name: &str, container: &str) -> Result<Remote, ApiError> {
        let endpoint = target.subresource_name().unwrap_or_default();
        let handler = target.subresource.as_ref().map(|below| below.handler).ok_or(ApiError::MethodNotAllowed)?;
        match handler {
            SubresourceHandler::PodProxy => {
                let pod = self.named(target, object_name(name)).await?;
                check_address(&pod)?;
                Err(unreachable(&format!("requests to pod \"{}\"", pod.name())))
            }
            SubresourceHandler::Kubelet => {
                let pod = self.named(target, name).await?;
                if endpoint != "portforward" {
                    check_container(&pod, container)?;
                }
                let node = pod.get(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default();
                match (node, endpoint) {
                    ("", "log") => return Ok(Remote::Nothing),
                    ("", _) => {
                        let message = format!("pod {name} does not have a host assigned");
                        return Err(ApiError::BadRequest(message));
                    }
                    _ => {}
                }
                // Whoever asks looks for the pod's log or for a command in it: that it is not found is told of the pod's resource.
                self.named(&self.target("", "nodes")?, node).await.map_err(|error| match error {
                    ApiError::NotFound { name, .. } => ApiError::NotFound { resource: target.group_resource(), name },
                    error => error,
                })?;
                Err(unreachable(&format!("{} of pod \"{name}\" on node \"{node}\"", what(endpoint))))
            }
            SubresourceHandler::Proxy => {
                let object = self.named(target, object_name(name)).await?;
                Err(unreachable(&format!("requests to {} \"{}\"", target.resource.singular, object.name())))
            }
            // These are answered here.
            SubresourceHandler::Confined
            | SubresourceHandler::Scale
            | SubresourceHandler::Binding
            | SubresourceHandler::Eviction
            | SubresourceHandler::Token => Err(ApiError::MethodNotAllowed),
        }
    }

    async fn named(&self, target: &Target, name: &str) -> Result<Object, ApiError> {
        let entry = self.read(target, name, &GetOptions::default()).await?;
        Ok(entry.object.decode(entry.revision))
    }
}

/// Refuses a session with a pod (a command, its streams or its ports) to a caller that may not `create` it. A websocket begins with a GET,
/// for which the filter has checked the right to `get` alone.
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

/// 503: there is nobody to pass a request on to.
fn unreachable(what: &str) -> ApiError {
    ApiError::ServiceUnavailable {
        message: format!(
            "this server cannot pass on {what}: it stores objects and connects to no kubelets, pods or services"
        ),
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

/// The name within `[scheme:]name[:port]`, as proxied requests have it.
fn object_name(name: &str) -> &str {
    let parts: Vec<&str> = name.split(':').collect();
    match parts.as_slice() {
        [_, name, _] => name,
        [name, ..] => name,
        [] => name,
    }
}

/// A request may not be led to an address that is no pod's.
fn check_address(pod: &Object) -> Result<(), ApiError> {
    let first = pod.get(&["status", "podIPs"]).and_then(Value::as_array).and_then(|addresses| addresses.first());
    let address = first.and_then(|address| address.get("ip")?.as_str()?.parse::<IpAddr>().ok());
    let global = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let usable = address.is_some_and(|address| {
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && global(&address)
    });
    if usable { Ok(()) } else { Err(ApiError::BadRequest("address not allowed".to_owned())) }
}

/// The lists of containers, in the order in which upstream names them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

fn check_container(pod: &Object, container: &str) -> Result<(), ApiError> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.get(&["spec", list]).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container.get("name")?.as_str()).map(str::to_owned).collect()
    };
    let all = CONTAINERS.map(names).concat();
    let name = pod.name();
    let message = match names("containers").len() {
        _ if all.iter().any(|known| known == container) => return Ok(()),
        _ if !container.is_empty() => format!("container {container} is not valid for pod {name}"),
        1 => return Ok(()),
        0 => format!("a container name must be specified for pod {name}"),
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
        let check = |spec: Value, container: &str, expected: Result<(), &str>| {
            let outcome = check_container(&pod(spec.clone()), container).map_err(|error| error.to_string());
            assert_eq!(outcome, expected.map_err(str::to_owned), "{spec} {container}");
        };
        let one = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]});
        check(one.clone(), "", Ok(()));
        check(one.clone(), "i", Ok(()));
        check(one, "x", Err("container x is not valid for pod p"));
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(two, "", Err("a container name must be specified for pod p, choose one of: [i a b]"));
    }

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        for (name, expected) in [("a", "a"), ("a:80", "a"), ("https:a:", "a"), ("http:a:80", "a")] {
            assert_eq!(object_name(name), expected);
        }
    }
}
