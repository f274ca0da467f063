//! Tests of lists and watches of shards.
//!
//! Objects are divided by the hash of their uid or namespace.

use std::collections::BTreeSet;

use keelson_testkit::{Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const UIDS: &str = "shardRange(object.metadata.uid, ";

/// The two halves of a collection.
fn halves() -> [String; 2] {
    [("0x0000000000000000", "0x8000000000000000"), ("0x8000000000000000", "0x10000000000000000")]
        .map(|(start, end)| format!("{UIDS}'{start}', '{end}')"))
}

fn encoded(selector: &str) -> String {
    selector.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn sharding() -> TestServerBuilder {
    TestServer::builder()
        .configure(|config| drop(config.registry.gates.set(&[("ShardedListAndWatch".to_owned(), true)]).unwrap()))
}

fn names(list: &Value) -> BTreeSet<String> {
    let of = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(of).collect()
}

async fn fill(raw: &Raw) -> BTreeSet<String> {
    for number in 0..20 {
        raw.post(MAPS, &json!({ "metadata": { "name": format!("m{number}") } })).await.expect(201);
    }
    names(&raw.get(MAPS).await.expect(200).json())
}

#[tokio::test]
async fn the_shards_of_a_collection_have_each_object_once() {
    let server = sharding().start().await;
    let raw = server.raw();
    let all = fill(&raw).await;
    let halves = halves();
    let mut parts = Vec::new();
    for half in &halves {
        let list = raw.get(format!("{MAPS}?shardSelector={}", encoded(half))).await.expect(200).json();
        assert_eq!(list["metadata"]["shardInfo"], json!({ "selector": half }));
        parts.push(names(&list));
    }
    assert!(parts.iter().all(|part| !part.is_empty()) && parts[0].is_disjoint(&parts[1]), "{parts:?}");
    assert_eq!(&parts[0] | &parts[1], all);

    // The selector is shown in its usual form. Both halves are everything.
    let both = format!("{}||({})", halves[0].replace(' ', ""), halves[1].replace('\'', "\""));
    let list = raw.get(format!("{MAPS}?shardSelector={}", encoded(&both))).await.expect(200).json();
    assert_eq!(list["metadata"]["shardInfo"], json!({ "selector": halves.join(" || ") }));
    assert_eq!(names(&list), all);

    // A chunked walk finds the objects of the shard. The number of remaining objects is unknown.
    let (mut found, mut token) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("{MAPS}?limit=3&continue={token}&shardSelector={}", encoded(&halves[0]));
        let list = raw.get(path).await.expect(200).json();
        assert!(list["metadata"]["remainingItemCount"].is_null());
        found.append(&mut names(&list));
        match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(found, parts[0]);

    // Tables and metadata state the shard too.
    for form in ["Table", "PartialObjectMetadataList"] {
        let accept = format!("application/json;as={form};g=meta.k8s.io;v=v1");
        let path = format!("{MAPS}?shardSelector={}", encoded(&halves[1]));
        let list = raw.get(path).header("accept", accept).await.expect(200).json();
        assert_eq!(list["metadata"]["shardInfo"], json!({ "selector": halves[1] }), "{form}");
    }

    let by_namespace = halves[0].replace("uid", "namespace");
    let of_namespace = raw.get(format!("{MAPS}?shardSelector={}", encoded(&by_namespace))).await.expect(200).json();
    let other = halves[1].replace("uid", "namespace");
    let other = raw.get(format!("{MAPS}?shardSelector={}", encoded(&other))).await.expect(200).json();
    assert!([names(&of_namespace), names(&other)].contains(&all), "one shard has the whole namespace");

    let wrong = raw.get(format!("{MAPS}?shardSelector={}", encoded("object.metadata.uid"))).await.expect(400).json();
    let expected = "invalid shard selector: unexpected expression; expected shardRange() call or || operator";
    assert_eq!(wrong["message"], expected);
}

#[tokio::test]
async fn a_watch_of_a_shard_has_its_events_alone() {
    let server = sharding().start().await;
    let raw = server.raw();
    let all = fill(&raw).await;
    let first = raw.get(format!("{MAPS}?shardSelector={}", encoded(&halves()[0]))).await.expect(200).json();
    let (own, from) = (names(&first), first["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
    let path = format!("{MAPS}?watch=1&resourceVersion={from}&shardSelector={}", encoded(&halves()[0]));
    let mut events = raw.get(path).stream().await;
    for name in &all {
        raw.delete(format!("{MAPS}/{name}")).await.expect(200);
    }
    let mut seen = BTreeSet::new();
    while seen.len() < own.len() {
        let event = events.next_json().await.unwrap();
        assert_eq!(event["type"], "DELETED");
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(own.contains(&name), "{name} is in the other shard");
        seen.insert(name);
    }
    assert_eq!(seen, own);
}

#[tokio::test]
async fn without_the_gate_a_shard_selector_has_no_effect() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let all = fill(&raw).await;
    for selector in [&*halves()[0], "nonsense"] {
        let list = raw.get(format!("{MAPS}?shardSelector={}", encoded(selector))).await.expect(200).json();
        assert!(list["metadata"]["shardInfo"].is_null());
        assert_eq!(names(&list), all);
    }
}
