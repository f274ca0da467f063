//! What the command line refuses before a server starts, and what a server says about itself.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use std::time::Duration;

use keelson_testkit::{ProcessServer, ProcessServerBuilder};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

/// The longest a start that is to be refused may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server must end at once, with `expect` among its words.
async fn check_refused(args: &[&str], expect: &str) {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(data).args(args).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("the server does not start").unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(expect), "{args:?}: {text}");
}

/// A privacy setting that names nothing would leave open what it was to protect.
#[tokio::test]
async fn a_setting_that_names_nothing_is_refused() {
    let secrets = |name: &str| format!("there is no resource {name:?}; did you mean secrets?");
    check_refused(&["--no-chunking", "secretz"], &secrets("secretz")).await;
    check_refused(&["--no-chunking=configmaps,Secret"], &secrets("Secret")).await;
    check_refused(&["--no-chunking", "roles"], "did you mean roles.rbac.authorization.k8s.io?").await;
    check_refused(&["--tls-san", "bad..name"], "\"bad..name\" is neither a DNS name nor an IP address").await;
    check_refused(&["--server-id", ""], "a value is required for '--server-id").await;
}

#[tokio::test]
async fn a_server_is_known_by_its_name() {
    let args = ["--server-id", "east-1", "--no-chunking", "secrets,roles.rbac.authorization.k8s.io"];
    let server = args.into_iter().fold(ProcessServer::builder(KEELSON), ProcessServerBuilder::arg).start().await;
    let metrics = server.raw().get("/metrics").await.expect(200);
    let metrics = metrics.text();
    let info = metrics.lines().find(|line| line.starts_with("keelson_server_info{")).unwrap();
    assert!(info.contains("server_id=\"east-1\"") && info.ends_with(" 1.0"), "{info}");
    let told = async {
        // The server answers a moment before it says so.
        while !server.log().contains("server id:  east-1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the server tells its name");
}
