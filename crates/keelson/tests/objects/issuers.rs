//! Tests of JWT issuers in an AuthenticationConfiguration. The issuer runs in a separate process, rotates its keys,
//! dies and recovers. Other tests forge its tokens.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_server::OidcFlags;
use keelson_testkit::{HookProcess, HookReply, HookRequest, TestServer, TestServerBuilder, hook_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the issuer, if this program was started as its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_issues() {
    hook_process(answer).await;
}

/// Issuers below `/one`, `/two` and so on at this host. All of them publish the keys that the current order sets. The
/// document of `/elsewhere` names `/two`.
fn answer(mood: &str, request: &HookRequest) -> HookReply {
    let host = request.headers["host"].to_str().unwrap();
    let named = |name: &str| {
        HookReply::Json(
            json!({ "issuer": format!("https://{host}/{name}"), "jwks_uri": format!("https://{host}/keys") }),
        )
    };
    match request.path.as_str() {
        "/keys" => HookReply::Json(serde_json::from_str(mood).unwrap_or_default()),
        "/elsewhere/config" => named("two"),
        "/lies/.well-known/openid-configuration" => named("one"),
        path => match path[1..].strip_suffix("/.well-known/openid-configuration") {
            Some(name) => named(name),
            None => HookReply::Other(404, Vec::new(), "not found".to_owned()),
        },
    }
}

enum Key {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A key with its id.
pub(super) struct Signer {
    id: &'static str,
    key: Key,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(super) fn ec(id: &'static str) -> Self {
        Self { id, key: Key::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()) }
    }

    fn rsa(id: &'static str) -> Self {
        Self { id, key: Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    fn algorithm(&self) -> &'static str {
        match self.key {
            Key::Ec(_) => "ES256",
            Key::Rsa(_) => "RS256",
        }
    }

    fn public(&self) -> Value {
        match &self.key {
            Key::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": encode(x), "y": encode(y) })
            }
            Key::Rsa(pair) => {
                let [n, e] = numbers(pair.public_key().as_ref());
                json!({ "kty": "RSA", "kid": self.id, "use": "sig", "n": encode(n), "e": encode(e) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.key {
            Key::Ec(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.algorithm(), "kid": self.id }), claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        format!("{signed}.{}", encode(self.sign(signed.as_bytes())))
    }
}

/// The modulus and the exponent of a public key of RSA (PKCS #1): a sequence of two integers.
fn numbers(der: &[u8]) -> [Vec<u8>; 2] {
    let mut rest = &der[4..];
    [(), ()].map(|()| {
        let (length, begin) = match rest[1] {
            0x82 => (usize::from(rest[2]) * 256 + usize::from(rest[3]), 4),
            0x81 => (usize::from(rest[2]), 3),
            short => (usize::from(short), 2),
        };
        let (number, behind) = rest[begin..].split_at(length);
        rest = behind;
        number.iter().copied().skip_while(|byte| *byte == 0).collect()
    })
}

pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

pub(super) fn key_set(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.public()).collect::<Vec<_>>() }).to_string()
}

struct Lab {
    process: HookProcess,
    server: TestServer,
    file: PathBuf,
    _files: TempDir,
}

impl Lab {
    /// Starts a server with the issuers of a configuration. In its text, `HOST` is replaced by their host and `CA` by
    /// its authority.
    async fn start(configuration: &str, signers: &[&Signer]) -> Self {
        let mut process = HookProcess::start("issuers::the_process_that_issues").await;
        process.be(&key_set(signers)).await;
        let files = TempDir::new().unwrap();
        let file = files.path().join("authentication.yaml");
        fs::write(&file, written(configuration, &process)).unwrap();
        let server = builder(&file).start().await;
        Self { process, server, file, _files: files }
    }

    /// Replaces the configuration file.
    fn write(&self, configuration: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, written(configuration, &self.process)).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// The hash of the configuration file.
    fn file_hash(&self) -> String {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &fs::read(&self.file).unwrap());
        hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn claims(&self, issuer: &str, more: &Value) -> Value {
        let mut claims = json!({
            "iss": self.process.url(&format!("/{issuer}")), "aud": "app", "sub": "jane", "iat": now(), "nbf": now(), "exp": now() + 600,
        });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claims.as_object_mut().unwrap().retain(|_, value| *value != "absent");
        claims
    }

    async fn code(&self, token: &str) -> u16 {
        let call = self.server.anonymous().post(WHOAMI, &json!({}));
        call.header("authorization", format!("Bearer {token}")).await.status
    }

    /// The result of a review of a token.
    async fn review(&self, token: &str) -> Value {
        let review = json!({ "spec": { "token": token } });
        self.server.raw().post(REVIEWS, &review).await.expect(201).json()["status"].clone()
    }

    /// The user of a token, which must be valid.
    async fn user(&self, token: &str) -> Value {
        let status = self.review(token).await;
        assert_eq!(status["authenticated"], true, "{status}");
        assert_eq!(self.code(token).await, 201);
        status["user"].clone()
    }

    /// The reason why a token is rejected.
    async fn fault(&self, token: &str) -> String {
        let status = self.review(token).await;
        assert_eq!((&status["authenticated"], &status["user"]), (&Value::Null, &json!({})), "{status}");
        assert_eq!(self.code(token).await, 401);
        status["error"].as_str().unwrap().to_owned()
    }

    /// Waits until a token is accepted, or rejected. Each attempt has another token of the same key.
    async fn becomes(&self, signer: &Signer, issuer: &str, code: u16) {
        let begun = Instant::now();
        for number in 0.. {
            let token = signer.token(&self.claims(issuer, &json!({ "nonce": number })));
            let found = self.code(&token).await;
            if found == code {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{issuer} stays {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn metric(&self, line: &str) -> bool {
        let text = self.server.raw().get("/metrics").await.expect(200).text();
        text.lines().any(|found| crate::without_server(found).trim_end_matches(".0") == line)
    }

    async fn until_metric(&self, line: &str) {
        let begun = Instant::now();
        while !self.metric(line).await {
            assert!(begun.elapsed() < PATIENCE, "there is never {line}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn written(configuration: &str, process: &HookProcess) -> String {
    let ca = String::from_utf8(STANDARD.decode(process.ca_bundle()).unwrap()).unwrap();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    format!("{head}{configuration}").replace("HOST", &process.url("")).replace("CA", &json!(ca).to_string())
}

fn builder(file: &std::path::Path) -> TestServerBuilder {
    let file = file.to_owned();
    TestServer::builder().configure(|config| config.authentication.file = Some(file))
}

const ONE: &str = "jwt:
- issuer: {url: HOST/one, certificateAuthority: CA, audiences: [app]}
  claimMappings: {username: {claim: sub, prefix: 'one:'}}
";

const MAPPED: &str = "jwt:
- issuer: {url: HOST/one, certificateAuthority: CA, audiences: [app, other], audienceMatchPolicy: MatchAny}
  claimMappings:
    username: {claim: sub, prefix: 'one:'}
    groups: {claim: groups, prefix: 'one:'}
    uid: {claim: uid}
    extra: [{key: example.org/tenant, valueExpression: claims.tenant}]
  claimValidationRules:
  - {claim: hd, requiredValue: example.org}
  - {expression: claims.exp - claims.nbf <= 3600, message: it lives too long}
  userValidationRules:
  - {expression: \"!user.username.startsWith('one:system:')\", message: reserved}
  - {expression: \"user.groups.all(g, g != 'one:nobody')\"}
- issuer: {url: HOST/two, discoveryURL: HOST/elsewhere/config, certificateAuthority: CA, audiences: [app]}
  claimMappings:
    username: {expression: \"claims.email_verified ? claims.email : 'unverified:' + claims.sub\"}
    groups: {expression: \"has(claims.groups) ? dyn(claims.groups).map(g, 'two:' + g) : []\"}
- issuer: {url: HOST/lies, certificateAuthority: CA, audiences: [app]}
  claimMappings: {username: {claim: sub, prefix: ''}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_issuers_are_users_as_the_configuration_says() {
    let (ec, rsa) = (Signer::ec("e"), Signer::rsa("r"));
    let lab = Lab::start(MAPPED, &[&ec, &rsa]).await;
    let all = json!({ "groups": ["devs"], "uid": "u-1", "tenant": "acme", "hd": "example.org", "jti": "id-1" });
    let one = |more: Value| {
        let mut stated = all.clone();
        stated.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ec.token(&lab.claims("one", &stated))
    };
    lab.becomes_known("one").await;
    lab.becomes_known("two").await;
    let extra = json!({ "authentication.kubernetes.io/credential-id": ["JTI=id-1"], "example.org/tenant": ["acme"] });
    let jane =
        json!({ "username": "one:jane", "uid": "u-1", "groups": ["one:devs", "system:authenticated"], "extra": extra });
    assert_eq!(lab.user(&one(json!({}))).await, jane);
    assert_eq!(lab.user(&one(json!({ "aud": ["x", "other"], "groups": "devs" }))).await, jane);
    assert_eq!(lab.user(&rsa.token(&lab.claims("one", &all))).await, jane);
    assert_eq!(
        lab.user(&ec.token_with(&json!({ "alg": "ES256" }), &lab.claims("one", &all))).await,
        jane,
        "without a key id"
    );
    assert_eq!(lab.user(&one(json!({ "groups": "absent" }))).await["groups"], json!(["system:authenticated"]));
    // The user's rights are those of any other user.
    let pods = lab.server.anonymous().get("/api/v1/pods").header("authorization", format!("Bearer {}", one(json!({}))));
    let refused = pods.await.expect(403).json()["message"].clone();
    assert_eq!(
        refused,
        "pods is forbidden: User \"one:jane\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
    );

    let refusals = [
        (json!({ "aud": "x" }), "oidc: verify token: oidc: expected audience in [\"app\" \"other\"] got [\"x\"]"),
        (
            json!({ "groups": 5 }),
            "oidc: parse groups claim \"groups\": json: cannot unmarshal number into Go value of type string",
        ),
        (json!({ "uid": "absent" }), "oidc: parse uid claim \"uid\": claim not present"),
        (json!({ "sub": "absent" }), "oidc: parse username claims \"sub\": claim not present"),
        (json!({ "tenant": "absent" }), "expression 'claims.tenant' resulted in error: no such key: tenant"),
        (json!({ "hd": "absent" }), "oidc: required claim hd not present in ID token"),
        (json!({ "hd": "x" }), "oidc: required claim hd value does not match. Got = x, want = example.org"),
        (
            json!({ "exp": now() + 9000 }),
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 3600' failed: it \
             lives too long",
        ),
        (
            json!({ "sub": "system:x" }),
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('one:system:')' \
             failed: reserved",
        ),
        (
            json!({ "groups": ["nobody"] }),
            "oidc: error evaluating user info validation rule: validation expression 'user.groups.all(g, g != 'one:nobody')' failed: ",
        ),
    ];
    for (more, why) in refusals {
        assert_eq!(lab.fault(&one(more.clone())).await, format!("[invalid bearer token, {why}]"), "{more}");
    }

    let two = |more: Value| ec.token(&lab.claims("two", &more));
    let known = lab.user(&two(json!({ "email": "j@x.org", "email_verified": true, "groups": ["a"] }))).await;
    assert_eq!(known, json!({ "username": "j@x.org", "groups": ["two:a", "system:authenticated"] }));
    assert_eq!(lab.user(&two(json!({ "email_verified": false }))).await["username"], "unverified:jane");
    let empty = lab.fault(&two(json!({ "email": "", "email_verified": true }))).await;
    assert_eq!(empty, "[invalid bearer token, oidc: empty username via CEL expression is not allowed]");
    let lies = lab.fault(&ec.token(&lab.claims("lies", &json!({})))).await;
    assert_eq!(lies, "[invalid bearer token, oidc: authenticator not initialized]", "its documents are another's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_refused() {
    let (own, foreign, rsa) = (Signer::ec("k"), Signer::ec("k"), Signer::rsa("r"));
    let lab = Lab::start(ONE, &[&own, &rsa]).await;
    lab.becomes_known("one").await;
    let good = lab.claims("one", &json!({}));
    assert_eq!(lab.user(&own.token(&good)).await["username"], "one:jane");
    let unsigned =
        |header: Value, claims: &Value| format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let masters = lab.claims("one", &json!({ "sub": "admin", "groups": ["system:masters"] }));

    // Signed by a foreign key: with the same id, with another id, and without an id.
    let signature =
        "[invalid bearer token, oidc: verify token: failed to verify signature: failed to verify id token signature]";
    for header in
        [json!({ "alg": "ES256", "kid": "k" }), json!({ "alg": "ES256", "kid": "x" }), json!({ "alg": "ES256" })]
    {
        assert_eq!(lab.fault(&foreign.token_with(&header, &masters)).await, signature, "{header}");
    }
    // Another key of the issuer is not valid for this id or this algorithm.
    assert_eq!(lab.fault(&rsa.token_with(&json!({ "alg": "RS256", "kid": "k" }), &masters)).await, signature);
    assert_eq!(lab.fault(&rsa.token_with(&json!({ "alg": "PS256", "kid": "r" }), &masters)).await, signature);
    // Changed claims with the original signature.
    let signed = own.token(&good);
    let (_, last) = signed.rsplit_once('.').unwrap();
    let changed = format!("{}.{last}", unsigned(json!({ "alg": "ES256", "kid": "k" }), &masters));
    assert_eq!(lab.fault(&changed).await, signature);
    // No signature, and a symmetric signature with a public key as the secret.
    let unsupported = |name: &str| {
        let known = r#"["ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "RS256" "RS384" "RS512"]"#;
        let why = format!("oidc: id token signed with unsupported algorithm, expected {known} got {name:?}");
        format!("[invalid bearer token, oidc: verify token: {why}]")
    };
    for name in ["none", "None", ""] {
        let token = unsigned(json!({ "alg": name, "kid": "k" }), &masters);
        assert_eq!(lab.fault(&format!("{token}.")).await, unsupported(name));
        assert_eq!(lab.fault(&format!("{token}.{last}")).await, unsupported(name));
    }
    let public = rsa.public();
    for secret in [public.to_string(), public["n"].as_str().unwrap().to_owned()] {
        let token = unsigned(json!({ "alg": "HS256", "kid": "r" }), &masters);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), token.as_bytes());
        assert_eq!(lab.fault(&format!("{token}.{}", encode(tag))).await, unsupported("HS256"));
    }
    // An unknown critical header.
    let critical = own.token_with(&json!({ "alg": "ES256", "kid": "k", "crit": ["b64"], "b64": false }), &good);
    assert_eq!(lab.fault(&critical).await, unsupported("ES256"));
    // Expired tokens, and tokens of other audiences and other issuers.
    let of = |more: Value| own.token(&lab.claims("one", &more));
    for (more, why) in [
        (json!({ "exp": now() - 1 }), "token is expired"),
        (json!({ "exp": "absent" }), "token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"),
        (json!({ "nbf": now() + 3600 }), "before the nbf (not before) time"),
        (json!({ "aud": "other" }), "expected audience \"app\" got [\"other\"]"),
        (json!({ "aud": "absent" }), "expected audience \"app\" got []"),
        (json!({ "sub": 5 }), "cannot unmarshal number into Go struct field idToken.sub of type string"),
    ] {
        let told = lab.fault(&of(more.clone())).await;
        assert!(told.contains(why), "{more}: {told}");
    }
    for iss in ["https://other", "", "HOST/one/"] {
        let iss = iss.replace("HOST", &lab.process.url(""));
        assert_eq!(lab.fault(&of(json!({ "iss": iss }))).await, "invalid bearer token");
    }
    for nonsense in ["a.b.c", "....", "e30.e30.e30"] {
        assert_eq!(lab.code(nonsense).await, 401);
    }
    // A token cannot claim a user of the server itself.
    let server_own = lab.claims("one", &json!({ "sub": "system:serviceaccount:kube-system:default" }));
    assert_eq!(lab.user(&own.token(&server_own)).await["username"], "one:system:serviceaccount:kube-system:default");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_reviews_are_cached_for_a_time() {
    const TIMES: u32 = 20;
    let key = Signer::ec("k");
    let lab = Lab::start(ONE, &[&key]).await;
    lab.becomes_known("one").await;
    let (good, bad) =
        (key.token(&lab.claims("one", &json!({}))), key.token(&lab.claims("one", &json!({ "aud": "x" }))));
    for _ in 0..TIMES {
        assert_eq!((lab.code(&good).await, lab.code(&bad).await), (201, 401));
    }
    let text = lab.server.raw().get("/metrics").await.expect(200).text();
    let judged = |result: &str| {
        let name = format!("keelson_jwt_tokens_total{{issuer=\"{}\",result=\"{result}\"}} ", lab.process.url("/one"));
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).unwrap()
    };
    assert!((1.0..f64::from(TIMES)).contains(&judged("success")), "a token is verified each time");
    assert_eq!(judged("failure"), f64::from(TIMES), "why it is refused may change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuer_keys_rotate_and_stay_valid_through_an_outage() {
    let (old, new, next) = (Signer::ec("1"), Signer::ec("2"), Signer::ec("3"));
    let mut lab = Lab::start(ONE, &[&old]).await;
    lab.becomes_known("one").await;
    let token = |lab: &Lab, signer: &Signer, number: u32| signer.token(&lab.claims("one", &json!({ "nonce": number })));
    lab.user(&token(&lab, &old, 1)).await;
    lab.fault(&token(&lab, &new, 1)).await;
    lab.process.be(&key_set(&[&new, &old])).await;
    // The first token with an unknown key makes the server fetch the keys again.
    lab.user(&token(&lab, &new, 2)).await;
    lab.user(&token(&lab, &old, 2)).await;
    lab.process.be(&key_set(&[&next])).await;
    lab.user(&token(&lab, &next, 3)).await;
    lab.fault(&token(&lab, &new, 3)).await;

    // Many tokens with unknown keys share one fetch, and other requests do not wait for it.
    let strangers: Vec<String> = (0..40).map(|number| token(&lab, &old, 100 + number)).collect();
    let codes = futures::future::join_all(strangers.iter().map(|token| lab.code(token))).await;
    assert!(codes.iter().all(|code| *code == 401), "{codes:?}");

    lab.process.kill().await;
    lab.user(&token(&lab, &next, 4)).await;
    let down = lab.fault(&token(&lab, &old, 4)).await;
    assert!(down.contains("failed to verify signature: fetching keys oidc: get keys failed: Get "), "{down}");
    lab.server.raw().get("/api/v1/nodes").await.expect(200);

    // A server that starts without the issuer rejects the issuer's users until it is back, and no others.
    lab.server.restart().await;
    let unknown = lab.fault(&token(&lab, &next, 5)).await;
    assert_eq!(unknown, "[invalid bearer token, oidc: authenticator not initialized]");
    lab.server.raw().get("/api/v1/nodes").await.expect(200);
    lab.process.restart().await;
    lab.process.be(&key_set(&[&next])).await;
    lab.becomes(&next, "one", 201).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_counts_and_a_wrong_one_does_not() {
    let key = Signer::ec("k");
    let two = ONE.replace("one", "two");
    let lab = Lab::start(ONE, &[&key]).await;
    lab.becomes(&key, "one", 201).await;
    let reloads = |status: &str, count: u32| {
        format!(r#"apiserver_authentication_config_controller_automatic_reloads_total{{status="{status}"}} {count}"#)
    };
    assert!(lab.metric(&reloads("success", 0)).await);
    lab.write(&format!("{ONE}{}", two.trim_start_matches("jwt:\n")));
    lab.becomes(&key, "two", 201).await;
    lab.becomes(&key, "one", 201).await;
    lab.until_metric(&reloads("success", 1)).await;
    let text = lab.server.raw().get("/metrics").await.expect(200).text();
    let family = |name: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let (line, others) = (lines.next().unwrap_or_default().to_owned(), lines.count());
        assert!(line.contains(r#"{apiserver_id_hash="sha256:"#), "{name}: {line}");
        (line, others)
    };
    let (configuration, others) = family("apiserver_authentication_config_controller_last_config_info");
    assert!(configuration.contains(&format!(r#"hash="sha256:{}""#, lab.file_hash())) && others == 0, "{configuration}");
    let keys = "apiserver_authentication_jwt_authenticator_jwks_fetch_last";
    let (fetched, _) = family(&format!("{keys}_timestamp_seconds"));
    assert!(fetched.contains(r#"jwt_issuer_hash="sha256:"#) && fetched.contains(r#"result="success""#), "{fetched}");
    assert!(family(&format!("{keys}_key_set_info")).0.contains(r#"",hash="sha256:"#), "{text}");

    lab.write("jwt: [{issuer: {url: 'http://x'}}]\n");
    lab.until_metric(&reloads("failure", 1)).await;
    lab.becomes(&key, "one", 201).await;

    lab.write(&two);
    lab.becomes(&key, "one", 401).await;
    lab.becomes(&key, "two", 201).await;
    lab.until_metric(&reloads("success", 2)).await;

    // This file also configures the paths for requests without credentials.
    let nobody = lab.server.anonymous();
    nobody.get("/version").await.expect(200);
    lab.write(&format!("anonymous: {{enabled: true, conditions: [{{path: /livez}}, {{path: /readyz}}]}}\n{two}"));
    lab.until_metric(&reloads("success", 3)).await;
    nobody.get("/livez").await.expect(200);
    for path in ["/livez/ping", "/version", "/api", "/api/v1/pods"] {
        nobody.get(path).await.expect(401);
    }
    nobody.get("/livez").header("authorization", "Bearer wrong").await.expect(401);
    let impersonated = lab.server.raw().get("/version").header("impersonate-user", "system:anonymous");
    impersonated.await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_name_one_issuer() {
    let (rsa, ec) = (Signer::rsa("r"), Signer::ec("e"));
    let mut process = HookProcess::start("issuers::the_process_that_issues").await;
    process.be(&key_set(&[&rsa, &ec])).await;
    let files = TempDir::new().unwrap();
    let (ca, file) = (files.path().join("ca.pem"), files.path().join("none.yaml"));
    fs::write(&ca, super::certificates::Authority::new().pem).unwrap();
    let flags = OidcFlags {
        issuer_url: process.url("/one"),
        client_id: "app".to_owned(),
        ca_file: Some(ca.clone()),
        username_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        groups_prefix: "g:".to_owned(),
        signing_algorithms: vec!["RS256".to_owned()],
        required_claims: vec![("hd".to_owned(), "x".to_owned())],
        ..OidcFlags::default()
    };
    let builder = TestServer::builder().configure(|config| config.authentication.oidc = Some(flags.clone()));
    let url = process.url("/one");
    let lab = Lab { process, server: builder.start().await, file: file.clone(), _files: files };
    // The server cannot verify the issuer's certificate until the file of authorities is replaced.
    lab.until_metric(&format!(r#"keelson_jwt_issuer_known{{issuer="{url}"}} 0"#)).await;
    fs::write(&ca, STANDARD.decode(lab.process.ca_bundle()).unwrap()).unwrap();
    lab.becomes_known("one").await;
    let claims = lab.claims("one", &json!({ "groups": ["a"], "hd": "x" }));
    let user = lab.user(&rsa.token(&claims)).await;
    assert_eq!(user, json!({ "username": format!("{url}#jane"), "groups": ["g:a", "system:authenticated"] }));
    assert!(lab.fault(&ec.token(&claims)).await.contains(r#"unsupported algorithm, expected ["RS256"] got "ES256""#));
    assert!(lab.fault(&rsa.token(&lab.claims("one", &json!({})))).await.contains("required claim hd not present"));

    let both = self::builder(&file).configure(|config| config.authentication.oidc = Some(flags)).try_start().await;
    assert!(both.err().unwrap().contains("authentication-config file and oidc-* flags are mutually exclusive"));
}

impl Lab {
    /// Waits until the server has reached an issuer.
    async fn becomes_known(&self, issuer: &str) {
        let url = self.process.url(&format!("/{issuer}"));
        self.until_metric(&format!(r#"keelson_jwt_issuer_known{{issuer="{url}"}} 1"#)).await;
    }
}
