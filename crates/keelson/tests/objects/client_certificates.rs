//! Tests of client certificates that other programs made. The server accepts those that kube-apiserver accepts, and
//! answers others with 401.
//!
//! openssl 3.0 made the files in `client_certificates`. All but the expired one are valid for a hundred years.

use std::fs;
use std::path::{Path, PathBuf};

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::json;

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/client_certificates").join(format!("{name}.pem"))
}

/// Starts a server that trusts the authority of these certificates.
async fn server() -> TestServer {
    TestServer::builder().configure(|config| config.pki.client_ca = Some(file("ca"))).start().await
}

async fn whoami(raw: &Raw, name: &str) -> Answer {
    raw.presenting(&fs::read_to_string(file(name)).unwrap()).post(WHOAMI, &json!({})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_of_any_version_and_key_type_are_accepted() {
    let server = server().await;
    for name in ["version-1-rsa", "version-1-p256", "rsa-4096", "p384", "p521", "ed25519", "any-usage", "below"] {
        let answer = whoami(&server.anonymous(), name).await;
        let user = answer.expect(201).json()["status"]["userInfo"].clone();
        let groups = json!(["lab", "system:authenticated"]);
        assert_eq!((&user["username"], &user["groups"]), (&json!(name), &groups), "{name}");
    }
    let text = server.raw().get("/metrics").await.expect(200).text();
    let counted =
        |line: &str| line.strip_prefix("apiserver_client_certificate_expiration_seconds_count ")?.parse().ok();
    assert!(text.lines().find_map(counted).is_some_and(|count: f64| count >= 8.0), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_certificates_that_prove_nothing_read_401() {
    let server = server().await;
    for name in ["expired", "forged", "sha-1", "server-only", "critical"] {
        let answer = whoami(&server.anonymous(), name).await;
        assert_eq!(answer.status, 401, "{name}: {}", answer.text());
    }
}
