//! Tests of objects with lists of thousands of items.
//!
//! The server must walk each list once, not once for each item.

use std::time::{Duration, Instant};

use keelson_testkit::TestServer;
use serde_json::{Value, json};

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_of_one_object_take_no_time_of_their_square() {
    let server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = raw.post(maps, &named("owner")).await.expect(201).json();
    let begun = Instant::now();
    let reference = |number: usize| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": format!("n{number}"), "uid": format!("u-{number}") });
    let mut references: Vec<_> = (0..12_000).map(reference).collect();
    references
        .push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }));
    let dependent = json!({ "metadata": { "name": "dependent", "ownerReferences": references } });
    raw.post(maps, &dependent).await.expect(201);
    let ports: Vec<_> = (1..=12_000).map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
    let service = json!({ "metadata": { "name": "wide" }, "spec": { "type": "NodePort", "ports": ports } });
    let refused = raw.post("/api/v1/namespaces/default/services", &service).await.expect(500).json();
    assert!(refused["message"].as_str().unwrap().contains("range is full"), "{refused}");
    let left = async || {
        let found = raw.get(format!("{maps}/dependent")).await.expect(200).json();
        found["metadata"]["ownerReferences"].as_array().unwrap().len()
    };
    while left().await != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "references of owners that are gone are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
