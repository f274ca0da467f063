//! Recorded requests about registered servers (`tests/aggregation/wire`): discovery documents and their tags while
//! definitions, APIServices and servers appear and disappear.
//!
//! The servers run in the test and do not change. A record changes the target of an APIService.

use std::path::Path;

use keelson_testkit::{HookReply, RecordedServer, TestServer, check_record, check_record_beside};
use serde_json::{Value, json};

use super::AGGREGATED;
use super::backend::{Backend, aggregated, resource};

/// Checks a record on a new server.
async fn check(record: &str) {
    let server = TestServer::builder().recorded().start().await;
    check_record(path(record), &server).await;
}

fn path(record: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aggregation/wire").join(record)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_services_are_validated_and_defaulted() {
    check("api-services.wire").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_appear_in_and_disappear_from_discovery() {
    check("definitions.wire").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registered_servers_appear_in_and_disappear_from_discovery() {
    let server = TestServer::builder().recorded().start().await;
    let raw = server.raw();
    let (ferry, cutter, wreck) = (
        Backend::start(&raw, "ferry").await,
        Backend::start(&raw, "cutter").await,
        Backend::start(&raw, "wreck").await,
    );
    ferry.answer("/apis", aggregated(AGGREGATED, &json!([cargo(), stowaway()])));
    for version in ["v1", "v7"] {
        let list = json!({ "kind": "APIResourceList", "groupVersion": format!("cargo.example.org/{version}"), "resources": [] });
        ferry.answer(&format!("/apis/cargo.example.org/{version}"), HookReply::Json(list));
    }
    cutter.answer(
        "/apis/sail.example.org/v1",
        HookReply::Json(json!({ "kind": "APIResourceList", "resources": sails() })),
    );
    wreck.answer("/apis/sunk.example.org/v1", HookReply::Json(json!({})));
    wreck.answer("/apis", HookReply::Other(503, Vec::new(), "later".to_owned()));
    let named = |name, backend: &Backend| RecordedServer {
        name,
        port: backend.hook.addr().port(),
        ca_bundle: backend.hook.ca_bundle(),
    };
    let beside = [named("ferry", &ferry), named("cutter", &cutter), named("wreck", &wreck)];
    check_record_beside(path("servers.wire"), &server, &beside).await;
}

/// A group in a server's aggregated document: marked stale, with unknown fields, and with unsorted resources.
fn cargo() -> Value {
    let mut crates = resource("crates", "Crate");
    crates["shortNames"] = json!(["cr"]);
    crates["categories"] = json!(["all"]);
    crates["subresources"] = json!([{
        "subresource": "status", "verbs": ["get"], "responseKind": { "group": "", "version": "", "kind": "Crate" },
    }]);
    let mut barrels = resource("barrels", "Barrel");
    barrels["hoops"] = json!(8);
    let version = json!({ "version": "v1", "resources": [crates, barrels], "freshness": "Stale", "since": "dawn" });
    json!({ "metadata": { "name": "cargo.example.org" }, "versions": [version] })
}

/// A group without an APIService.
fn stowaway() -> Value {
    let version = json!({ "version": "v1", "resources": [resource("rats", "Rat")], "freshness": "Current" });
    json!({ "metadata": { "name": "stowaway.example.org" }, "versions": [version] })
}

/// Resources in the older documents: a subresource of another kind, one without its resource, and one that is
/// cluster-scoped.
fn sails() -> Value {
    let listed = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"] });
    let mut scale = listed("jibs/scale", "Scale", true);
    (scale["group"], scale["version"]) = (json!("autoscaling"), json!("v1"));
    json!([
        listed("jibs", "Jib", true),
        listed("jibs/status", "Jib", true),
        scale,
        listed("masts", "Mast", false),
        listed("spars/status", "Spar", true)
    ])
}
