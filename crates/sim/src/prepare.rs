//! The first objects of a cluster: its keys, the namespace of the clients, and the definition of their custom resource.
//!
//! They are created once for each process, before its runs.

use std::time::Duration;

use http::{Method, StatusCode};
use keelson_access::pki::{self, PkiOptions};
use keelson_meta::SystemClock;
use keelson_meta::random::SystemRandom;
use keelson_server::Pki;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::plan::Kind;
use crate::wire::Client;

const RETRY: Duration = Duration::from_millis(100);

/// Makes the keys of the cluster.
pub(crate) fn keys() -> anyhow::Result<Pki> {
    Ok(pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom)?)
}

/// Creates the objects, and waits until their collections are served and the namespace has what each namespace has.
pub(crate) async fn objects(mut client: Client) -> Result<(), String> {
    let namespace = json!({"metadata": {"name": "sim"}});
    create(&mut client, "/api/v1/namespaces", &namespace).await?;
    create(&mut client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await?;
    let last = "/api/v1/namespaces/sim/configmaps/kube-root-ca.crt".to_owned();
    for path in Kind::ALL.into_iter().map(Kind::path).chain([last]) {
        while client.send(0, Method::GET, &path, None).await?.status != StatusCode::OK {
            sleep(RETRY).await;
        }
    }
    Ok(())
}

async fn create(client: &mut Client, path: &str, object: &Value) -> Result<(), String> {
    let answer = client.send(0, Method::POST, path, Some(("application/json", object))).await?;
    if answer.status == StatusCode::CREATED { Ok(()) } else { Err(format!("{path}: {}", answer.body)) }
}

fn definition() -> Value {
    let size = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": size}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": "widgets.sim.example.com"},
        "spec": {
            "group": "sim.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version],
        },
    })
}
