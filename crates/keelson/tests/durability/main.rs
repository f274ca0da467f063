//! What outlives the process: invariants 5, 17 and 18 over the real binary, ended by force and by signal while many
//! clients write, backed up while it runs, and restored.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod backup;
mod crash;
mod disk;
mod stop;
mod tokens;
mod writers;

use std::time::Duration;

use keelson_testkit::{ProcessServer, Raw};
use serde_json::{Value, json};

/// The command under test.
const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// Where the tests write.
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The same for a custom resource whose objects look like config maps, once it is [defined](define_maps).
const CUSTOM_MAPS: &str = "/apis/durable.example.com/v1/namespaces/default/maps";

async fn start() -> ProcessServer {
    ProcessServer::builder(KEELSON).start().await
}

/// Runs a `keelson` command to its end: whether it succeeded, and all it printed.
fn run<const N: usize>(args: [&str; N]) -> (bool, String) {
    let output = std::process::Command::new(KEELSON).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

/// Defines the custom resource, and waits until it is served.
async fn define_maps(raw: &Raw) {
    let data = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": { "data": data } });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    let definition = json!({
        "metadata": { "name": "maps.durable.example.com" },
        "spec": {
            "group": "durable.example.com",
            "scope": "Namespaced",
            "names": { "plural": "maps", "kind": "Map" },
            "versions": [version],
        },
    });
    raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let served = async {
        while raw.get(CUSTOM_MAPS).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("what is defined is served");
}

async fn list(raw: &Raw, path: &str, query: &str) -> Value {
    raw.get(format!("{path}?{query}")).await.expect(200).json()
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The resourceVersion of an object or a list, as the number it is here.
fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
