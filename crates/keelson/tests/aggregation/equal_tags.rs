//! Tags of the document on several servers: equal as long as they show the same, an aggregated server's part included, also on one
//! that has just started.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Raw, TestServer};
use serde_json::json;
use tempfile::TempDir;

use super::backend::{Backend, resource};
use super::discovery::tag;
use super::{AGGREGATED, until_of};

/// Waits until all servers have this document under one tag, and returns that.
async fn one_tag(servers: &[Raw], freshness: &str) -> String {
    for raw in servers {
        until_of(raw, "/apis", AGGREGATED, |found| {
            let items = found["items"].as_array().cloned().unwrap_or_default();
            let shown = items.into_iter().find(|item| item["metadata"]["name"] == "rail.example.org");
            shown.is_some_and(|shown| shown["versions"][0]["freshness"] == freshness)
        })
        .await;
    }
    let wait = async {
        loop {
            let mut tags = Vec::new();
            for raw in servers {
                tags.push(tag(raw).await);
            }
            if tags.windows(2).all(|two| two[0] == two[1]) {
                break tags.remove(0);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("the tags stay different")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_store_name_the_document_alike_also_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let certificates = TempDir::new().unwrap();
    let start = async |name: &str| {
        let builder = TestServer::builder().shared_store(store.clone()).configure(|config| {
            config.data_dir = Some(certificates.path().to_owned());
            config.server_id = name.to_owned();
        });
        builder.start().await
    };
    let (first, mut second) = (start("server-a").await, start("server-b").await);
    let backend = Backend::start(&first.raw(), "rails").await;
    backend.serve(&[("rail.example.org", "v1", json!([resource("trains", "Train"), resource("cars", "Car")]))]);
    backend.register(&first.raw(), "rail.example.org", "v1").await;
    let current = one_tag(&[first.raw(), second.raw()], "Current").await;
    second.stop().await;
    drop(second);
    let third = start("server-b").await;
    assert_eq!(one_tag(&[first.raw(), third.raw()], "Current").await, current);
}
