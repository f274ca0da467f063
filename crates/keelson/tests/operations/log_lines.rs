//! Tests of the log while neighbours of the server fail: one line for the first failure, and a count of the following
//! ones.
//!
//! Text from a neighbour can neither forge a line nor control a terminal.

use std::time::{Duration, Instant};

use keelson_testkit::{HookReply, HookServer, ProcessServer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The number of requests. The webhook fails for each.
const REQUESTS: usize = 200;
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_fails_for_each_request_gets_a_few_lines() {
    let server = ProcessServer::builder(KEELSON).start().await;
    // One webhook is unreachable, and the response of another one contains control sequences of terminals.
    let sent = "no\u{1b}[2J\nWARN forged\u{9b}31m";
    let hook =
        HookServer::start(&["127.0.0.1"], move |_| async move { HookReply::Other(500, vec![], sent.to_owned()) }).await;
    let unreachable = json!({ "url": "https://127.0.0.1:1/" });
    let broken = json!({ "url": hook.url("/"), "caBundle": hook.ca_bundle() });
    let webhook = |name: &str, client: serde_json::Value| {
        json!({
            "name": name, "clientConfig": client, "failurePolicy": "Ignore", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"] }],
        })
    };
    let webhooks = [webhook("gone.example.org", unreachable), webhook("broken.example.org", broken)];
    let configuration = json!({ "metadata": { "name": "failing" }, "webhooks": webhooks });
    server.raw().post(WEBHOOKS, &configuration).await.expect(201);
    let begun = Instant::now();
    let lines = |part: &str| server.log().lines().filter(|line| line.contains(part)).count();
    while lines("gone.example.org") == 0 || lines("broken.example.org") == 0 {
        assert!(begun.elapsed() < PATIENCE, "the webhooks are not called:\n{}", server.log());
        server.raw().post(CONFIG_MAPS, &json!({ "metadata": { "generateName": "first-" } })).await.expect(201);
    }
    let raw = server.raw();
    for number in 0..REQUESTS {
        raw.post(CONFIG_MAPS, &json!({ "metadata": { "name": format!("map-{number}") } })).await.expect(201);
    }
    // One line at once, and one for each minute of the test.
    let most = 2 + usize::try_from(begun.elapsed().as_secs() / 60).unwrap();
    for name in ["gone.example.org", "broken.example.org"] {
        assert!((1..=most).contains(&lines(name)), "{} lines of {name}:\n{}", lines(name), server.log());
    }
    let log = server.log();
    assert!(log.lines().all(|line| !line.starts_with("WARN")), "{log}");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
}

/// Sends requests over HTTP/2 without credentials, and takes each back at once. Returns the answer of the server.
async fn reset_at_once(server: &ProcessServer) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, b""));
    for stream in (1..400).step_by(2) {
        // `GET https://x/`, and CANCEL.
        sent.extend(frame(1, 5, stream, b"\x82\x87\x84\x01\x01x"));
        sent.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
    }
    let (mut wire, mut answer) = (server.raw().connect().await, Vec::new());
    wire.write_all(&sent).await.unwrap();
    let _closed = tokio::time::timeout(PATIENCE, wire.read_to_end(&mut answer)).await.expect("the server hangs up");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_break_rules_of_the_wire_write_no_lines() {
    let server = ProcessServer::builder(KEELSON).start().await;
    for _ in 0..20 {
        let answer = reset_at_once(&server).await;
        assert!(answer.windows(15).any(|part| part == b"too_many_resets"), "{answer:?}");
    }
    server.raw().get("/readyz").await.expect(200);
    let log = server.log();
    assert!(!log.contains("recv_reset") && !log.contains(" h2::"), "{log}");
}
