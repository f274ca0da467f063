//! Tests of the metrics of access: the user of a request, the decision, and the authorizer that made it.
//!
//! The names are those of kube-apiserver, so its dashboards and alerts work.

use std::fs;

use keelson_testkit::{Raw, TestServer};
use serde_json::json;
use tempfile::TempDir;

/// The value of a metric.
async fn metric(admin: &Raw, name: &str) -> f64 {
    let text = admin.get("/metrics").await.expect(200).text();
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("there is no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authentication_and_authorization_metrics_have_upstream_names() {
    let files = TempDir::new().unwrap();
    let tokens = files.path().join("tokens.csv");
    fs::write(&tokens, "t-ann,ann,u-ann\n").unwrap();
    let server = TestServer::builder().configure(|config| config.token_file = Some(tokens)).start().await;
    let admin = server.raw();
    let names = [
        "authentication_attempts{result=\"success\"}",
        "authentication_attempts{result=\"error\"}",
        "authentication_duration_seconds_count{result=\"success\"}",
        "authenticated_user_requests{username=\"other\"}",
        "authorization_attempts_total{result=\"allowed\"}",
        "authorization_attempts_total{result=\"no-opinion\"}",
        "authorization_duration_seconds_count{result=\"no-opinion\"}",
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"}",
    ];
    let mut before = Vec::new();
    for name in names {
        before.push(metric(&admin, name).await);
    }
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for (token, status) in [("t-ann", 201), ("t-nobody", 401)] {
        let call = server.anonymous().post(whoami, &json!({}));
        call.header("authorization", format!("Bearer {token}")).await.expect(status);
    }
    server.anonymous().get("/api/v1/secrets").header("authorization", "Bearer t-ann").await.expect(403);
    for (name, before) in names.into_iter().zip(before) {
        assert!(metric(&admin, name).await >= before + 1.0, "{name}");
    }
}
