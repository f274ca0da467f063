//! Tests of definitions with a conversion webhook: conversions happen as declared, also after restarts, and a hanging
//! webhook delays only requests that need it. `surface/webhooks.rs` tests the requests to webhooks and the errors for
//! faulty ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_testkit::{HookReply, HookRequest, HookServer, TestServer, converted_review};
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, definition, establish, until, version};

pub(super) const GROUP: &str = "hook.example.com";

pub(super) fn place(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/hosts")
}

/// A version with one field of `spec`, which may have a default.
pub(super) fn with_field(name: &str, stored: bool, field: Value) -> Value {
    let mut version = version(name, stored);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = field;
    version
}

/// Moves `host` to `address` and back.
pub(super) fn converted(review: &Value) -> Value {
    converted_review(review, |spec, wanted| {
        let value = [&spec["host"], &spec["address"]].into_iter().find(|value| value.is_string()).cloned();
        let field = if wanted.ends_with("v2") { "address" } else { "host" };
        json!({ field: value, "unknown": 1 })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_names_the_webhook_that_converts_its_objects() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hook = HookServer::start(&["127.0.0.1"], {
        let hangs = hangs.clone();
        move |request: HookRequest| {
            let hangs = hangs.load(Ordering::SeqCst);
            std::future::ready(if hangs { HookReply::Hangs } else { HookReply::Json(converted(&request.body)) })
        }
    })
    .await;
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let text = json!({ "type": "string" });
    let second = json!({ "address": text, "tls": { "type": "boolean", "default": false } });
    let versions = json!([with_field("v1", true, json!({ "host": text })), with_field("v2", false, second)]);
    let mut hosts = definition(GROUP, "hosts", "Host", versions);
    let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    hosts["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    establish(&raw, &hosts).await;
    raw.post(place("v1"), &json!({ "metadata": { "name": "x" }, "spec": { "host": "h1" } })).await.expect(201);
    let shown = raw.get(format!("{}/x", place("v2"))).await.expect(200).json();
    assert_eq!(shown["spec"], json!({ "address": "h1" }), "pruned, and not filled in");
    let made = json!({ "metadata": { "name": "y" }, "spec": { "address": "h2" } });
    raw.post(place("v2"), &made).await.expect(201);
    assert_eq!(raw.get(format!("{}/y", place("v1"))).await.expect(200).json()["spec"], json!({ "host": "h2" }));

    // A server starts in every state of the webhook.
    hangs.store(true, Ordering::SeqCst);
    server.restart().await;
    let raw = server.raw();
    until(&raw, &place("v1"), |list| list["items"].as_array().is_some_and(|items| items.len() == 2)).await;
    raw.get("/readyz").await.expect(200);
    raw.get(format!("{}/x?timeout=1s", place("v2"))).await.expect(504);
    raw.patch(format!("{}/x", place("v1")), MERGE, &json!({ "spec": { "host": "h3" } })).await.expect(200);

    // Without the webhook the versions differ only in name, and fields of the other one are not shown.
    let none = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    raw.patch(format!("{DEFINITIONS}/hosts.{GROUP}"), MERGE, &none).await.expect(200);
    let path = format!("{}/x?timeout=1s", place("v2"));
    let shown = until(&raw, &path, |object| object["kind"] == "Host").await;
    assert_eq!(shown["spec"]["address"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrected_converter_is_used_at_once() {
    let is_wrong = Arc::new(AtomicBool::new(true));
    let hook = HookServer::start(&["127.0.0.1"], {
        let is_wrong = is_wrong.clone();
        move |request: HookRequest| {
            let mut review = converted(&request.body);
            for object in review["response"]["convertedObjects"].as_array_mut().into_iter().flatten() {
                if is_wrong.load(Ordering::SeqCst) && object["spec"]["address"].is_string() {
                    object["spec"]["address"] = json!("wrong");
                }
            }
            std::future::ready(HookReply::Json(review))
        }
    })
    .await;
    let server = TestServer::start().await;
    let raw = server.raw();
    let text = json!({ "type": "string" });
    let versions = json!([
        with_field("v1", true, json!({ "host": text })),
        with_field("v2", false, json!({ "address": text, "note": text })),
    ]);
    let mut hosts = definition(GROUP, "hosts", "Host", versions);
    let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    hosts["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    establish(&raw, &hosts).await;
    for name in ["x", "y"] {
        let host = json!({ "metadata": { "name": name }, "spec": { "host": name } });
        raw.post(place("v1"), &host).await.expect(201);
    }
    let shown = async |path: String| raw.get(path).await.expect(200).json();
    let address = |object: &Value| object["spec"]["address"].as_str().unwrap_or_default().to_owned();
    let listed =
        async || -> Vec<String> { shown(place("v2")).await["items"].as_array().unwrap().iter().map(address).collect() };
    assert_eq!(address(&shown(format!("{}/x", place("v2"))).await), "wrong");
    assert_eq!(listed().await, ["wrong", "wrong"]);

    is_wrong.store(false, Ordering::SeqCst);
    assert_eq!(address(&shown(format!("{}/x", place("v2"))).await), "x");
    // A changed result shows that all cached ones are outdated.
    assert_eq!(listed().await, ["x", "y"]);
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let patched = raw.patch(format!("{}/y", place("v2")), MERGE, &label).await.expect(200).json();
    assert_eq!(address(&patched), "y");
    assert_eq!(shown(format!("{}/y", place("v1"))).await["spec"], json!({ "host": "y" }));
}
