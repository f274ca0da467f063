//! Tests of admission by webhooks and policies: the writes for which each is called, their order, and the effect of
//! their responses.
//!
//! Texts and codes are recorded from kube-apiserver.

mod acts;
mod answers;
mod constraints;
mod credentials;
mod custom_kinds;
mod excess;
mod manifests;
mod order;
mod parameters;
mod policies;
mod process;
mod type_checking;
mod unwritten;
mod webhooks;

use std::sync::{Arc, Mutex};

use std::time::Duration;

use keelson_testkit::{Answer, DEFINITIONS, HookReply, HookRequest, HookServer, Raw, TestServer};
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
pub(crate) const MAPS: &str = "/api/v1/namespaces/hooked/configmaps";
pub(crate) const MERGE: &str = "application/merge-patch+json";

/// A server with a webhook.
pub(crate) struct WebhookServer {
    pub(crate) raw: Raw,
    pub(crate) hook: HookServer,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
    /// Stops when dropped.
    server: TestServer,
}

impl WebhookServer {
    /// Starts a server with the namespace `hooked`, and a webhook whose response depends on its path.
    pub(crate) async fn open(answer: fn(&HookRequest) -> HookReply) -> Self {
        let calls: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let noted = calls.clone();
        let hook = HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
            noted.lock().unwrap().push((request.path.clone(), request.body["request"].clone()));
            let reply = answer(&request);
            async move { reply }
        })
        .await;
        let server = TestServer::start().await;
        let raw = server.raw();
        let namespace = json!({ "metadata": { "name": "hooked", "labels": { "hooks": "on" } } });
        raw.post("/api/v1/namespaces", &namespace).await.expect(201);
        Self { raw, hook, calls, server }
    }

    /// Another client.
    pub(crate) fn client(&self) -> Raw {
        self.server.raw()
    }

    /// The requests to the webhook since the last call: the path without the query, and the request of the review.
    /// Writes of the server's own controllers are omitted.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        let is_ours = |request: &Value| !request["userInfo"]["username"].as_str().unwrap().starts_with("system:");
        let calls = calls.into_iter().filter(|(_, request)| is_ours(request));
        calls.map(|(path, request)| (path.split('?').next().unwrap().to_owned(), request)).collect()
    }

    /// The paths of these requests.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|(path, _)| path).collect()
    }

    /// A webhook with this name for ConfigMaps in the namespace. It is called at a path with its name.
    pub(crate) fn webhook(&self, name: &str, with: Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": self.hook.url(&format!("/{name}")), "caBundle": self.hook.ca_bundle() },
            "rules": [{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
            "namespaceSelector": { "matchLabels": { "hooks": "on" } },
        });
        let Value::Object(with) = with else { panic!("no fields: {with}") };
        for (field, value) in with {
            webhook[field] = value;
        }
        webhook
    }

    /// Configures webhooks of a kind (`mutating`, `validating`), and waits until they take effect.
    pub(crate) async fn configure(&self, kind: &str, name: &str, webhooks: Vec<Value>) {
        let configuration = json!({ "metadata": { "name": name }, "webhooks": webhooks });
        self.raw.post(format!("{GROUP}/{kind}webhookconfigurations"), &configuration).await.expect(201);
    }

    /// Deletes a configuration.
    pub(crate) async fn forget(&self, kind: &str, name: &str) {
        self.raw.delete(format!("{GROUP}/{kind}webhookconfigurations/{name}")).await.expect(200);
    }
}

/// A review with this response.
pub(crate) fn review(request: &HookRequest, response: Value) -> HookReply {
    let mut response = response;
    if response["uid"].is_null() {
        response["uid"] = request.body["request"]["uid"].clone();
    }
    let mut review = json!({ "apiVersion": request.body["apiVersion"], "kind": "AdmissionReview" });
    review["response"] = response;
    HookReply::Json(review)
}

pub(crate) fn allowed(request: &HookRequest) -> HookReply {
    review(request, json!({ "allowed": true }))
}

/// A review whose response is a patch.
pub(crate) fn patched(request: &HookRequest, patch: &Value) -> HookReply {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    review(request, json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch }))
}

/// The warnings of a response, in order.
pub(crate) fn warnings(answer: &Answer) -> Vec<String> {
    answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// Creates a definition of custom resources, and waits until they are served.
pub(crate) async fn define(raw: &Raw, definition: &Value) {
    raw.post(DEFINITIONS, definition).await.expect(201);
    let name = definition["metadata"]["name"].as_str().unwrap();
    let is_established = async || {
        let found = raw.get(format!("{DEFINITIONS}/{name}")).await.expect(200).json();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    let established = async {
        while !is_established().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), established).await.expect("it is established");
}

/// A ConfigMap with this name.
pub(crate) fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { "a": "b" } })
}
