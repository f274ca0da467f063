//! Tests of subresources: actions such as a binding or an eviction, and parts of objects that are written separately.
//!
//! Responses are those of kube-apiserver.

mod approval;
mod binding;
mod ephemeral_containers;
mod eviction;
mod remote;
mod resize;
mod reviews;
mod tokens;
mod upsert;

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The namespace of the tests' pods.
const NAMESPACE: &str = "/api/v1/namespaces/lab";

/// A server with a namespace and a service account for pods.
struct Lab {
    server: TestServer,
    raw: Raw,
}

impl Lab {
    async fn start() -> Self {
        Self::on(TestServer::start().await).await
    }

    async fn on(server: TestServer) -> Self {
        let raw = server.raw();
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "lab"}})).await.expect(201);
        let account = raw.post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
        assert!(matches!(account.status, 201 | 409), "{}", account.text());
        Self { server, raw }
    }

    /// Creates a pod with one container with small requests, and the additional fields of `spec`.
    async fn pod(&self, name: &str, spec: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web", "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"},
            }}]},
        });
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        self.raw.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201).json()
    }

    async fn node(&self, name: &str) -> Value {
        let labels = json!({"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "other": "x"});
        self.raw.post("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}})).await.expect(201).json()
    }

    async fn get(&self, path: &str) -> Value {
        self.raw.get(format!("{NAMESPACE}/{path}")).await.expect(200).json()
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.raw.post(format!("{NAMESPACE}/{path}"), &body).await
    }

    /// Writes the status of a pod, as a kubelet would.
    async fn report(&self, pod: &str, status: Value) -> Value {
        let path = format!("{NAMESPACE}/pods/{pod}/status");
        self.raw.patch(path, MERGE, &json!({ "status": status })).await.expect(200).json()
    }
}

/// Checks the code, reason and message of a response.
#[track_caller]
fn check(answer: &Answer, code: u16, reason: &str, message: &str) {
    let status = answer.json();
    assert_eq!(answer.status, code, "{status}");
    assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
    assert_eq!(status["message"].as_str().unwrap_or_default(), message, "{status}");
}

/// Checks the response to a successful action.
#[track_caller]
fn check_done(answer: &Answer) {
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((answer.status, answer.json()), (201, done));
}
