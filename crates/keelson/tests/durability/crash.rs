//! Tests of kill -9 at random moments with many writers.
//!
//! Invariant 18: every acknowledged write survives, and none survives partially.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_meta::Random;
use keelson_meta::random::SystemRandom;
use keelson_testkit::ProcessServer;
use serde_json::Value;

use crate::writers::{Knowledge, WriterState, Writers, read};
use crate::{CONFIG_MAPS, CUSTOM_MAPS, define_maps, list, name, revision, start};

const KILLS: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kill_9_with_their_resource_versions() {
    writes_survive(start().await, CONFIG_MAPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_of_custom_resources_survive_kill_9_too() {
    writes_survive(with_maps().await, CUSTOM_MAPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_across_kill_9_from_where_it_was() {
    watch_resumes(start().await, CONFIG_MAPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_custom_resources_misses_nothing_across_kill_9() {
    watch_resumes(with_maps().await, CUSTOM_MAPS).await;
}

/// A server with the custom resource defined.
async fn with_maps() -> ProcessServer {
    let server = start().await;
    define_maps(&server.raw()).await;
    server
}

async fn writes_survive(mut server: ProcessServer, path: &'static str) {
    let seed = SystemRandom.u64();
    let mut known = Knowledge::default();
    for round in 0..KILLS {
        let writers = Writers::start(&server.raw(), path, &known, seed.wrapping_add(round * 1000));
        writers.acknowledged(50 + (SystemRandom.u64() % 150) as usize).await;
        tokio::time::sleep(Duration::from_micros(SystemRandom.u64() % 3000)).await;
        server.kill().await;
        let knowledge = writers.finish().await;
        server.restart().await;
        let found = list(&server.raw(), path, "").await;
        assert!(revision(&found) >= knowledge.newest, "revisions never decrease");
        known = knowledge.check(&found);
    }
    assert!(!known.acknowledged.is_empty());
}

/// History survives the crash: a client with a list resumes its watch without a gap. Changes from before the server
/// served a custom resource may be missing in a watch, which then fails; a list has them.
async fn watch_resumes(mut server: ProcessServer, path: &'static str) {
    let writers = Writers::start(&server.raw(), path, &Knowledge::default(), 5);
    writers.acknowledged(60).await;
    let before = list(&server.raw(), path, "").await;
    writers.acknowledged(160).await;
    server.kill().await;
    writers.finish().await;
    server.restart().await;

    let raw = server.raw();
    let after = list(&raw, path, "").await;
    let query = format!("watch=1&resourceVersion={}&timeoutSeconds=1", revision(&before));
    let mut watch = raw.get(format!("{path}?{query}")).stream().await;
    let mut copy = read(&before);
    let mut last = revision(&before);
    while let Some(event) = watch.next_json().await {
        let object = &event["object"];
        if path == CUSTOM_MAPS && event["type"] == "ERROR" && copy == read(&before) {
            assert_eq!(object["reason"], "Expired", "{event}");
            copy = read(&after);
            break;
        }
        assert!(revision(object) > last, "events come in order");
        last = revision(object);
        apply(&mut copy, event["type"].as_str().unwrap(), object);
    }
    assert_eq!(copy, read(&after));
    let exact = list(&raw, path, &format!("resourceVersion={}&resourceVersionMatch=Exact", revision(&before))).await;
    assert_eq!(exact, before, "the past is as it was");
}

fn apply(copy: &mut BTreeMap<String, WriterState>, kind: &str, object: &Value) {
    let number = object["data"]["number"].as_str().unwrap().parse().unwrap();
    let written = WriterState { revision: Some(revision(object)), number };
    let known = match kind {
        "DELETED" => copy.remove(name(object)),
        "ADDED" | "MODIFIED" => copy.insert(name(object).to_owned(), written),
        other => panic!("{other}: {object}"),
    };
    assert_eq!(known.is_some(), kind != "ADDED", "{kind} {}", name(object));
}
