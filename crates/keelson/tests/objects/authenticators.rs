//! Tests of all authenticators in one server: each has its own tokens, and the webhook is called last, for tokens that
//! no other accepts.
//!
//! Other files test each authenticator alone.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keelson_server::{OidcFlags, ReviewVersion, TokenWebhook};
use keelson_testkit::{HookReply, HookServer, TestServer};
use serde_json::json;
use tempfile::TempDir;

use super::issuers::{Signer, key_set, now};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/robot";
const BOOTSTRAP: &str = "abc123.0123456789abcdef";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a token file, bootstrap tokens, service accounts, a JWT issuer and a webhook.
struct Believing {
    server: TestServer,
    issuer: HookServer,
    signer: Signer,
    asked: Arc<Mutex<Vec<String>>>,
    /// True if the webhook accepts every token.
    knows: Arc<AtomicBool>,
    _hook: HookServer,
    _files: TempDir,
}

impl Believing {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let file = |name: &str| files.path().join(name);
        let signer = Signer::ec("e");
        let keys = key_set(&[&signer]);
        let issuer = HookServer::start(&["127.0.0.1"], move |request| {
            let host = request.headers["host"].to_str().unwrap();
            let document =
                json!({ "issuer": format!("https://{host}"), "jwks_uri": format!("https://{host}/keys") }).to_string();
            let body = if request.path == "/keys" { keys.clone() } else { document };
            std::future::ready(HookReply::Other(200, vec![("content-type", "application/json".to_owned())], body))
        })
        .await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let knows = Arc::new(AtomicBool::new(true));
        let (note, known) = (asked.clone(), knows.clone());
        let hook = HookServer::start(&["127.0.0.1"], move |request| {
            note.lock().unwrap().push(request.body["spec"]["token"].as_str().unwrap().to_owned());
            let status = if known.load(Ordering::SeqCst) {
                json!({ "authenticated": true, "user": { "username": "hooked" } })
            } else {
                json!({ "authenticated": false, "error": "it is nobody's" })
            };
            std::future::ready(HookReply::Json(json!({ "status": status })))
        })
        .await;
        fs::write(file("tokens.csv"), "t-ann,ann,u-ann\n").unwrap();
        fs::write(file("issuer.crt"), issuer.ca()).unwrap();
        let kubeconfig = json!({
            "current-context": "c", "contexts": [{ "name": "c", "context": { "cluster": "hook" } }],
            "clusters": [{ "name": "hook", "cluster": { "server": hook.url("/"), "certificate-authority-data": hook.ca_bundle() } }],
        });
        fs::write(file("hook"), kubeconfig.to_string()).unwrap();
        let server = TestServer::builder().configure(|config| {
            config.token_file = Some(file("tokens.csv"));
            config.bootstrap_tokens = true;
            config.authentication.oidc = Some(OidcFlags {
                issuer_url: issuer.url(""),
                client_id: "app".to_owned(),
                ca_file: Some(file("issuer.crt")),
                username_claim: "sub".to_owned(),
                username_prefix: "-".to_owned(),
                signing_algorithms: vec!["ES256".to_owned()],
                ..OidcFlags::default()
            });
            let keep = Duration::ZERO;
            config.authentication.webhook = Some(TokenWebhook { file: file("hook"), version: ReviewVersion::V1, keep });
        });
        let this = Self { server: server.start().await, issuer, signer, asked, knows, _hook: hook, _files: files };
        let data = json!({ "token-id": "abc123", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" });
        let secret = json!({ "metadata": { "name": "bootstrap-token-abc123" }, "type": "bootstrap.kubernetes.io/token", "stringData": data });
        this.server.raw().post("/api/v1/namespaces/kube-system/secrets", &secret).await.expect(201);
        this
    }

    /// A token for jane, signed by one of the issuers.
    fn jane(&self, signer: &Signer) -> String {
        signer.token(
            &json!({ "iss": self.issuer.url(""), "aud": "app", "sub": "jane", "iat": now(), "exp": now() + 600 }),
        )
    }

    /// The user of a token according to a review, or the error.
    async fn review(&self, token: &str) -> String {
        let review = json!({ "spec": { "token": token } });
        let status = self.server.raw().post(REVIEWS, &review).await.expect(201).json()["status"].clone();
        let told = if status["authenticated"] == true { &status["user"]["username"] } else { &status["error"] };
        told.as_str().unwrap().to_owned()
    }

    /// The requests to the webhook since the last call.
    fn take_requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().drain(..).collect()
    }
}

/// A token of a service account of that server.
async fn account_token(server: &TestServer) -> String {
    let raw = server.raw();
    let account = json!({ "metadata": { "name": "robot" } });
    raw.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let issued = raw.post(format!("{ACCOUNT}/token"), &json!({ "spec": {} })).await.expect(201).json();
    issued["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_authenticator_has_its_tokens_and_the_webhook_gets_the_rest() {
    let cluster = Believing::start().await;
    let begun = Instant::now();
    while cluster.review(&cluster.jane(&cluster.signer)).await != "jane" {
        assert!(begun.elapsed() < PATIENCE, "the issuer is not reached");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.take_requests();
    let account = account_token(&cluster.server).await;
    let robot = "system:serviceaccount:default:robot";
    let known = [
        ("t-ann", "ann"),
        (BOOTSTRAP, "system:bootstrap:abc123"),
        (&*account, robot),
        (&*cluster.jane(&cluster.signer), "jane"),
    ];
    for (token, name) in known {
        assert_eq!(cluster.review(token).await, name);
        assert_eq!(cluster.take_requests(), [""; 0], "{name} is known without the webhook");
    }
    // The authenticator of a token's issuer may reject the token: it may come from another cluster with the same
    // issuer, belong to a deleted account, or have another key. The next authenticator may still accept it.
    let other = TestServer::start().await;
    let (elsewhere, forged) = (account_token(&other).await, cluster.jane(&Signer::ec("f")));
    cluster.server.raw().delete(ACCOUNT).await.expect(200);
    for token in ["of-nobody", "abc123.0123456789abcdee", &*elsewhere, &*account, &*forged] {
        assert_eq!(cluster.review(token).await, "hooked", "{token}");
        assert_eq!(cluster.take_requests(), [token], "{token}");
    }
    // If no authenticator accepts the token, the error has the reason of each.
    cluster.knows.store(false, Ordering::SeqCst);
    let told = cluster.review(&elsewhere).await;
    assert_eq!(told, "[invalid bearer token, invalid signature, no keys found, it is nobody's]");
    let told = cluster.review(&forged).await;
    assert!(
        told.starts_with("[invalid bearer token, oidc: verify token: ") && told.ends_with(", it is nobody's]"),
        "{told}"
    );
    let call = cluster.server.anonymous().get("/api").header("authorization", format!("Bearer {elsewhere}"));
    call.await.expect(401);
    assert_eq!(cluster.take_requests().len(), 3);
}
