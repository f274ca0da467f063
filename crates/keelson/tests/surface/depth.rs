//! Tests of documents at the maximum depth and beyond, in every form and by every way into the server.
//!
//! Readers and writers recurse. The server is a process of its own, since a stack that is too small ends the process.

use http::Method;
use keelson_testkit::{HookReply, HookServer, ProcessServer, Raw};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// Texts with this many nested collections: JSON, sequences, and YAML in both styles.
fn texts(depth: usize) -> [(&'static str, String); 5] {
    let indented = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>();
    [
        (JSON, format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))),
        (JSON, format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))),
        (YAML, format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth))),
        (YAML, format!("a: {}{}", "[".repeat(depth - 1), "]".repeat(depth - 1))),
        (YAML, indented),
    ]
}

async fn lives(raw: &Raw, what: &str) {
    let answer = raw.get("/livez").try_send().await;
    assert_eq!(answer.unwrap_or_else(|error| panic!("{what}: {error}")).status, 200, "{what}");
}

#[tokio::test]
async fn documents_of_any_depth_end_no_server() {
    let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).start().await;
    let raw = server.raw();
    raw.post(MAPS, &json!({ "metadata": { "name": "a" } })).await.expect(201);
    for depth in [512, 511, 600, 100_000] {
        // An indented text of this depth would have gigabytes.
        let texts = if depth > 1000 { texts(1000).to_vec() } else { texts(depth).to_vec() };
        for (form, text) in texts {
            let create = raw.call(Method::POST, MAPS).header("content-type", form).body(text.clone());
            let applied = format!("{MAPS}/a?fieldManager=x");
            let forms: &[&str] = match form {
                YAML => &["application/apply-patch+yaml"],
                _ => &[
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                    "application/json-patch+json",
                    "application/apply-patch+yaml",
                ],
            };
            assert!((400..500).contains(&create.await.status), "{depth} levels of {form}");
            lives(&raw, &format!("{depth} levels of {form}")).await;
            for patch in forms {
                let sent = raw.call(Method::PATCH, &*applied).header("content-type", *patch).body(text.clone());
                let answer = sent.await;
                assert!(answer.status < 500, "{depth} levels of {patch}: {}", answer.text());
                lives(&raw, &format!("{depth} levels of {patch}")).await;
            }
        }
    }
}

/// A JSON text that cannot be read is read as YAML.
#[tokio::test]
async fn answers_of_webhooks_of_any_depth_end_no_server() {
    let hook = HookServer::start(&["127.0.0.1"], async |request| {
        let path = request.path.split('?').next().unwrap_or_default().trim_start_matches('/').to_owned();
        let (depth, number) = path.split_once('-').unwrap_or_default();
        let (form, text) = texts(depth.parse().unwrap())[number.parse::<usize>().unwrap()].clone();
        HookReply::Other(200, vec![("content-type", form.to_owned())], text)
    })
    .await;
    let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).start().await;
    let raw = server.raw();
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for (depth, number) in [512, 600, 1000].into_iter().flat_map(|depth| (0..5).map(move |number| (depth, number))) {
        let client = json!({ "url": hook.url(&format!("/{depth}-{number}")), "caBundle": hook.ca_bundle() });
        let rule =
            json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"] });
        let webhook = json!({
            "name": "a.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule],
            "clientConfig": client,
        });
        raw.post(configurations, &json!({ "metadata": { "name": "a" }, "webhooks": [webhook] })).await.expect(201);
        let refused = raw.post(MAPS, &json!({ "metadata": { "name": "b" } })).await.expect(500);
        assert!(refused.text().len() < 4096, "{}", refused.text());
        lives(&raw, &format!("{depth} levels of answer {number}")).await;
        raw.delete(format!("{configurations}/a")).await.expect(200);
    }
}
