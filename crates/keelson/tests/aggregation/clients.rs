//! Tests of discovery by clients, with resources of all three sources: built-in, definitions, and aggregated servers.
//!
//! Clients need two requests only, get the same result in the old and the new form, and get 304 if their copy is
//! current.

use std::collections::BTreeSet;
use std::path::Path;

use keelson_testkit::{
    DEFINITIONS, Endpoint, HookReply, KubectlOutput, Raw, TestServer, definition_version, other_kubectls,
};
use kube::discovery::{Discovery, Scope};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::backend::{Backend, resource};
use super::discovery::tag;
use super::{AGGREGATED, MERGE, SERVICES, until_of};

/// A server with a resource of each source: `boats` from a definition, and `trains` from an aggregated server.
async fn served() -> (TestServer, Backend) {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "rails").await;
    backend.serve(&[("rail.example.org", "v1", json!([resource("trains", "Train")]))]);
    let trains = json!({ "name": "trains", "singularName": "train", "namespaced": true, "kind": "Train", "verbs": ["get", "list"] });
    let older = json!({ "kind": "APIResourceList", "groupVersion": "rail.example.org/v1", "resources": [trains] });
    backend.answer("/apis/rail.example.org/v1", HookReply::Json(older));
    let express = json!({ "apiVersion": "rail.example.org/v1", "kind": "Train", "metadata": { "name": "express" } });
    let list = json!({ "apiVersion": "rail.example.org/v1", "kind": "TrainList", "metadata": {}, "items": [express] });
    backend.answer("/apis/rail.example.org/v1/namespaces/default/trains", HookReply::Json(list));
    backend.register(&raw, "rail.example.org", "v1").await;
    raw.post(DEFINITIONS, &definition("boats", "Boat")).await.expect(201);
    until_of(&raw, "/apis", AGGREGATED, |found| {
        let text = found.to_string();
        text.contains(r#""trains""#) && text.contains(r#""boats""#) && !text.contains(r#""Stale""#)
    })
    .await;
    (server, backend)
}

fn definition(plural: &str, kind: &str) -> Value {
    let version = definition_version("v1", true, json!({ "type": "object" }));
    keelson_testkit::definition("water.example.org", plural, kind, vec![version])
}

/// The paths of kubectl's discovery requests in its log, without queries.
fn discovery_paths(log: &str) -> Vec<&str> {
    let addresses = log.lines().filter_map(|line| line.split_once("https://")).map(|(_, rest)| rest);
    let paths = addresses.filter_map(|rest| rest.split_once('/')).map(|(_, path)| path);
    let ends = |last: char| matches!(last, '?' | '"' | ' ');
    paths.map(|path| path.split(ends).next().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_knows_all_sources_after_two_requests() {
    let (server, _backend) = served().await;
    let endpoint: &Endpoint = &server;
    check_all_sources(endpoint.kubectl(["api-resources", "-v=6"]).await);
    assert!(endpoint.kubectl(["get", "trains"]).await.ok().contains("express"));
    assert_eq!(endpoint.kubectl(["get", "boats", "-o", "name"]).await.ok(), "");
}

/// Checks that kubectl shows all resources after two requests.
fn check_all_sources(found: KubectlOutput) {
    let log = found.stderr.clone();
    let resources = found.ok();
    for line in [
        "boats water.example.org/v1 true Boat",
        "trains rail.example.org/v1 true Train",
        "deployments deploy apps/v1 true Deployment",
    ] {
        assert!(is_listed(&resources, line), "{line} is not in {resources}");
    }
    let asked = discovery_paths(&log);
    assert_eq!(asked.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"api", &"apis"]), "{log}");
    assert_eq!(asked.len(), 2, "{log}");
}

/// Returns true if a row of a table has exactly these words.
fn is_listed(table: &str, row: &str) -> bool {
    table.lines().any(|found| found.split_whitespace().eq(row.split(' ')))
}

/// The number of 304 responses so far.
async fn told_unchanged(raw: &Raw) -> u64 {
    let metrics = raw.get("/metrics").await.expect(200).text();
    let of_no_resource =
        |line: &&str| line.starts_with("apiserver_request_total{verb=\"GET\"") && line.contains("resource=\"\"");
    let found = metrics.lines().filter(of_no_resource).find(|line| line.contains("code=\"304\""));
    found.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
}

