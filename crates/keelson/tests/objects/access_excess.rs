//! Tests of webhooks that decide about access and answer too much: users, errors and reasons without measure.
//!
//! `access_webhooks` tests usual answers and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_server::{ReviewVersion, TokenWebhook};
use keelson_testkit::{HookReply, HookServer, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access_webhooks::{Decided, KEPT, LONG, REVIEWS, asks, kubeconfig};

async fn hook(answer: impl Fn(&Value) -> HookReply + Send + Sync + 'static) -> HookServer {
    HookServer::start(&["127.0.0.1"], move |request| std::future::ready(answer(&request.body["spec"]))).await
}

/// Answers without measure: each is cut or refused, and the server keeps none of them whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_reasons_of_webhooks_have_a_limit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let noted = asked.clone();
    let hook = hook(move |spec| {
        noted.fetch_add(1, Ordering::SeqCst);
        let user = match spec["token"].as_str().unwrap().split('-').next().unwrap() {
            "name" => json!({ "username": "n".repeat(300 << 10) }),
            "groups" => json!({ "username": "n", "groups": vec!["g".repeat(100); 9_000] }),
            "extra" => json!({ "username": "n", "extra": { "example.org/a": vec!["e".repeat(100); 9_000] } }),
            "large" => json!({ "username": "n", "groups": vec!["g".repeat(100); 2_000] }),
            _ => {
                let status = json!({ "error": "\u{1b}[31m".repeat(50_000) });
                return HookReply::Json(json!({ "kind": "TokenReview", "status": status }));
            }
        };
        let status = json!({ "authenticated": true, "user": user });
        HookReply::Json(json!({ "kind": "TokenReview", "status": status }))
    })
    .await;
    let files = TempDir::new().unwrap();
    let file = kubeconfig(files.path(), "tokens", &hook.url("/authn"), &hook.ca_bundle());
    let server = TestServer::builder()
        .configure(|config| {
            config.authentication.webhook = Some(TokenWebhook { file, version: ReviewVersion::V1, keep: LONG });
        })
        .start()
        .await;
    for token in ["name", "groups", "extra", "error"] {
        assert_eq!(asks(&server, token, "/api").await.0, 401, "{token}");
        let review = server.raw().post(REVIEWS, &json!({ "spec": { "token": token } })).await.expect(201);
        assert!(review.text().len() < 32 << 10, "{token}: {} bytes", review.text().len());
        assert!(review.json()["status"]["authenticated"] != true, "{token}");
    }
    // 400 of them would take 80 MB, so some are asked for again.
    asked.store(0, Ordering::SeqCst);
    for round in 0..2 {
        for number in 0..400 {
            assert_eq!(asks(&server, &format!("large-{number}"), "/api").await.0, 200, "{round} {number}");
        }
    }
    let count = asked.load(Ordering::SeqCst);
    assert!((401..=550).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reason_is_cut_and_shown_without_control_characters() {
    let hook = hook(|_| {
        let status = json!({ "allowed": false, "denied": true, "reason": "\u{1b}[31m".repeat(100_000) });
        HookReply::Json(
            json!({ "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": status }),
        )
    })
    .await;
    let cluster = Decided::start(&hook.url("/"), &hook.ca_bundle(), KEPT).await;
    let (status, why) = cluster.get("bob", "/api/v1/namespaces/a/pods").await;
    assert_eq!(status, 403);
    assert!(why.len() < 32 << 10 && why.contains("^[[31m") && !why.contains('\u{1b}'), "{} bytes", why.len());
}
