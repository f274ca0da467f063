//! Tests of servers of one store with different settings: each reports the differences in its metrics and its log.
//!
//! The test writes leases for servers of other releases, which have other settings.

use std::sync::Arc;
use std::time::Duration;

use keelson_server::AdmissionPlugins;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::until;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

fn server(store: &MemoryStore, id: &str, data: &TempDir) -> TestServerBuilder {
    TestServer::builder().shared_store(Arc::new(store.clone())).configure(|config| {
        config.server_id = id.to_owned();
        config.data_dir = Some(data.path().to_owned());
    })
}

/// The settings that a server reports as different on another one.
async fn differing(raw: &Raw, other: &str) -> Vec<String> {
    let text = raw.get("/metrics").await.expect(200).text();
    let prefix = format!("keelson_settings_differ{{server_id=\"{other}\",setting=\"");
    let names = text.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.split_once('"')?.0.to_owned()));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_names_the_settings_that_another_has_otherwise() {
    let (store, data) = (MemoryStore::new(), TempDir::new().unwrap());
    let one = server(&store, "one", &data).start().await;
    let two = server(&store, "two", &data).configure(|config| {
        config.history = Duration::from_secs(60);
        config.registry.chunking = false;
        let off = ["ServiceAccount", "PodSecurity"].map(str::to_owned).to_vec();
        config.admission = AdmissionPlugins::new(Vec::new(), off).unwrap();
        config.registry.service_ranges.node_ports = "30000-30100".parse().unwrap();
    });
    let mut two = two.start().await;
    let all = ["admission-plugins", "feature-gates/APIListChunking", "history", "service-node-port-range"];
    let (first, second) = (one.raw(), two.raw());
    until("what differs", async || differing(&first, "two").await == all && differing(&second, "one").await == all)
        .await;
    let published = first.get(format!("{LEASES}/two")).await.expect(200).json();
    let published = published["metadata"]["annotations"]["keelson.io/settings"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&published).unwrap()["history"], "60s");
    two.stop().await;
    until("the other server is gone", async || differing(&first, "two").await.is_empty()).await;

    // A server of a later release has settings that this one does not have, and lacks some.
    let settings = json!({"history": "1s", "coming": "yes"}).to_string();
    let coming = json!({
        "metadata": {
            "name": "coming", "annotations": {"keelson.io/settings": settings},
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {"holderIdentity": "coming_1", "leaseDurationSeconds": 3600},
    });
    first.post(LEASES, &coming).await.expect(201);
    until("what differs", async || differing(&first, "coming").await == ["history"]).await;
}
