//! Tests of the commands for the first hour: a made-up cluster, a token, a kubeconfig for another machine, and the
//! doctor.
//!
//! Each command runs as a process, and the test uses its result.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use keelson_testkit::{Endpoint, ProcessServer, TestServer};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn keelson(args: &[&str]) -> Said {
    let mut command = Command::new(KEELSON);
    command.env_remove("KEELSON_DATA_DIR").env_remove("KUBECONFIG").kill_on_drop(true);
    let output = command.args(args).stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

async fn count(server: &Endpoint, path: &str) -> usize {
    server.raw().get(path).await.expect(200).json()["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_fills_a_server_once_and_is_removed_again() {
    let server = TestServer::builder().configure(|config| config.controllers = Default::default()).start().await;
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let demo = ["demo", "--pods", "120", "--kubeconfig", kubeconfig];
    let first = keelson(&demo).await;
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert!(first.out.contains(" and found 0 of them there already: 6 namespaces, 3 nodes, 120 pods"), "{}", first.out);
    assert_eq!(count(&server, "/api/v1/pods").await, 120);
    assert_eq!(count(&server, "/api/v1/nodes").await, 3);
    assert!(count(&server, "/api/v1/events").await > 20);
    assert_eq!(count(&server, "/apis/demo.keelson.example/v1/databases").await, 72);
    let pods = server.raw().get("/api/v1/pods?fieldSelector=status.phase%3DSucceeded").await.expect(200).json();
    assert!(!pods["items"].as_array().unwrap().is_empty());
    let web = server.raw().get("/apis/apps/v1/namespaces/shop/deployments/web").await.expect(200).json();
    assert_eq!(web["status"]["replicas"], web["spec"]["replicas"]);

    let again = keelson(&demo).await;
    assert!(again.code == Some(0) && again.out.starts_with("made 0 objects"), "{}{}", again.out, again.err);
    let removed = keelson(&["demo", "--remove", "--kubeconfig", kubeconfig]).await;
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    assert_eq!(count(&server, "/api/v1/nodes").await, 0);
    let shop = server.raw().get("/api/v1/namespaces/shop").await;
    assert!(shop.status == 404 || shop.json()["status"]["phase"] == "Terminating");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_signs_in_as_its_account() {
    let server = TestServer::start().await;
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let with = async |token: &str, path: &str| {
        let bearer = format!("Bearer {}", token.trim());
        server.anonymous().get(path).header("authorization", bearer).await.status
    };
    let admin = keelson(&["token", "--kubeconfig", kubeconfig]).await;
    assert_eq!(admin.code, Some(0), "{}", admin.err);
    assert!(admin.err.contains("kube-system/keelson-admin with the role cluster-admin, good until "), "{}", admin.err);
    assert_eq!(with(&admin.out, "/api/v1/secrets").await, 200);

    let plain = keelson(&["token", "builder", "--kubeconfig", kubeconfig]).await;
    assert_eq!(with(&plain.out, "/api/v1/pods").await, 403);
    let viewer =
        keelson(&["token", "builder", "--role", "view", "--valid-for", "20m", "--kubeconfig", kubeconfig]).await;
    assert_eq!(with(&viewer.out, "/api/v1/pods").await, 200);
    assert_eq!(with(&viewer.out, "/api/v1/secrets").await, 403);
    let none = keelson(&["token", "--kubeconfig", "/nonexistent"]).await;
    assert!(none.code == Some(1) && none.err.contains("/nonexistent does not exist"), "{}", none.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_is_printed_for_another_place() {
    let server = TestServer::start().await;
    let own = server.kubeconfig().to_str().unwrap();
    let printed = keelson(&["kubeconfig", "--kubeconfig", own]).await;
    assert_eq!(printed.out.trim(), std::fs::read_to_string(own).unwrap().trim());

    let files = TempDir::new().unwrap();
    let out = files.path().join("copy.kubeconfig");
    let url = server.url().replace("127.0.0.1", "localhost");
    let args = ["kubeconfig", "--kubeconfig", own, "--server", &url, "--name", "east", "--out", out.to_str().unwrap()];
    let written = keelson(&args).await;
    assert_eq!(written.code, Some(0), "{}", written.err);
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let copy = Endpoint::from_kubeconfig(&out).await.unwrap();
    assert_eq!(copy.url(), url);
    copy.raw().get("/api/v1/secrets").await.expect(200);
    copy.kubectl(["config", "current-context"]).await.ok();
    assert!(keelson(&args).await.err.contains("File exists"), "a file is not replaced");
}

/// The exit code of the doctor, its findings as (check, state), and its output.
async fn findings(data: &Path, bind: &str) -> (Option<i32>, Vec<(String, String)>, String) {
    let said = keelson(&["doctor", "--json", "--data-dir", data.to_str().unwrap(), "--bind", bind]).await;
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = said.out.lines().map(read).map(|line| (text(&line["check"]), text(&line["state"]))).collect();
    (said.code, findings, said.out)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_problems_with_their_remedies() {
    let failed =
        |findings: &[(String, String)], check: &str| findings.contains(&(check.to_owned(), "failed".to_owned()));
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let (code, before, text) = findings(&data, "127.0.0.1:0").await;
    assert!(code == Some(0) && before.iter().all(|(_, state)| state != "failed"), "{text}");

    let mut server = ProcessServer::builder(KEELSON).data_dir(&data).start().await;
    let (code, running, text) = findings(&data, "127.0.0.1:0").await;
    assert!(code == Some(0) && running.contains(&("server".to_owned(), "ok".to_owned())), "{text}");
    assert!(text.contains("is whole: "), "{text}");
    server.terminate().await;

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, found, text) = findings(&data, &taken.local_addr().unwrap().to_string()).await;
    assert!(code == Some(1) && failed(&found, "port") && text.contains("choose another with --bind"), "{text}");

    std::fs::set_permissions(data.join("kubeconfig"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(data.join("pki/ca.crt"), "no certificate").unwrap();
    let (code, found, text) = findings(&data, "127.0.0.1:0").await;
    assert!(code == Some(1) && failed(&found, "certificates") && text.contains("chmod 600"), "{text}");

    // Overwrites pages in the middle of the database file.
    let file = data.join("keelson.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let (code, found, text) = findings(&data, "127.0.0.1:0").await;
    assert!(code == Some(1) && failed(&found, "store") && text.contains("restore"), "{text}");
    std::fs::remove_file(&file).unwrap();
    let (code, found, text) = findings(&data, "127.0.0.1:0").await;
    assert!(code == Some(1) && failed(&found, "store") && text.contains("is missing"), "{text}");
}