/// Checks a release of kubectl, from its first command with an empty cache to commands with a full one.
async fn check_release(server: &TestServer, program: &Path) {
    let (endpoint, raw): (&Endpoint, Raw) = (server, server.raw());
    let cache = TempDir::new().unwrap();
    let kubectl = |line: &str| endpoint.kubectl_of(program, cache.path(), line.split(' '));
    check_all_sources(kubectl("api-resources -v=6").await);

    // kubectl requests no documents that it has cached.
    let got = kubectl("get trains -v=6").await;
    assert_eq!(discovery_paths(&got.stderr), ["apis/rail.example.org/v1/namespaces/default/trains"], "{}", got.stderr);
    assert!(got.ok().contains("express"));
    let boat = json!({ "apiVersion": "water.example.org/v1", "kind": "Boat", "metadata": { "name": "tug" } });
    kubectl("apply -f -").stdin(boat.to_string()).await.ok();
    assert!(is_listed(&kubectl("get boats --no-headers -o custom-columns=N:.metadata.name").await.ok(), "tug"));
    assert!(kubectl("explain boats").await.ok().contains("Boat"));
    kubectl("delete boat tug").await.ok();

    // A refresh gets 304. After a change it gets the new document.
    let before = told_unchanged(&raw).await;
    check_all_sources(kubectl("api-resources -v=6").await);
    assert_eq!(told_unchanged(&raw).await, before + 2);
    raw.post(DEFINITIONS, &definition("ferries", "Ferry")).await.expect(201);
    until_of(&raw, "/apis", AGGREGATED, |found| found.to_string().contains(r#""ferries""#)).await;
    let resources = kubectl("api-resources").await.ok();
    assert!(is_listed(&resources, "ferries water.example.org/v1 true Ferry"), "{resources}");
    assert_eq!(told_unchanged(&raw).await, before + 3, "the core group alone has not changed");
    raw.delete(format!("{DEFINITIONS}/ferries.water.example.org")).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| !found.to_string().contains(r#""ferries""#)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_releases_cache_discovery_and_fetch_only_changes() {
    let (server, _backend) = served().await;
    for program in other_kubectls() {
        check_release(&server, &program).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_discovery_forms_give_the_same_rest_mapping() {
    let (server, _backend) = served().await;
    let new = Discovery::new(server.client()).run_aggregated().await.unwrap();
    let old = Discovery::new(server.client()).run().await.unwrap();
    let (new, old) = (mapping(&new), mapping(&old));
    assert_eq!(new, old);
    let has = |line: &str| new.contains(line);
    assert!(has("water.example.org/v1 Boat boats in namespaces"), "{new:?}");
    assert!(has("rail.example.org/v1 Train trains in namespaces"), "{new:?}");
    assert!(has("v1 Node nodes") && has("apiregistration.k8s.io/v1 APIService apiservices"), "{new:?}");
}

/// The paths of the objects of each kind, by group and version.
fn mapping(discovery: &Discovery) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for group in discovery.groups() {
        for version in group.versions() {
            for (resource, capabilities) in group.versioned_resources(version) {
                let scope = if capabilities.scope == Scope::Namespaced { " in namespaces" } else { "" };
                found.insert(format!("{} {} {}{scope}", resource.api_version, resource.kind, resource.plural));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_with_an_etag_is_sent_only_after_changes() {
    let (server, backend) = served().await;
    let raw = server.raw();
    let first = tag(&raw).await;
    assert_unchanged(&raw, &first).await;

    raw.post(DEFINITIONS, &definition("ferries", "Ferry")).await.expect(201);
    until_of(&raw, "/apis", AGGREGATED, |found| found.to_string().contains(r#""ferries""#)).await;
    let second = tag(&raw).await;
    assert_ne!(second, first);
    raw.get("/apis").header("accept", AGGREGATED).header("if-none-match", &*first).await.expect(200);
    assert_unchanged(&raw, &second).await;

    // The tag depends only on the content of a document.
    raw.delete(format!("{DEFINITIONS}/ferries.water.example.org")).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| !found.to_string().contains(r#""ferries""#)).await;
    assert_eq!(tag(&raw).await, first);

    raw.delete(format!("{SERVICES}/v1.rail.example.org")).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| !found.to_string().contains("rail.example.org")).await;
    let third = tag(&raw).await;
    assert!(third != first && third != second);
    assert_unchanged(&raw, &third).await;

    // The version is registered again with other resources, and a definition changes.
    backend.register(&raw, "rail.example.org", "v1").await;
    until_of(&raw, "/apis", AGGREGATED, |found| found.to_string().contains(r#""trains""#)).await;
    assert_eq!(tag(&raw).await, first);
    raw.get("/apis").header("accept", AGGREGATED).header("if-none-match", &*third).await.expect(200);
    backend.serve(&[("rail.example.org", "v1", json!([resource("trains", "Train"), resource("cars", "Car")]))]);
    let touched = json!({ "metadata": { "annotations": { "a": "b" } } });
    raw.patch(format!("{SERVICES}/v1.rail.example.org"), MERGE, &touched).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| found.to_string().contains(r#""cars""#)).await;
    let fourth = tag(&raw).await;
    assert!(![&first, &second, &third].contains(&&fourth));
    assert_unchanged(&raw, &fourth).await;
    let names = json!({ "spec": { "names": { "shortNames": ["bt"] } } });
    raw.patch(format!("{DEFINITIONS}/boats.water.example.org"), MERGE, &names).await.expect(200);
    until_of(&raw, "/apis", AGGREGATED, |found| found.to_string().contains(r#""bt""#)).await;
    raw.get("/apis").header("accept", AGGREGATED).header("if-none-match", &*fourth).await.expect(200);
    assert_unchanged(&raw, &tag(&raw).await).await;
}

async fn assert_unchanged(raw: &Raw, tag: &str) {
    let answer = raw.get("/apis").header("accept", AGGREGATED).header("if-none-match", tag).await.expect(304);
    assert!(answer.text().is_empty());
}
