//! Sources that fail: restarts, revisions that are compacted, and servers that are away.

use std::time::{Duration, Instant};

use keelson_testkit::TestServer;
use serde_json::json;

use super::lab::{Gateway, create_maps, names, source};

const MAPS: &str = "/api/v1/namespaces/data/configmaps";

/// Stops a server, which keeps its address for the next start.
async fn stop(source: &mut TestServer) {
    let address = source.running().addr();
    source.change(|config| config.bind = address);
    source.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_away_is_served_as_it_was_and_followed_when_it_is_back() {
    let mut source = source().sqlite().start().await;
    create_maps(&source, "data", 3).await;
    let gateway = Gateway::before(&source).await;
    // Rights that were decided before remain known for a time, and the administrator's are in the token.
    let before = gateway.get(MAPS).await.expect(200).json();
    let from = before["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = gateway.get(format!("{MAPS}?watch=1&resourceVersion={from}")).stream().await;
    stop(&mut source).await;
    let begun = Instant::now();
    let stale = gateway.until(MAPS, |answer| !answer.header("keelson-as-of").is_empty()).await.expect(200);
    assert_eq!(names(&stale.json()), ["m0000", "m0001", "m0002"]);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let sorted = gateway.get(format!("{MAPS}?keelson.io/sortBy=-metadata.name&limit=1")).await.expect(200);
    assert_eq!(names(&sorted.json()), ["m0002"]);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    source.restart().await;
    create_maps(&source, "late", 1).await;
    source.raw().post(MAPS, &json!({"metadata": {"name": "new"}})).await.expect(201);
    let event = watch.next_json().await.expect("the watch goes on");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("new")));
    let back = gateway.until(MAPS, |answer| answer.header("keelson-as-of").is_empty()).await.expect(200);
    assert_eq!(names(&back.json()), ["m0000", "m0001", "m0002", "new"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_before_its_source_serves_when_the_source_does() {
    let mut source = source().sqlite().start().await;
    create_maps(&source, "data", 2).await;
    stop(&mut source).await;
    let gateway = Gateway::starting(&source).await;
    assert_eq!(gateway.get(MAPS).await.status, 503);
    source.restart().await;
    let served = gateway.until(MAPS, |answer| answer.status == 200 && !answer.header("keelson-lag").is_empty()).await;
    assert_eq!(names(&served.json()), ["m0000", "m0001"]);
    gateway.stop().await;
}
