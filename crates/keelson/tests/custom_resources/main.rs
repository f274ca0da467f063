//! Tests of custom resources over the wire: they are served while their definition exists, with the same verbs as
//! built-in ones.
//!
//! Each module covers one part of the definition.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod again;
mod answers;
mod apply;
mod changes;
mod columns;
mod costly;
mod embedded;
mod life;
mod names;
mod objects;
mod older_definitions;
mod openapi;
mod operators;
mod patterns;
mod programs;
mod published;
mod ratcheting;
mod resets;
mod scale;
mod selection;
mod servers;
mod versions;
mod webhook_process;
mod webhooks;

use std::time::Duration;

use keelson_testkit::Raw;
use serde_json::{Value, json};

pub(crate) use keelson_testkit::{DEFINITIONS, definition, definition_version};

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A served version for any `spec` with a text `a` and a number `n`.
pub(crate) fn version(name: &str, stored: bool) -> Value {
    let spec = json!({ "type": "object", "properties": { "a": { "type": "string" }, "n": { "type": "integer" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    definition_version(name, stored, schema)
}

/// Creates a definition and waits until it is established.
pub(crate) async fn establish(raw: &Raw, definition: &Value) -> Value {
    raw.post(DEFINITIONS, definition).await.expect(201);
    let name = definition["metadata"]["name"].as_str().unwrap();
    until(raw, &format!("{DEFINITIONS}/{name}"), |found| condition(found, "Established").0 == "True").await
}

/// Waits until the value at a path is as expected.
pub(crate) async fn until(raw: &Raw, path: &str, done: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let answer = raw.get(path).await;
            let found = serde_json::from_str(&answer.text()).unwrap_or(Value::Null);
            if done(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{path} does not become so"))
}

/// Waits until a path gives 404.
pub(crate) async fn until_gone(raw: &Raw, path: &str) {
    until(raw, path, |found| found["code"] == 404 || found.is_null()).await;
}

/// Status, reason and message of a condition; empty without one.
pub(crate) fn condition(definition: &Value, kind: &str) -> (String, String, String) {
    let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}
