//! Sessions with pods: commands, attached streams, and forwarded ports.
//!
//! A session upgrades the client's connection. If the kubelet supports the client's protocol, bytes are copied in both
//! directions unchanged. That is so for SPDY and the older websocket protocols. Redirects are refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use form_urlencoded::Serializer;
use http::{Method, Response, StatusCode};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_outbound::{NodeAddress, Security};
use keelson_registry::KubeletEndpoint;

use super::{NodeAccess, refused_or, translated, tunnelled, unwritable};
use crate::body::ResponseBody;
use crate::proxy::{HeldValue, begun_tunnel, keep_fields, keep_upgrade, wanted_upgrade};
use crate::service::ApiRequest;

/// The longest time for a kubelet to answer a request for a session. It waits for the container runtime.
pub(super) const UPGRADE_TIME: Duration = Duration::from_mins(2);

impl NodeAccess {
    /// Opens a session with a pod. `said` contains the options.
    pub(super) async fn session(
        &self,
        endpoint: KubeletEndpoint,
        subresource: &str,
        said: &Object,
        request: ApiRequest,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let ApiRequest { mut parts, body, .. } = request;
        let Some(client) = wanted_upgrade(&mut parts) else {
            return Err(ApiError::BadRequest("Upgrade request required".to_owned()));
        };
        let held = parts.extensions.remove::<HeldValue>();
        let (target, streams) = (kubelet_target(&endpoint, subresource, said), translated::Streams::from_object(said));
        let KubeletEndpoint { host, port, takes_websockets, .. } = endpoint;
        let address = NodeAddress { host, port, security: Security::Kubelet, is_confined: false };
        self.counts.sessions.fetch_add(1, Ordering::Relaxed);
        let is_forwarding = subresource == "portforward";
        if !takes_websockets && !is_forwarding && translated::is_wanted(&parts.headers) {
            self.counts.translated.fetch_add(1, Ordering::Relaxed);
            let answered = self.translate((client, held), &parts, &address, &target, streams).await;
            // A session that has begun is counted at its end.
            if let Some(code) = code(&answered).filter(|code| *code != StatusCode::SWITCHING_PROTOCOLS) {
                self.counts.translations.count(code.as_u16());
            }
            return answered;
        }
        if !takes_websockets && is_forwarding && tunnelled::is_wanted(&parts.headers) {
            self.counts.tunnelled.fetch_add(1, Ordering::Relaxed);
            let answered = self.tunnel((client, held), &parts, &address, &target).await;
            if let Some(code) = code(&answered) {
                self.counts.tunnels.count(code.as_u16());
            }
            return answered;
        }
        let method = parts.method.clone();
        let mut head = self.head(&parts, method, &address, &target).ok_or_else(unwritable)?;
        keep_upgrade(&mut head.headers, &parts.headers);
        let body = (!body.is_empty()).then(|| http_body_util::BodyExt::boxed_unsync(body));
        let (answer, permit) = self.upgrade(&address, head, body).await?;
        Ok(begun_tunnel(client, answer, (permit, held), &self.tasks))
    }

    /// Sends an upgrade request. Returns an error for a response that is neither an upgrade nor a refusal.
    pub(super) async fn upgrade(
        &self,
        address: &NodeAddress,
        head: http::request::Parts,
        body: Option<keelson_outbound::ForwardBody>,
    ) -> Result<(Response<hyper::body::Incoming>, keelson_outbound::ForwardPermit), ApiError> {
        let sent = tokio::time::timeout(UPGRADE_TIME, self.client.send(address, head, body)).await;
        let sent = sent.map_err(|_| ApiError::Unclassified("context deadline exceeded".to_owned()))?;
        let (answer, permit) = sent.map_err(|error| {
            let is_dial = matches!(error, keelson_outbound::NodeError::Dial(_));
            refused_or(error).unwrap_or_else(|why| {
                ApiError::Unclassified(if is_dial { format!("error dialing backend: {why}") } else { why })
            })
        })?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => Ok((answer, permit)),
            code if code.is_client_error() || code.is_server_error() => Ok((answer, permit)),
            code => {
                let why = format!("invalid upgrade response: status code {}", code.as_u16());
                Err(ApiError::Unclassified(why))
            }
        }
    }

    /// The head of an SPDY request, as Kubernetes clients send it.
    pub(super) fn spdy_head(
        &self,
        parts: &http::request::Parts,
        address: &NodeAddress,
        target: &str,
        protocols: &[&str],
    ) -> Option<http::request::Parts> {
        let mut head = self.head(parts, Method::POST, address, target)?;
        keep_fields(&mut head.headers, |name| !name.starts_with("sec-websocket-"));
        head.headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
        head.headers.insert(http::header::UPGRADE, http::HeaderValue::from_static("SPDY/3.1"));
        head.headers.remove(super::spdy::PROTOCOL_VERSION);
        for protocol in protocols {
            head.headers.append(super::spdy::PROTOCOL_VERSION, protocol.parse().ok()?);
        }
        Some(head)
    }
}

/// The code that the client gets.
fn code(answered: &Result<Response<ResponseBody>, ApiError>) -> Option<StatusCode> {
    match answered {
        Ok(response) => Some(response.status()),
        Err(error) => StatusCode::from_u16(error.status().http_code()).ok(),
    }
}

/// Returns true if this option of a session is true.
pub(super) fn is_set(said: &Object, name: &str) -> bool {
    said.get(&[name]).and_then(Value::as_bool) == Some(true)
}

/// The path and the query of the request to the kubelet.
fn kubelet_target(endpoint: &KubeletEndpoint, subresource: &str, said: &Object) -> String {
    let KubeletEndpoint { namespace, pod, container, .. } = endpoint;
    let mut query = Serializer::new(String::new());
    let list = |name: &str| said.get(&[name]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for argument in list("command").iter().filter_map(Value::as_str) {
        query.append_pair("command", argument);
    }
    for (name, parameter) in [("stderr", "error"), ("stdin", "input"), ("stdout", "output")] {
        if is_set(said, name) {
            query.append_pair(parameter, "1");
        }
    }
    let ports: Vec<String> = list("ports").iter().filter_map(Value::as_i64).map(|port| port.to_string()).collect();
    if !ports.is_empty() {
        query.append_pair("port", &ports.join(","));
    }
    if is_set(said, "tty") {
        query.append_pair("tty", "1");
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    match subresource {
        "portforward" => format!("/portForward/{namespace}/{pod}{mark}{query}"),
        session => format!("/{session}/{namespace}/{pod}/{container}{mark}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn session_options_get_the_parameter_names_of_the_kubelet() {
        let endpoint = KubeletEndpoint {
            host: "h".to_owned(),
            port: 1,
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            container: "c".to_owned(),
            takes_websockets: false,
        };
        let check = |subresource: &str, said: Value, expected: &str| {
            let said = Object::from_value(said).unwrap();
            assert_eq!(kubelet_target(&endpoint, subresource, &said), expected);
        };
        let exec = json!({"command": ["sh", "-c", "a & b"], "stdin": true, "stdout": true, "tty": true});
        check("exec", exec, "/exec/n/p/c?command=sh&command=-c&command=a+%26+b&input=1&output=1&tty=1");
        check("attach", json!({"stderr": true}), "/attach/n/p/c?error=1");
        check("portforward", json!({"ports": [80, 81]}), "/portForward/n/p?port=80%2C81");
        check("portforward", json!({}), "/portForward/n/p");
    }
}
