//! Tests of webhooks that answer too much: patches, warnings, annotations, texts and documents without measure.
//!
//! The answer is refused or cut, in a time and a size that hurt no other request. `answers` tests usual responses.

use std::time::{Duration, Instant};

use keelson_testkit::{HookReply, HookRequest};
use serde_json::{Map, Value, json};

use super::{MAPS, WebhookServer, map, patched, review, warnings};

/// The longest text or list of a webhook that a client gets, in bytes, with the rest of the response.
const MOST_BYTES: usize = 1300 << 10;

/// The response that the path selects.
fn answer(request: &HookRequest) -> HookReply {
    let path = request.path.split('?').next().unwrap();
    let denied = |status: Value| review(request, json!({ "allowed": false, "status": status }));
    let json = |code: u16, body: String| HookReply::Other(code, vec![("content-type", JSON.to_owned())], body);
    let numbered = |count: usize, value: Value| -> Value {
        (0..count).map(|number| (format!("k{number}"), value.clone())).collect::<Map<_, _>>().into()
    };
    match path {
        "/operations" => patched(request, &vec![json!({ "op": "test", "path": "/kind", "value": 1 }); 20_000].into()),
        "/test-operations" => {
            patched(request, &vec![json!({ "op": "test", "path": "/kind", "value": "ConfigMap" }); 9_000].into())
        }
        "/members" => {
            patched(request, &json!([{ "op": "add", "path": "/data", "value": numbered(60_000, json!("v")) }]))
        }
        "/patch" => patched(request, &json!([{ "op": "add", "path": "/data", "value": { "k": "v".repeat(4 << 20) } }])),
        "/deep" => {
            let nested = (0..400).fold(json!(1), |inner, _| json!({ "a": inner }));
            patched(request, &json!([{ "op": "add", "path": "/x", "value": nested }]))
        }
        "/failed-list" => json(500, format!("[{}]", vec!["{}"; 1_000_000].join(","))),
        "/failed-status" => json(
            500,
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m".repeat(200 << 10) })
                .to_string(),
        ),
        "/uid" => review(request, json!({ "allowed": true, "uid": "u".repeat(4 << 20) })),
        "/kind" => json(200, json!({ "apiVersion": "x/v1", "kind": "k".repeat(4 << 20) }).to_string()),
        "/texts" => denied(json!({
            "message": "\u{1b}m".repeat(300 << 10), "reason": "\u{1b}r".repeat(100 << 10),
            "details": { "name": "\u{1b}n".repeat(100 << 10), "kind": "\u{1b}k", "group": "\u{1b}g", "uid": "\u{1b}u" },
        })),
        "/causes" => {
            let cause = json!({ "reason": "\u{1b}r", "message": "m".repeat(1000), "field": "f" });
            denied(json!({ "message": "m", "details": { "causes": vec![cause; 7_000] } }))
        }
        "/posing" => denied(json!({
            "kind": "Pod", "apiVersion": "v7", "status": "Success", "message": "m", "code": 410, "reason": "Expired",
            "metadata": { "continue": "theirs", "resourceVersion": "9", "remainingItemCount": 3 },
        })),
        "/warnings" => {
            let texts: Vec<_> = (0..300_000).map(|number| format!("\u{1b}{number}")).collect();
            review(request, json!({ "allowed": true, "warnings": texts }))
        }
        "/annotations" => {
            review(request, json!({ "allowed": true, "auditAnnotations": numbered(150_000, json!("v")) }))
        }
        _ => review(request, json!({ "allowed": true })),
    }
}

const JSON: &str = "application/json";

/// The code of a create with each answer.
const CASES: [(&str, u16); 15] = [
    ("operations", 500),
    ("test-operations", 201),
    ("members", 201),
    ("patch", 500),
    ("deep", 201),
    ("failed-list", 500),
    ("failed-status", 500),
    ("uid", 500),
    ("kind", 500),
    ("texts", 400),
    ("causes", 400),
    ("posing", 410),
    ("warnings", 201),
    ("annotations", 201),
    ("fine", 201),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn answers_without_measure_are_cut_or_refused_and_block_no_others() {
    let hooked = WebhookServer::open(answer).await;
    for (case, code) in CASES {
        hooked.configure("mutating", "c", vec![hooked.webhook(case, json!({}))]).await;
        let other = hooked.client();
        let pinging = tokio::spawn(async move {
            let mut worst = Duration::ZERO;
            loop {
                let begun = Instant::now();
                other.get("/api/v1/namespaces/hooked").await.expect(200);
                worst = worst.max(begun.elapsed());
                if worst > Duration::from_secs(3) {
                    return worst;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let response = hooked.raw.post(MAPS, &map(case)).await;
        assert!(!pinging.is_finished(), "{case}: another request waited for {:?}", pinging.await);
        pinging.abort();
        assert_eq!(response.status, code, "{case}: {}", response.text().chars().take(500).collect::<String>());
        let text = response.text();
        if code != 201 {
            assert!(text.len() < MOST_BYTES, "{case}: {} bytes", text.len());
            assert_eq!(
                (&response.json()["kind"], &response.json()["apiVersion"]),
                (&json!("Status"), &json!("v1")),
                "{case}"
            );
            assert!(!text.contains("\\u001b") && !text.contains('\u{1b}'), "{case}");
        }
        let warned = warnings(&response);
        assert!(warned.len() <= 64 && warned.iter().map(String::len).sum::<usize>() < 6_000, "{case}: {warned:?}");
        assert!(!warned.iter().any(|text| text.contains('\u{1b}')), "{case}: {warned:?}");
        hooked.forget("mutating", "c").await;
    }
}

#[tokio::test]
async fn a_refusal_names_no_token_of_this_server() {
    let hooked = WebhookServer::open(answer).await;
    hooked.configure("validating", "c", vec![hooked.webhook("posing", json!({}))]).await;
    let body = hooked.raw.post(MAPS, &map("x")).await.expect(410).json();
    assert_eq!(body["metadata"], json!({}));
    assert_eq!((&body["kind"], &body["status"]), (&json!("Status"), &json!("Failure")));
}

#[tokio::test]
async fn a_patch_says_how_large_it_may_be() {
    let hooked = WebhookServer::open(answer).await;
    hooked.configure("mutating", "c", vec![hooked.webhook("patch", json!({}))]).await;
    let body = hooked.raw.post(MAPS, &map("x")).await.expect(500).json();
    let message = body["message"].as_str().unwrap();
    assert!(message.ends_with(" bytes, over the limit of 3145728"), "{message}");
}
