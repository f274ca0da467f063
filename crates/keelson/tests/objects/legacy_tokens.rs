//! Tests of legacy service account tokens, which a kube-controller-manager with the same key stores in secrets.
//!
//! The texts are those of kube-apiserver.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_testkit::{Answer, TestServer};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use super::admission::warnings;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MERGE: &str = "application/merge-patch+json";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const WARNING: &str = "299 - \"Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated \
                       secret-based tokens.\"";
/// The timeout for a change to become visible, and the interval of checks.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// The two numbers of a DER signature in the form for tokens: concatenated, with 32 bytes each (RFC 7518, section 3.4).
fn joined(der: &[u8]) -> Vec<u8> {
    let (mut rest, mut out) = (&der[2..], Vec::new());
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let digits: Vec<u8> = rest[2..2 + length].iter().copied().skip_while(|digit| *digit == 0).collect();
        out.extend(std::iter::repeat_n(0, 32 - digits.len()).chain(digits));
        rest = &rest[2 + length..];
    }
    out
}

/// A token that is signed with the key of a server.
pub(super) fn signed_by(server: &TestServer, header: &Value, claims: &Value) -> String {
    let key = KeyPair::from_pem(&server.running().pki().service_account.private_pem).unwrap();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = key.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(joined(&signature)))
}

fn signed(server: &TestServer, secret: &str, uid: &str) -> String {
    let claims = json!({
        "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:web",
        "kubernetes.io/serviceaccount/namespace": "default", "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": "web", "kubernetes.io/serviceaccount/service-account.uid": uid,
    });
    signed_by(server, &json!({"alg": "ES256"}), &claims)
}

/// A secret with a token of the account `web`.
fn secret(name: &str, token: &str, labels: &Value) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": "web"});
    let metadata = json!({"name": name, "annotations": annotations, "labels": labels});
    json!({"metadata": metadata, "type": "kubernetes.io/service-account-token", "stringData": {"token": token}})
}

/// The response to a client with this token.
async fn whoami(server: &TestServer, token: &str) -> Answer {
    let asked = server.anonymous().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
    asked.header("authorization", format!("Bearer {token}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_legacy_token_holds_as_long_as_its_secret_has_it() {
    let server = TestServer::start().await;
    let admin = server.raw();
    let account = json!({"metadata": {"name": "web"}, "secrets": [{"name": "another"}]});
    let account = admin.post(ACCOUNTS, &account).await.expect(201).json();
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let token = signed(&server, "web-token", uid);
    let review = async |token: &str| {
        let sent = json!({"spec": {"token": token}});
        admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &sent).await.expect(201).json()["status"].clone()
    };
    let refused = |why: &str| json!({"user": {}, "error": format!("[invalid bearer token, {why}]")});
    assert_eq!(review(&token).await, refused("Token has been invalidated"), "nobody has put it into a secret");

    admin.post(SECRETS, &secret("web-token", &token, &json!({}))).await.expect(201);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    let expected = json!({"username": "system:serviceaccount:default:web", "uid": uid, "groups": groups});
    assert_eq!(whoami(&server, &token).await.expect(201).json()["status"]["userInfo"], expected);
    assert_eq!((&review(&token).await["authenticated"], &review(&token).await["user"]), (&json!(true), &expected));
    let used = admin.get(format!("{SECRETS}/web-token")).await.expect(200).json();
    let day = used["metadata"]["labels"][LAST_USED].as_str().unwrap().to_owned();
    assert!(day.len() == 10 && day.starts_with("20"), "{day}");

    // If the account lists the secret, a controller has created it, and the client of its token gets a warning.
    let warned = async || warnings(&whoami(&server, &token).await.expect(201));
    assert_eq!(warned().await, [""; 0]);
    let names = json!({"secrets": [{"name": "web-token"}]});
    admin.patch(format!("{ACCOUNTS}/web"), MERGE, &names).await.expect(200);
    let begun = Instant::now();
    while warned().await != [WARNING] {
        assert!(begun.elapsed() < PATIENCE, "a token that a controller has made gets no warning");
        tokio::time::sleep(LOOK).await;
    }

    let another = signed(&server, "web-token", uid);
    assert_ne!(another, token, "signatures are random");
    assert_eq!(review(&another).await, refused("Token does not match server's copy"));
    let marked = |since: &str| json!({"metadata": {"labels": {INVALID_SINCE: since}}});
    admin.patch(format!("{SECRETS}/web-token"), MERGE, &marked("")).await.expect(200);
    assert_eq!(review(&token).await["authenticated"], json!(true), "an empty mark says nothing");
    whoami(&server, &token).await.expect(201);
    admin.patch(format!("{SECRETS}/web-token"), MERGE, &marked(&day)).await.expect(200);
    let marked = "[invalid bearer token, the token in secret default/web-token for service account default/web has been marked invalid.";
    let begun = Instant::now();
    while !review(&token).await["error"].as_str().unwrap_or_default().starts_with(marked) {
        assert!(begun.elapsed() < PATIENCE, "a token is taken that was marked");
        tokio::time::sleep(LOOK).await;
    }
    admin.delete(format!("{SECRETS}/web-token")).await.expect(200);
    let begun = Instant::now();
    while review(&token).await != refused("Token has been invalidated") {
        assert!(begun.elapsed() < PATIENCE, "a token outlives its secret");
        tokio::time::sleep(LOOK).await;
    }
}

/// The record shows an operator that a client still uses the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidated_legacy_tokens_are_refused_and_their_use_recorded() {
    let server = TestServer::start().await;
    let admin = server.raw();
    let account = admin.post(ACCOUNTS, &json!({"metadata": {"name": "web"}})).await.expect(201).json();
    let token = signed(&server, "marked", account["metadata"]["uid"].as_str().unwrap());
    let marked = secret("marked", &token, &json!({INVALID_SINCE: "2026-01-02"}));
    admin.post(SECRETS, &marked).await.expect(201);
    assert_eq!(warnings(&whoami(&server, &token).await.expect(401)), [""; 0]);
    let used = admin.get(format!("{SECRETS}/marked")).await.expect(200).json();
    assert!(used["metadata"]["labels"][LAST_USED].is_string(), "{used}");
}
