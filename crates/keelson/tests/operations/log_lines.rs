//! Tests of the log while neighbours of the server fail: one line for the first failure, and a count of the following
//! ones.
//!
//! Text from a neighbour can neither forge a line nor control a terminal.

use std::time::{Duration, Instant};

use keelson_testkit::{HookReply, HookServer, ProcessServer};
use serde_json::json;

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
