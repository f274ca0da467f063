//! Tests of the document's tags on several servers: equal documents have equal tags, including the part of an
//! aggregated server, and also on a server that has just started.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{DEFINITIONS, RECORDED_RELEASE, Raw, TestServer, definition, definition_version};
use serde_json::json;
use tempfile::TempDir;

use super::backend::{Backend, resource};
use super::discovery::tag;
use super::{AGGREGATED, until_of};

/// Waits until all servers have this document with the same tag, and returns the tag.
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
    let version = definition_version("v1", true, json!({ "type": "object" }));
    let boats = definition("water.example.org", "boats", "Boat", vec![version]);
    first.raw().post(DEFINITIONS, &boats).await.expect(201);
    for server in [&first, &second] {
        until_of(&server.raw(), "/apis", AGGREGATED, |found| found.to_string().contains(r#""boats""#)).await;
    }
    backend.register(&first.raw(), "rail.example.org", "v1").await;
    let current = one_tag(&[first.raw(), second.raw()], "Current").await;
    second.stop().await;
    drop(second);
    let third = start("server-b").await;
    assert_eq!(one_tag(&[first.raw(), third.raw()], "Current").await, current);
}

/// The tags are those of kube-apiserver 1.36.2: for all versions, for the stable versions, and for the stable versions
/// with the migrations. This server serves the last selection by default.
#[tokio::test]
async fn discovery_of_a_new_server_equals_the_reference() {
    const EVERYTHING: &str = "08EEDE608C37C5B62CDFF173759E7FD7763FC82EFB2559C950CD53367502ED9E39BB181617865A41BA109C77D3063DE121E32C7CE4037ACAFCDFBE4044514B42";
    const STABLE: &str = "A74552DF419C4697E3A22F67B8FE55FD8F2CC33F6134FF206B16341598294CDE9896C7F67B2819217E6BB70E74F97FCC864DDFCDB02FDA565699CC7D6E3CC377";
    const WITH_MIGRATIONS: &str = "4EC964C536283586300027B0AD09394AC1D7F739278CCFA4EB0DDEBD4F7FE911797A318F72C613E2B61DAAE83418D3A999A6C4476AEFB80772A81467830CA5D7";
    let everything = TestServer::builder().recorded().every_version().start().await;
    assert_eq!(tag(&everything.raw()).await, format!("\"{EVERYTHING}\""));
    for (settings, tag_there) in [(&[][..], WITH_MIGRATIONS), (&["storagemigration.k8s.io/v1beta1=false"], STABLE)] {
        let configure = |config: &mut keelson_server::Config| {
            config.registry.serve(keelson_builtin::catalogue_of(RECORDED_RELEASE), settings).unwrap();
            config.registry.storage_version_api = false;
        };
        let server = TestServer::builder().recorded().configure(configure).start().await;
        assert_eq!(tag(&server.raw()).await, format!("\"{tag_there}\""), "{settings:?}");
    }
}
