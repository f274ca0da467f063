//! Tests of writes to the main endpoint of custom resources with a status subresource. The server ignores the sent
//! status before it validates the object, and fills in the defaults of the schema.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{APPLY, DEFINITIONS, MERGE, definition, definition_version, establish, until};

const GATES: &str = "/apis/resets.example.com/v1/namespaces/default/gates";

fn schema(default: bool) -> Value {
    let text = json!({ "type": "string" });
    let mut status =
        json!({ "type": "object", "properties": { "phase": text, "x": text, "n": { "type": "integer" } } });
    if default {
        status["default"] = json!({ "phase": "Pending" });
    }
    let spec = json!({ "type": "object", "properties": { "a": text } });
    json!({ "type": "object", "properties": { "spec": spec, "status": status } })
}

async fn define(raw: &Raw, default: bool) {
    let mut version = definition_version("v1", true, schema(default));
    version["subresources"] = json!({ "status": {} });
    establish(raw, &definition("resets.example.com", "gates", "Gate", json!([version]))).await;
}

fn gate(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "resets.example.com/v1", "kind": "Gate", "metadata": { "name": name }, "spec": { "a": "1" },
        "status": status,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_reset_has_its_defaults() {
    let server = TestServer::start().await;
    let raw = server.raw();
    define(&raw, true).await;
    let pending = json!({ "phase": "Pending" });
    let made = raw.post(GATES, &gate("a", &json!({ "phase": "Sent", "n": "no number" }))).await.expect(201).json();
    assert_eq!(made["status"], pending);
    let applied = raw.patch(format!("{GATES}/b?fieldManager=m"), APPLY, &gate("b", &json!({ "x": "1" }))).await;
    assert_eq!(applied.expect(201).json()["status"], pending);
    for name in ["a", "b"] {
        assert_eq!(raw.get(format!("{GATES}/{name}")).await.expect(200).json()["status"], pending, "{name}");
    }
    let watched = format!("{GATES}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    assert_eq!(raw.get(watched).stream().await.next_json().await.unwrap()["object"]["status"], pending);

    // A patch of the status keeps the other defaults.
    let status = json!({ "status": { "x": "q" } });
    let patched = raw.patch(format!("{GATES}/a/status"), MERGE, &status).await.expect(200).json();
    assert_eq!(patched["status"], json!({ "phase": "Pending", "x": "q" }));
    // The main endpoint never changes the status, and a removed status gets its defaults again.
    let mut sent = patched;
    sent["status"] = json!({ "phase": "Sent" });
    sent = raw.put(format!("{GATES}/a"), &sent).await.expect(200).json();
    assert_eq!(sent["status"], json!({ "phase": "Pending", "x": "q" }));
    sent.as_object_mut().unwrap().remove("status");
    assert_eq!(raw.put(format!("{GATES}/a/status"), &sent).await.expect(200).json()["status"], pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_default_applies_to_objects_without_a_status() {
    let server = TestServer::start().await;
    let raw = server.raw();
    define(&raw, false).await;
    let made = raw.post(GATES, &gate("a", &json!({ "phase": "Sent" }))).await.expect(201).json();
    assert_eq!(made["status"], Value::Null);
    let schema = json!({ "openAPIV3Schema": schema(true) });
    let version =
        json!({ "name": "v1", "served": true, "storage": true, "schema": schema, "subresources": { "status": {} } });
    let patch = json!({ "spec": { "versions": [version] } });
    raw.patch(format!("{DEFINITIONS}/gates.resets.example.com"), MERGE, &patch).await.expect(200);
    let read = raw.get(format!("{GATES}/a")).await.expect(200).json();
    assert_eq!(read["status"], json!({ "phase": "Pending" }));
    let status = json!({ "status": { "x": "q" } });
    let patched = raw.patch(format!("{GATES}/a/status"), MERGE, &status).await.expect(200).json();
    assert_eq!(patched["status"], json!({ "phase": "Pending", "x": "q" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_ignored_by_the_main_endpoint_before_it_is_validated() {
    let server = TestServer::start().await;
    let raw = server.raw();
    define(&raw, false).await;
    let null = json!({ "phase": null, "n": 1 });
    raw.post(GATES, &gate("posted", &null)).await.expect(201);
    let applied = format!("{GATES}/applied?fieldManager=m");
    for expected in [201, 200] {
        let answer = raw.patch(&*applied, APPLY, &gate("applied", &null)).await.expect(expected).json();
        assert_eq!(answer["status"], Value::Null, "{answer}");
    }
    let status = json!({ "status": { "phase": "Up", "n": 5 } });
    raw.patch(format!("{GATES}/applied/status"), MERGE, &status).await.expect(200);
    let mut changed = gate("applied", &null);
    changed["spec"]["a"] = json!("2");
    let answer = raw.patch(&*applied, APPLY, &changed).await.expect(200).json();
    assert_eq!((&answer["status"], &answer["spec"]["a"]), (&status["status"], &json!("2")));
    let mut sent = answer;
    sent["status"] = json!({ "phase": null, "n": "no number" });
    let answer = raw.put(format!("{GATES}/applied"), &sent).await.expect(200).json();
    assert_eq!(answer["status"], status["status"]);
    // The status endpoint still validates it.
    raw.patch(format!("{GATES}/applied/status"), MERGE, &json!({ "status": { "n": "no number" } })).await.expect(422);
    until(&raw, &format!("{GATES}/applied"), |found| found["status"] == status["status"]).await;
}
