//! Tests of requests that kubelets, pods and services answer: logs, sessions and proxied requests, both plain requests
//! and kubectl.
//!
//! The kubelet is a double of the test kit. The names of pods select its behaviour.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod addresses;
mod egress;
mod kubectl;
mod logs;
mod proxied;
mod sessions;

use std::path::Path;
use std::time::Duration;

use keelson_server::Config;
use keelson_testkit::{Answer, KubeletDouble, Raw, TestServer};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The namespace of the tests.
const NAMESPACE: &str = "/api/v1/namespaces/lab";
const MERGE: &str = "application/merge-patch+json";
/// The longest wait, for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and a node `n` with its kubelet.
struct Lab {
    server: TestServer,
    raw: Raw,
    kubelet: KubeletDouble,
}

impl Lab {
    async fn start() -> Self {
        Self::with(KubeletDouble::start().await, |_, _| {}).await
    }

    /// Starts a server with these settings. The directory is for files to which they refer.
    async fn with(kubelet: KubeletDouble, change: impl FnOnce(&mut Config, &Path)) -> Self {
        let builder = TestServer::builder();
        let directory = builder.data_dir().to_path_buf();
        let server = builder.configure(|config| change(config, &directory)).start().await;
        let raw = server.raw();
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "lab"}})).await.expect(201);
        raw.post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
        let lab = Self { server, raw, kubelet };
        lab.node("n", lab.kubelet.node_status()).await;
        lab
    }

    /// Creates a node with this status.
    async fn node(&self, name: &str, status: Value) {
        self.raw.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.expect(201);
        self.raw.patch(format!("/api/v1/nodes/{name}/status"), MERGE, &json!({ "status": status })).await.expect(200);
    }

    /// Creates a pod with one container on a node.
    async fn pod(&self, name: &str, node: &str) {
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "web"}]});
        let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec});
        self.raw.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201);
    }

    /// Sets the address in a pod's status.
    async fn pod_address(&self, name: &str, address: &str) {
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        self.raw.patch(format!("{NAMESPACE}/pods/{name}/status"), MERGE, &status).await.expect(200);
    }

    /// Grants a user these verbs on subresources of the core group, with a role and a binding.
    async fn allow(&self, user: &str, resources: &[&str], verbs: &[&str]) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": verbs}]);
        self.raw
            .post(format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": user}, "rules": rules}))
            .await
            .expect(201);
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        self.raw.post(format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    }

    /// Starts requests for the log of the pod `silent`, and waits until the kubelet has all of them. It answers none.
    async fn hang(&self, count: usize) -> Vec<JoinHandle<anyhow::Result<Answer>>> {
        let path = format!("{NAMESPACE}/pods/silent/log");
        let mut waiting = Vec::new();
        for _ in 0..count {
            let call = self.raw.clone().get(path.clone());
            waiting.push(tokio::spawn(async move { call.try_send().await }));
        }
        while self.kubelet.open_connections() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        waiting
    }

    /// Waits until the kubelet has no open connections.
    async fn without_connections(&self) {
        let ended = async {
            while self.kubelet.open_connections() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("connections to the kubelet end");
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
