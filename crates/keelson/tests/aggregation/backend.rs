//! An aggregated server in the test: it answers each path as the test sets, and records its requests.
//!
//! The backend implements HTTP without a library, so it can also violate the protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use keelson_testkit::{HookReply, HookRequest, HookServer, Raw};
use serde_json::{Value, json};

use super::{AGGREGATED, SERVICES, api_service};

/// An aggregated server.
pub(crate) struct Backend {
    pub(crate) hook: HookServer,
    name: String,
    replies: Arc<Mutex<HashMap<String, HookReply>>>,
    asked: Arc<Mutex<Vec<HookRequest>>>,
}

impl Backend {
    /// Starts a server for a service of this name in the namespace `default`. It answers every path with 404.
    pub(crate) async fn start(raw: &Raw, name: &str) -> Self {
        let (replies, asked) = (Arc::<Mutex<HashMap<String, HookReply>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let answer = {
            let (replies, asked) = (replies.clone(), asked.clone());
            move |request: HookRequest| {
                let path = request.path.split('?').next().unwrap_or_default().to_owned();
                asked.lock().unwrap().push(request);
                let missing = HookReply::Other(404, vec![("content-type", "text/plain".to_owned())], "none".to_owned());
                std::future::ready(replies.lock().unwrap().get(&path).cloned().unwrap_or(missing))
            }
        };
        let hook = HookServer::start(&[&format!("{name}.default.svc")], answer).await;
        let spec = json!({ "type": "ExternalName", "externalName": "localhost" });
        let service = json!({ "metadata": { "name": name }, "spec": spec });
        raw.post("/api/v1/namespaces/default/services", &service).await.expect(201);
        Self { hook, name: name.to_owned(), replies, asked }
    }

    /// Sets the response for a path.
    pub(crate) fn answer(&self, path: &str, reply: HookReply) {
        self.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// Sets discovery responses with these group versions, each with these resources.
    pub(crate) fn serve(&self, versions: &[(&str, &str, Value)]) {
        let items = versions.iter().map(|(group, version, resources)| {
            self.answer(&format!("/apis/{group}/{version}"), HookReply::Json(json!({ "kind": "APIResourceList" })));
            let version = json!({ "version": version, "resources": resources, "freshness": "Current" });
            json!({ "metadata": { "name": group }, "versions": [version] })
        });
        self.answer("/apis", aggregated(AGGREGATED, &json!(items.collect::<Vec<_>>())));
    }

    /// The APIService of a version that this server serves.
    pub(crate) fn api_service(&self, group: &str, version: &str) -> Value {
        let service = json!({ "namespace": "default", "name": self.name, "port": self.hook.addr().port() });
        let mut registered = api_service(group, version, &service);
        registered["spec"]["caBundle"] = json!(self.hook.ca_bundle());
        registered
    }

    /// Registers a version that this server serves.
    pub(crate) async fn register(&self, raw: &Raw, group: &str, version: &str) {
        raw.post(SERVICES, &self.api_service(group, version)).await.expect(201);
    }

    /// Returns true if the path of a request contained this text.
    pub(crate) fn was_asked(&self, part: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|request| request.path.contains(part))
    }

    /// The requests so far for a path.
    pub(crate) fn asked(&self, path: &str) -> Vec<HookRequest> {
        self.asked.lock().unwrap().iter().filter(|request| request.path == path).cloned().collect()
    }
}

/// A discovery document of this media type with these groups.
pub(crate) fn aggregated(media_type: &str, items: &Value) -> HookReply {
    let version = if media_type.contains("v2beta1") { "v2beta1" } else { "v2" };
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let headers = vec![("content-type", media_type.to_owned()), ("etag", format!("\"{}\"", items.to_string().len()))];
    HookReply::Other(200, headers, document.to_string())
}

/// A namespaced resource with the verbs for reads, in a discovery document.
pub(crate) fn resource(plural: &str, kind: &str) -> Value {
    json!({
        "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind }, "scope": "Namespaced",
        "singularResource": kind.to_lowercase(), "verbs": ["get", "list"],
    })
}
