//! Tests of the kit: it drives a real server in every way that it offers.
//!
//! In other tests a fault of the kit would look like a fault of the server.

use keelson_testkit::{TestServer, check_records};
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn one_port_serves_both_protocols_and_refuses_anonymous_requests() {
    let server = TestServer::start().await;
    let version = server.raw().get("/version").await.expect(200).json();
    assert_eq!(server.raw().http2().get("/version").await.expect(200).json(), version);
    let refused = server.anonymous().get("/api/v1/namespaces").await.expect(403);
    assert_eq!(refused.header("content-type"), "application/json");
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_a_stream_has_its_own() {
    let server = TestServer::start().await;
    for raw in [server.raw(), server.raw().http2()] {
        let name = format!("in-{}", server.raw().get(CONFIG_MAPS).await.json()["items"].as_array().map_or(0, Vec::len));
        let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=20")).stream().await;
        raw.post(CONFIG_MAPS, &config_map(&name)).await.expect(201);
        let patch = json!({"data": {"a": "2"}});
        raw.patch(format!("{CONFIG_MAPS}/{name}"), "application/merge-patch+json", &patch).await.expect(200);
        loop {
            let event = watch.next_json().await.expect("the watch continues");
            if event["type"] == "MODIFIED" {
                assert_eq!(event["object"]["data"], json!({"a": "2"}));
                break;
            }
        }
    }
}

#[tokio::test]
async fn kubectl_and_the_rust_client_see_the_same_server() {
    let server = TestServer::start().await;
    let manifest = config_map("from-kubectl").to_string();
    let created = server.kubectl(["create", "-f", "-"]).stdin(manifest).await.ok();
    assert_eq!(created, "configmap/from-kubectl created\n");
    let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(server.client());
    assert_eq!(api.get("from-kubectl").await.unwrap().data.unwrap()["a"], "1");
    let missing = server.kubectl(["get", "configmap", "nobody"]).await.refused();
    assert_eq!(missing, "Error from server (NotFound): configmaps \"nobody\" not found\n");
}

#[tokio::test]
async fn a_restart_keeps_the_sqlite_objects_and_the_address() {
    let mut server = TestServer::builder().sqlite().start().await;
    let url = server.url();
    let created = server.raw().post(CONFIG_MAPS, &config_map("kept")).await.expect(201).json();
    server.restart().await;
    assert_eq!(server.url(), url);
    assert_eq!(server.raw().get(format!("{CONFIG_MAPS}/kept")).await.expect(200).json(), created);
}

#[tokio::test]
async fn responses_of_the_server_match_the_records() {
    let server = TestServer::start().await;
    check_records(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/records"), &server).await;
}
