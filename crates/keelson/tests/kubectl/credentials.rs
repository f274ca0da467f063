//! Tests of `kubectl create token`, `kubectl auth whoami` with such a token, and `kubectl certificate`.
//!
//! `objects/subresources/tokens.rs` tests the rules of tokens.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_server::Switches;
use keelson_testkit::TestServer;
use serde_json::json;

use crate::Shell;

/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// Repeats a command until its output is as expected.
async fn until(shell: &Shell, line: &str, is_so: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let printed = shell.ok(line).await;
        if is_so(&printed) {
            return printed;
        }
        assert!(begun.elapsed() < PATIENCE, "kubectl {line}: {printed}");
    }
}

#[tokio::test]
async fn a_token_is_made_and_used() {
    let shell = Shell::start().await;
    shell.kubectl("create serviceaccount default").await;
    let token = shell.ok("create token default --duration=20m").await;
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    let file = shell.ok("create token default -o jsonpath={.spec.expirationSeconds}").await;
    assert_eq!(file, "3600");
    let refused = shell.refused("create token nobody").await;
    assert_eq!(refused, "error: failed to create token: serviceaccounts \"nobody\" not found\n");
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.trim()}});
    let user = shell.feed("create -f - -o jsonpath={.status.user.username}", review.to_string()).await;
    assert_eq!(user, "system:serviceaccount:default:default");
}

#[tokio::test]
async fn requests_for_certificates_are_approved_and_denied() {
    let shell = Shell::start().await;
    let text = include_str!("../objects/subresources/lab.csr");
    for name in ["good", "bad"] {
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": {"request": STANDARD.encode(text), "signerName": "example.com/lab",
            "usages": ["client auth"]}});
        shell.feed("create -f -", request.to_string()).await;
    }
    shell
        .check(&[
            ("certificate approve good", "certificatesigningrequest.certificates.k8s.io/good approved\n"),
            ("certificate deny bad", "certificatesigningrequest.certificates.k8s.io/bad denied\n"),
            ("get csr good bad -o jsonpath={.items[*].status.conditions[0].type}", "Approved Denied"),
        ])
        .await;
    let refused = shell.refused("certificate deny good").await;
    assert_eq!(refused, "error: certificate signing request \"good\" is already Approved\n");
}

#[tokio::test]
async fn a_client_has_its_certificate_when_its_request_is_approved() {
    let text = include_str!("../objects/subresources/lab.csr");
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "lab"}, "spec": {"request": STANDARD.encode(text),
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let certificate = "get csr lab -o jsonpath={.status.certificate}";
    let approved = "certificatesigningrequest.certificates.k8s.io/lab approved\n";
    let with = async |controllers: [&str; 2]| {
        let controllers = Switches::parse(controllers).unwrap();
        let server = TestServer::builder().configure(|config| config.controllers = controllers).start().await;
        let shell = Shell { server };
        shell.feed("create -f -", request.to_string()).await;
        shell.check(&[(certificate, ""), ("certificate approve lab", approved)]).await;
        shell
    };
    let shell = with(["*", "-serviceaccount"]).await;
    let issued = until(&shell, certificate, |printed| !printed.is_empty()).await;
    let issued = String::from_utf8(STANDARD.decode(issued).unwrap()).unwrap();
    assert!(issued.starts_with("-----BEGIN CERTIFICATE-----"), "{issued}");
    assert!(shell.ok("get csr lab").await.contains("Approved,Issued"));

    // A controller manager may sign instead of this server. The objects of the other controllers show that they ran,
    // and nothing is signed.
    let shell = with(["*", "-csrsigning"]).await;
    shell.ok("create namespace later").await;
    until(&shell, "get serviceaccounts -n later -o name", |printed| printed.contains("default")).await;
    shell.check(&[(certificate, "")]).await;
}
