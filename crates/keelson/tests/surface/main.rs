//! Tests of resources that are added and removed while a server runs: in discovery, in OpenAPI and at their paths.
//!
//! The contributor is the test. Definitions of custom resources are another contributor, with their own tests.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod authorization;
mod calls;
mod clients;
mod columns;
mod contributed;
mod converted;
mod depth;
mod documented;
mod generated;
mod generated_forms;
mod metric_families;
mod metrics;
mod promises;
mod rules;
mod schemas;
mod webhooks;

use keelson_registry::{ApiRegistrations, ResourceRegistration};
use keelson_resources::{Resource, ServedVersion, Subresource};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const GROUP: &str = "harbour.example.org";
/// A resource with the name of a built-in one.
const THINGS: &str = "/apis/harbour.example.org/v1/namespaces/default/bindings";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn resource(plural: &str, kind: &str, versions: &[&str]) -> Resource {
    let versions = versions.iter().map(|name| ServedVersion::custom((*name).to_owned(), [Subresource::status()]));
    Resource { short_names: vec!["hb".into()], ..Resource::custom(GROUP, plural, kind, versions.collect()) }
}

async fn put(surfaces: &ApiRegistrations, resources: Vec<Resource>) {
    surfaces.put(resources.into_iter().map(ResourceRegistration::new).collect()).await.expect("they can be served");
}

/// The group in the aggregated document, and the tag of the document.
async fn discovered(server: &TestServer) -> (Option<Value>, String) {
    let answer = server.raw().get("/apis").header("accept", AGGREGATED).await.expect(200);
    let tag = answer.header("etag").to_owned();
    let groups = answer.json()["items"].as_array().expect("a list of groups").clone();
    (groups.into_iter().find(|group| group["metadata"]["name"] == GROUP), tag)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_is_discovered_and_used_while_it_is_served() {
    let server = TestServer::start().await;
    let surfaces = server.running().registry().surfaces();
    let raw = server.raw();
    let (none, before) = discovered(&server).await;
    assert_eq!(none, None);
    raw.get(THINGS).await.expect(404);

    put(surfaces, vec![resource("bindings", "Mooring", &["v1"])]).await;
    let (group, with_one) = discovered(&server).await;
    let versions = group.expect("it is discovered")["versions"].clone();
    assert_eq!(versions[0]["resources"][0]["resource"], "bindings");
    assert_eq!(versions[0]["resources"][0]["responseKind"]["kind"], "Mooring");
    assert_ne!(before, with_one, "what has changed has another tag");
    let legacy = raw.get(format!("/apis/{GROUP}/v1")).await.expect(200).json();
    assert_eq!(legacy["resources"][1]["name"], "bindings/status");
    let index = raw.get("/openapi/v3").await.expect(200).json();
    let path = index["paths"][format!("apis/{GROUP}/v1")]["serverRelativeURL"].as_str().unwrap().to_owned();
    let described = raw.get(path).await.expect(200).json();
    assert!(!described["paths"][format!("/apis/{GROUP}/v1/namespaces/{{namespace}}/bindings")].is_null());

    let sent = json!({ "metadata": { "name": "a" }, "spec": { "berths": 3 } });
    let made = raw.post(THINGS, &sent).await.expect(201).json();
    assert_eq!((&made["kind"], &made["spec"]["berths"]), (&json!("Mooring"), &json!(3)));
    let list = raw.get(THINGS).await.expect(200).json();
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("MooringList"), &json!("a")));

    put(surfaces, vec![resource("bindings", "Mooring", &["v2", "v1"]), resource("pods", "Whale", &["v2"])]).await;
    let (group, _) = discovered(&server).await;
    let names: Vec<Value> =
        group.unwrap()["versions"].as_array().unwrap().iter().map(|it| it["version"].clone()).collect();
    assert_eq!(names, ["v2", "v1"]);
    let shown = raw.get(THINGS.replace("/v1/", "/v2/") + "/a").await.expect(200).json();
    assert_eq!(shown["apiVersion"], format!("{GROUP}/v2"));

    let label = format!("group=\"{GROUP}\"");
    let counted = || async { raw.get("/metrics").await.expect(200).text().contains(&label) };
    assert!(counted().await, "requests for it are counted");
    let all = [resource("bindings", "Mooring", &["v1"]), resource("pods", "Whale", &["v2"])];
    surfaces.remove(&all.map(|resource| resource.group_resource())).await;
    assert_eq!(discovered(&server).await, (None, before), "the same set has the same tag");
    raw.get(THINGS).await.expect(404);
    raw.get(format!("/apis/{GROUP}")).await.expect(404);
    raw.get("/api/v1/pods").await.expect(200);
    assert!(!counted().await, "nothing is counted of what is gone");
}

/// Items of built-in lists have no apiVersion and kind, items of custom resources have them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_of_lists_name_their_kind_and_the_version_that_was_requested() {
    let server = TestServer::start().await;
    let surfaces = server.running().registry().surfaces();
    put(surfaces, vec![resource("bindings", "Mooring", &["v1", "v2"])]).await;
    let raw = server.raw();
    for number in 0..200 {
        let spec = json!({ "text": "x".repeat(1_000) });
        let made = json!({ "metadata": { "name": format!("a{number:03}") }, "spec": spec });
        raw.post(THINGS, &made).await.expect(201);
    }
    for version in ["v1", "v2"] {
        let path = THINGS.replace("/v1/", &format!("/{version}/"));
        let typed = |list: Value| {
            let items = list["items"].as_array().unwrap().clone();
            assert_eq!(items.len(), 200);
            for item in items {
                let named = (&item["kind"], &item["apiVersion"]);
                assert_eq!(named, (&json!("Mooring"), &json!(format!("{GROUP}/{version}"))));
            }
        };
        typed(raw.get(path.as_str()).await.expect(200).json());
        let pretty = raw.get(format!("{path}?pretty=true")).await.expect(200);
        typed(pretty.json());
        for _ in 0..2 {
            let gzip = raw.get(path.as_str()).header("accept-encoding", "gzip").await.expect(200);
            assert_eq!(gzip.header("content-encoding"), "gzip");
            let mut plain = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip.body[..]), &mut plain).unwrap();
            typed(serde_json::from_str(&plain).unwrap());
        }
        let yaml = raw.get(path.as_str()).header("accept", "application/yaml").await.expect(200).text();
        assert_eq!(yaml.matches(&format!("apiVersion: {GROUP}/{version}\n")).count(), 201, "the list and its items");
    }
    let gone = raw.delete(THINGS.to_owned()).await.expect(200).json();
    assert_eq!(gone["items"][0]["kind"], "Mooring");
    let namespaces = raw.get("/api/v1/namespaces").await.expect(200).json();
    assert_eq!(namespaces["items"][0]["kind"], Value::Null);
}
