//! `kubectl create token`, `kubectl auth whoami` with it, and `kubectl certificate`.
//!
//! The rules of tokens are tested over the wire, in `objects/subresources/tokens.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::Shell;

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
