//! Tests of data that outlives the process: invariants 5, 17 and 18 over the real binary. It is killed and stopped
//! while many clients write, backed up while it runs, and restored.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod backup;
mod crash;
mod disk;
mod disk_shares;
mod losses;
mod stop;
mod tokens;
mod writers;

use std::io::{Read as _, Seek as _};
use std::time::{Duration, Instant};

use keelson_testkit::{DEFINITIONS, ProcessServer, Raw, definition, definition_version};
use serde_json::{Value, json};

/// The command under test.
const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// The longest wait for a command, or for a detection by the server, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// The path of the tests' objects.
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of a custom resource whose objects look like config maps, once it is [defined](define_maps).
const CUSTOM_MAPS: &str = "/apis/durable.example.com/v1/namespaces/default/maps";

async fn start() -> ProcessServer {
    ProcessServer::builder(KEELSON).start().await
}

/// Runs a `keelson` command to its end. Returns true if it succeeded, and all its output.
fn run<const N: usize>(args: [&str; N]) -> (bool, String) {
    let mut printed = tempfile::tempfile().unwrap();
    let [out, err] = [(); 2].map(|()| printed.try_clone().unwrap());
    let mut command = std::process::Command::new(KEELSON).args(args).stdout(out).stderr(err).spawn().unwrap();
    let begun = Instant::now();
    let ended = loop {
        match command.try_wait().unwrap() {
            None if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            ended => break ended,
        }
    };
    if ended.is_none() {
        command.kill().unwrap();
    }
    let mut text = String::new();
    printed.rewind().unwrap();
    printed.read_to_string(&mut text).unwrap();
    let ended = ended.unwrap_or_else(|| panic!("{args:?} does not end: {text}"));
    (ended.success(), text)
}

/// Defines the custom resource, and waits until it is served.
async fn define_maps(raw: &Raw) {
    let data = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": { "data": data } });
    let versions = vec![definition_version("v1", true, schema)];
    raw.post(DEFINITIONS, &definition("durable.example.com", "maps", "Map", versions)).await.expect(201);
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

/// The resourceVersion of an object or list as a number.
fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
