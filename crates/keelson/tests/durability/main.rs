//! What outlives the process: invariants 5, 17 and 18 over the real binary, ended by force and by signal while many
//! clients write, backed up while it runs, and restored.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod backup;
mod crash;
mod disk;
mod stop;
mod tokens;
mod writers;

use keelson_testkit::{ProcessServer, Raw};
use serde_json::Value;

/// The command under test.
const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// Where the tests write.
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> ProcessServer {
    ProcessServer::builder(KEELSON).start().await
}

/// Runs a `keelson` command to its end: whether it succeeded, and all it printed.
fn run<const N: usize>(args: [&str; N]) -> (bool, String) {
    let output = std::process::Command::new(KEELSON).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

async fn list(raw: &Raw, query: &str) -> Value {
    raw.get(format!("{CONFIG_MAPS}?{query}")).await.expect(200).json()
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
