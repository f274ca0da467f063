//! Tests of aggregated API servers: their registration by APIServices, their checks, and their part of the common
//! discovery document. Also the headers that they get, forwarded requests, and servers on one store that answer for
//! each other.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod availability;
mod backend;
mod clients;
mod discovery;
mod equal_tags;
mod every_path;
mod example;
mod front_proxy;
mod garbage;
mod gateway;
mod hostile;
mod lab;
mod library;
mod library_migrations;
mod made_peers;
mod metrics;
mod namespaces;
mod openapi;
mod passed;
mod peers;
mod services;
mod streams;
mod upgrades;
mod wire;

use std::time::Duration;

use keelson_testkit::Raw;
use serde_json::{Value, json};

pub(crate) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The timeout, for a slow and busy machine. It includes the leases of killed servers.
const PATIENCE: Duration = Duration::from_secs(240);

/// Waits until the response at a path is as expected, and returns it.
pub(crate) async fn until(raw: &Raw, path: &str, done: impl Fn(&Value) -> bool) -> Value {
    until_of(raw, path, "application/json", done).await
}

/// Does the same as [`until`] with an `Accept` header.
pub(crate) async fn until_of(raw: &Raw, path: &str, accept: &str, done: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let wait = async {
        loop {
            let answer = raw.get(path).header("accept", accept).await;
            last = serde_json::from_str(&answer.text()).unwrap_or(Value::Null);
            if done(&last) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "{path} does not become so: {last}");
    last
}

/// The APIService of a version that a service in the namespace `default` serves.
pub(crate) fn api_service(group: &str, version: &str, service: &Value) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": format!("{version}.{group}") },
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": service,
        },
    })
}

/// Status, reason and message of an APIService's condition; empty if it has none.
pub(crate) fn condition(service: &Value) -> (String, String, String) {
    let found = &service["status"]["conditions"][0];
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits until an APIService's condition has this reason. Returns its status and message.
pub(crate) async fn until_reason(raw: &Raw, name: &str, reason: &str) -> (String, String) {
    let found = until(raw, &format!("{SERVICES}/{name}"), |found| condition(found).1 == reason).await;
    let (status, _, message) = condition(&found);
    (status, message)
}
