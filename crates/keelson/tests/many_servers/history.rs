//! Tests of a server's history, and of the faults in its cache that it detects.
//!
//! Other servers write meanwhile, so its cache can fall behind or miss an event.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::StoreKey;
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Raw, TestServer};

use crate::cluster::{Cluster, fill};
use crate::engines::Engine;
use crate::{CONFIG_MAPS, STORED, config_map, items, revision, until};

/// The value of a metric without labels.
async fn metric(raw: &Raw, name: &str) -> f64 {
    let text = raw.get("/metrics").await.expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("there is no metric {name}")).parse().unwrap()
}

/// A list at a revision that only the store has is streamed from the store. A later failure cuts the response, so that
/// no client considers it complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_from_the_store_that_fails_midway_is_aborted() {
    let store = MemoryStore::new();
    fill(&store, 6000).await;
    let way = FaultyStore::new(Arc::new(store));
    let server = TestServer::builder()
        .shared_store(Arc::new(way.clone()))
        .configure(|config| config.history_bytes = 0)
        .start()
        .await;
    let raw = server.raw();
    let then = revision(&raw.get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json());
    for number in 0..200 {
        raw.patch(
            format!("{CONFIG_MAPS}/00-object-00000"),
            "application/merge-patch+json",
            &config_map("00-object-00000", number),
        )
        .await
        .expect(200);
    }
    let past = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let whole = raw.get(&past).await.expect(200);
    assert_eq!(items(&whole.json()).len(), 6000);
    assert!(metric(&raw, "keelson_lists_from_store_total").await > 0.0, "the cache has forgotten {then}");
    for (raw, encoding) in [(raw.clone(), "identity"), (raw.clone(), "gzip"), (raw.http2(), "identity")] {
        way.set_calls(Fault::Slow(Duration::from_millis(100)));
        let mut stream = raw.get(&past).header("accept-encoding", encoding).stream().await;
        assert_eq!(stream.status, 200, "the first page is there");
        way.set_calls(Fault::Error);
        let mut bytes = 0;
        let end = loop {
            match stream.next_chunk().await {
                Ok(Some(chunk)) => bytes += chunk.len(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(end.is_err() && bytes < whole.body.len(), "{encoding}: {bytes} bytes and a clean end");
        let refused = raw.get(&past).await.expect(503).json();
        assert_eq!(refused["reason"], "ServiceUnavailable");
        way.set_calls(Fault::None);
    }
}

/// One server misses an event. It detects this, reloads, reports it, and makes its watches list again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_missed_an_event_finds_out_and_mends_itself() {
    let store = MemoryStore::new();
    let way = FaultyStore::new(Arc::new(store.clone()));
    let server = TestServer::builder()
        .shared_store(Arc::new(way.clone()))
        .configure(|config| config.cache_check_interval = Some(Duration::from_secs(1)))
        .start()
        .await;
    let raw = server.raw();
    let before = raw.post(CONFIG_MAPS, &config_map("before", 0)).await.expect(201).json();
    let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&before))).stream().await;
    way.swallow(StoreKey::new(format!("{STORED}lost")));
    raw.post(CONFIG_MAPS, &config_map("lost", 0)).await.expect(201);
    until("the repair", || async { raw.get(format!("{CONFIG_MAPS}/lost")).await.status == 200 }).await;
    assert!(metric(&raw, "keelson_cache_repairs_total").await >= 1.0);
    assert!(metric(&raw, "keelson_cache_checks_total").await >= 1.0);
    let mut told = watch.next_json().await.unwrap();
    while told["type"] != "ERROR" {
        assert_ne!(told["object"]["metadata"]["name"], "lost");
        told = watch.next_json().await.unwrap();
    }
    assert_eq!(told["object"]["code"], 410);
    raw.get("/readyz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_report_cache_lag_and_revision_requests() {
    let cluster = Cluster::start(Engine::memory()).await;
    let (slow, raw) = (&cluster.servers[0].way, cluster.raw(0));
    let asked = metric(&raw, "keelson_store_revision_requests_total").await;
    raw.get(CONFIG_MAPS).await.expect(200);
    assert!(metric(&raw, "keelson_store_revision_requests_total").await > asked);
    slow.set_tails(Fault::Hang);
    cluster.raw(1).post(CONFIG_MAPS, &config_map("new", 0)).await.expect(201);
    raw.get(CONFIG_MAPS).await.expect(503);
    assert!(metric(&raw, "keelson_cache_lag_revisions").await >= 1.0);
    let restarts = metric(&raw, "keelson_cache_tail_restarts_total").await;
    slow.set_tails(Fault::Error);
    until("a restart", || async { metric(&raw, "keelson_cache_tail_restarts_total").await > restarts }).await;
    slow.set_tails(Fault::None);
    until("fresh reads", || async { raw.get(CONFIG_MAPS).await.status == 200 }).await;
    // Many concurrent reads share the slow requests for the newest revision.
    slow.set_calls(Fault::Slow(Duration::from_millis(200)));
    let reads = (0..20).map(|_| {
        let raw = raw.clone();
        async move { raw.get(CONFIG_MAPS).await.expect(200) }
    });
    futures::future::join_all(reads).await;
    assert!(metric(&raw, "keelson_store_revision_requests_shared_total").await >= 10.0);
}
