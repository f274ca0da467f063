//! Tests of protobuf for responses that are no stored objects: errors and discovery documents have the same content as
//! in JSON.
//!
//! client-go requests protobuf by default, also for such responses.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn decoded(body: &[u8]) -> Value {
    serde_json::to_value(keelson_protobuf::decode(body).unwrap().object).unwrap()
}

/// Sends a request for protobuf and for JSON, compares the content, and returns it.
async fn check(raw: &Raw, method: &str, path: &str, body: Option<&Value>, status: u16) -> Value {
    let call = |accept: &str| {
        let call = raw.call(method.parse().unwrap(), path).header("accept", accept);
        if let Some(body) = body { call.json(body) } else { call }
    };
    let in_json = call("application/json").await.expect(status).json();
    let answer = call(PROTOBUF).await.expect(status);
    assert_eq!(answer.header("content-type"), PROTOBUF, "{method} {path}");
    // The oldest documents have a kind but no version in JSON; protobuf always has both.
    let mut told = in_json.clone();
    told.as_object_mut().unwrap().entry("apiVersion").or_insert_with(|| json!("v1"));
    assert_eq!(decoded(&answer.body), told, "{method} {path}");
    in_json
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_have_equal_content_in_protobuf_and_json() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let config_map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "there"}});
    raw.post(CONFIG_MAPS, &config_map).await.expect(201);
    let missing = check(&raw, "GET", &format!("{CONFIG_MAPS}/missing"), None, 404).await;
    assert_eq!((&missing["reason"], &missing["details"]["name"]), (&json!("NotFound"), &json!("missing")));
    check(&raw, "POST", CONFIG_MAPS, Some(&config_map), 409).await;
    let invalid =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "No Name"}, "data": {"a b": ""}});
    let invalid = check(&raw, "POST", CONFIG_MAPS, Some(&invalid), 422).await;
    assert_eq!(invalid["details"]["causes"].as_array().unwrap().len(), 2, "{invalid}");
    let unfit = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "n"}, "data": 5});
    check(&raw, "POST", CONFIG_MAPS, Some(&unfit), 400).await;
    check(&raw, "PUT", CONFIG_MAPS, Some(&config_map), 405).await;
    check(&raw, "GET", &format!("{CONFIG_MAPS}?continue=nonsense&limit=1"), None, 400).await;
    check(&raw, "GET", &format!("{CONFIG_MAPS}?resourceVersion=100000000&timeoutSeconds=1"), None, 504).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_has_equal_content_in_protobuf_and_json() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (path, kind) in [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/api/v1", "APIResourceList"),
        ("/apis/autoscaling/v2", "APIResourceList"),
    ] {
        assert_eq!(check(&raw, "GET", path, None, 200).await["kind"], kind, "{path}");
    }
}
