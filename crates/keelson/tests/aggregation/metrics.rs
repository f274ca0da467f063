//! Tests of the metrics of aggregation: the number of times that the document was built, and the unavailable
//! APIServices with their reasons.
//!
//! Names and labels are kube-apiserver's where it has them, for existing dashboards.

use keelson_testkit::{DEFINITIONS, Raw, TestServer, definition, definition_version};
use serde_json::json;

use super::{AGGREGATED, SERVICES, api_service, until, until_reason};

/// The value of a sample; `None` if it is missing.
async fn sample(raw: &Raw, name: &str) -> Option<f64> {
    let text = raw.get("/metrics").await.expect(200).text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

async fn ask(raw: &Raw) {
    raw.get("/apis").header("accept", AGGREGATED).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrequested_changes_build_no_document() {
    let server = TestServer::start().await;
    let raw = server.raw();
    ask(&raw).await;
    let count = async || sample(&raw, "aggregator_discovery_aggregation_count_total").await.unwrap();
    let before = count().await;
    for _ in 0..5 {
        ask(&raw).await;
    }
    assert_eq!(count().await, before, "nothing has changed");
    for number in 0..3 {
        let (kind, plural) = (format!("Thing{number}"), format!("thing{number}s"));
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
        });
        let definition = json!({
            "metadata": { "name": format!("{plural}.burst.example.org") },
            "spec": {
                "group": "burst.example.org", "scope": "Cluster", "names": { "plural": plural, "kind": kind },
                "versions": [version],
            },
        });
        raw.post(DEFINITIONS, &definition).await.expect(201);
        until(&raw, &format!("/apis/burst.example.org/v1/{plural}"), |found| found["items"].is_array()).await;
    }
    assert_eq!(count().await, before, "nobody has asked");
    ask(&raw).await;
    assert_eq!(count().await, before + 1.0);
    assert_eq!(sample(&raw, "aggregator_discovery_aggregation_duration_count").await, Some(before + 1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_build_the_document_once_per_change() {
    let server = TestServer::start().await;
    let raw = server.raw();
    ask(&raw).await;
    let count = async || sample(&raw, "aggregator_discovery_aggregation_count_total").await.unwrap();
    let before = count().await;
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let raw = server.raw();
            tokio::spawn(async move {
                let mut tags = Vec::new();
                loop {
                    let answer = raw.get("/apis").header("accept", AGGREGATED).await.expect(200);
                    let tag = answer.header("etag").to_owned();
                    if tags.last() != Some(&tag) {
                        tags.push(tag);
                    }
                    if answer.text().contains("burst9.example.org") {
                        break tags;
                    }
                }
            })
        })
        .collect();
    for number in 0..10 {
        let version = definition_version("v1", true, json!({ "type": "object" }));
        let group = format!("burst{number}.example.org");
        raw.post(DEFINITIONS, &definition(&group, "things", "Thing", vec![version])).await.expect(201);
        until(&raw, &format!("/apis/{group}/v1/things"), |found| found["items"].is_array()).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    for asker in askers {
        seen.extend(asker.await.unwrap());
    }
    // A definition is served before its APIService sets the order of its group. So each causes at most two changes.
    let made = count().await - before;
    assert!(made <= 20.0 && seen.len() as f64 <= made + 1.0, "{made} times, {} documents seen", seen.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_servers_are_counted_by_name_and_reason() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let gauge = "aggregator_unavailable_apiservice{name=\"v1.lost.example.org\"}";
    let total = "aggregator_unavailable_apiservice_total{name=\"v1.lost.example.org\",reason=\"ServiceNotFound\"}";
    let registered = json!({
        "metadata": { "name": "v1.lost.example.org" },
        "spec": { "group": "lost.example.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15 },
    });
    raw.post(SERVICES, &registered).await.expect(201);
    until_reason(&raw, "v1.lost.example.org", "Local").await;
    assert_eq!((sample(&raw, gauge).await, sample(&raw, total).await), (Some(0.0), None));
    let away = api_service("lost.example.org", "v1", &json!({ "namespace": "default", "name": "none", "port": 443 }));
    let path = format!("{SERVICES}/v1.lost.example.org");
    raw.patch(&path, super::MERGE, &json!({ "spec": away["spec"] })).await.expect(200);
    until_reason(&raw, "v1.lost.example.org", "ServiceNotFound").await;
    let told = async {
        while sample(&raw, gauge).await != Some(1.0) || sample(&raw, total).await != Some(1.0) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, told).await.expect("nobody is told of it");
    raw.delete(&path).await.expect(200);
    let forgotten = async {
        while sample(&raw, gauge).await.is_some() || sample(&raw, total).await.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, forgotten).await.expect("it is told of for ever");
}
