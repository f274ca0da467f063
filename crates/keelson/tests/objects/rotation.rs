//! Tests of keys that change while a server runs: the key of tokens, which other servers verify, and the key of the
//! authority, which signs certificates.
//!
//! After the read of an invalid file the server keeps the earlier keys, and counts the failure.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::clock::ManualClock;
use keelson_testkit::{Endpoint, Raw, TestServer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::signed_clients::signed_client;

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/one";
/// The longest time until a changed file is read.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server whose keys the test changes.
struct Lab {
    server: TestServer,
    admin: Raw,
    data: TempDir,
}

impl Lab {
    async fn start() -> Self {
        let data = TempDir::new().unwrap();
        let path = data.path().to_owned();
        let server = TestServer::builder().configure(|config| {
            config.data_dir = Some(path);
            config.server_id = "one".to_owned();
            config.controllers = keelson_server::Switches::parse(["*"]).unwrap();
        });
        let server = server.start().await;
        Self { admin: server.raw(), server, data }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data.path().join("pki").join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// The number of failed reads of the keys.
    async fn failures(&self) -> f64 {
        let text = self.admin.get("/metrics").await.expect(200).text();
        let name = r#"keelson_file_reads_total{contents="keys",status="failure"} "#;
        text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap()
    }

    async fn token(&self) -> String {
        let path = "/api/v1/namespaces/default/serviceaccounts/web/token";
        let token = self.admin.post(path, &json!({"spec": {}})).await.expect(201).json();
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The status of a request with a token.
    async fn whoami(&self, token: &str) -> u16 {
        let call = self.server.anonymous().post(WHOAMI, &json!({}));
        call.header("authorization", format!("Bearer {token}")).await.status
    }

    /// The ids of the published keys, the signing key first.
    async fn published(&self) -> Vec<String> {
        let keys = self.admin.get("/openid/v1/jwks").await.expect(200).json();
        keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }

    async fn client(&self, name: &str) -> Raw {
        signed_client(&self.server, self.data.path(), name).await
    }
}

/// Repeats a check until it returns a value.
async fn wait_for<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} never comes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The id of the key that signed a token.
fn signed_by(token: &str) -> String {
    let head = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let head: Value = serde_json::from_slice(&head).unwrap();
    head["kid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_stay_valid_while_their_rotated_key_is_listed() {
    let lab = Lab::start().await;
    lab.admin
        .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "web"}}))
        .await
        .expect(201);
    let (old, begin) = (lab.token().await, lab.published().await);
    assert_eq!(begin, [signed_by(&old)]);
    let next = KeyPair::generate().unwrap();
    let old_public = lab.read("sa.pub");

    // First every server accepts the new key, and then one signs with it.
    lab.write("sa.pub", &format!("{old_public}{}", next.public_key_pem()));
    let both = wait_for("the new key", async || Some(lab.published().await).filter(|keys| keys.len() == 2)).await;
    assert_eq!((&both[0], signed_by(&lab.token().await)), (&begin[0], begin[0].clone()));
    lab.write("sa.key", &next.serialize_pem());
    let new = wait_for("a token of the new key", async || {
        Some(lab.token().await).filter(|token| signed_by(token) == both[1])
    });
    let new = new.await;
    assert_eq!(lab.published().await, [both[1].clone(), both[0].clone()]);
    assert_eq!((lab.whoami(&old).await, lab.whoami(&new).await), (201, 201));
    // A server that starts later compares its keys with the published ones.
    wait_for("the lease", async || {
        let lease = lab.admin.get(LEASE).await.expect(200).json();
        let told = lease["metadata"]["annotations"]["keelson.io/service-account-keys"].as_str();
        Some(()).filter(|()| told == Some(&format!("{},{}", both[1], both[0])))
    })
    .await;

    // An invalid key changes nothing.
    lab.write("sa.key", "none");
    wait_for("a failure in the metrics", async || Some(lab.failures().await).filter(|failures| *failures > 0.0)).await;
    assert_eq!((signed_by(&lab.token().await), lab.whoami(&old).await), (both[1].clone(), 201));
    lab.write("sa.key", &next.serialize_pem());

    // The old key is removed when its tokens have expired.
    lab.write("sa.pub", &next.public_key_pem());
    wait_for("the end of the old key", async || Some(lab.whoami(&old).await).filter(|status| *status == 401)).await;
    assert_eq!((lab.whoami(&new).await, lab.published().await), (201, vec![both[1].clone()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_that_signs_is_changed_while_the_server_runs() {
    let lab = Lab::start().await;
    let old = lab.read("ca.crt");
    let before = lab.client("before").await;
    assert_eq!(before.post(WHOAMI, &json!({})).await.status, 201);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "next");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let next = params.self_signed(&key).unwrap().pem();

    // A certificate whose key is still missing signs nothing.
    let failures = lab.failures().await;
    lab.write("ca.crt", &format!("{next}{old}"));
    wait_for("a failure in the metrics", async || Some(lab.failures().await).filter(|now| *now > failures)).await;
    lab.write("ca.key", &key.serialize_pem());
    let message = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    wait_for("the bundle of pods", async || {
        let response = lab.admin.get(message).await.json()["data"]["ca.crt"].clone();
        Some(()).filter(|()| response == json!(format!("{next}{old}")))
    })
    .await;
    let after = lab.client("after").await;
    for client in [&before, &after] {
        assert_eq!(client.post(WHOAMI, &json!({})).await.status, 201);
    }
    // Without the old authority only certificates of the new one are accepted. The administrator's certificate is not.
    lab.write("ca.crt", &next);
    wait_for("the end of the old authority", async || {
        let status = before.post(WHOAMI, &json!({})).await.status;
        Some(()).filter(|()| status == 401)
    })
    .await;
    assert_eq!(after.post(WHOAMI, &json!({})).await.status, 201);
    assert_eq!(lab.admin.get("/api/v1/namespaces").await.status, 401);
}

/// Keys as kubeadm makes them: RSA, with the public key in a separate file.
fn rsa(name: &str) -> String {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../access/src/pki/testdata");
    fs::read_to_string(PathBuf::from(keys).join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_stay_valid_after_a_change_to_an_rsa_key() {
    let mut lab = Lab::start().await;
    let account = json!({"metadata": {"name": "web"}});
    lab.admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let (before, old_public) = (lab.token().await, lab.read("sa.pub"));
    lab.write("sa.key", &rsa("rsa-2048.pkcs1.key"));
    let after = wait_for("a token of the new key", async || {
        Some(lab.token().await).filter(|token| signed_by(token) != signed_by(&before))
    })
    .await;
    let keys = lab.admin.get("/openid/v1/jwks").await.expect(200).json();
    let shown: Vec<_> = keys["keys"].as_array().unwrap().iter().map(|key| key["alg"].as_str().unwrap()).collect();
    assert_eq!(shown, ["RS256", "ES256"]);
    let configuration = lab.admin.get("/.well-known/openid-configuration").await.expect(200).json();
    assert_eq!(configuration["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
    assert_eq!((lab.whoami(&before).await, lab.whoami(&after).await), (201, 201));

    // A start with the key files of kubeadm's flags.
    let old = lab.data.path().join("old.pub");
    fs::write(&old, old_public).unwrap();
    let signing = lab.data.path().join("kubeadm.key");
    fs::write(&signing, rsa("rsa-2048.pkcs8.key")).unwrap();
    for name in ["sa.key", "sa.pub"] {
        fs::remove_file(lab.file(name)).unwrap();
    }
    lab.server.change(|config| {
        config.pki.service_account.signing = Some(signing);
        config.pki.service_account.verifying = vec![old];
    });
    lab.server.restart().await;
    lab.admin = lab.server.raw();
    assert!(!lab.file("sa.key").exists(), "the server makes no key beside the given one");
    assert_eq!(lab.published().await, [signed_by(&after), signed_by(&before)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rsa_authority_signs_server_and_client_certificates() {
    let data = TempDir::new().unwrap();
    let key = KeyPair::from_pem(&rsa("rsa-2048.pkcs8.key")).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "kubernetes");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    fs::create_dir_all(data.path().join("pki")).unwrap();
    fs::write(data.path().join("pki/ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(data.path().join("pki/ca.key"), rsa("rsa-2048.pkcs1.key")).unwrap();
    let path = data.path().to_owned();
    let server = TestServer::builder().configure(|config| config.data_dir = Some(path)).start().await;
    server.raw().get("/api/v1/namespaces").await.expect(200);
    let client = signed_client(&server, data.path(), "ann").await;
    assert_eq!(client.post(WHOAMI, &json!({})).await.status, 201);
}

/// The certificate that a server presents to a new connection.
async fn presented(raw: &Raw) -> Vec<u8> {
    let stream = raw.connect().await;
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_are_about_to_end_are_renewed_while_the_server_runs() {
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    // Certificates that were made so long ago that they expire in 20 days.
    let clock = Arc::new(ManualClock::new(now - day * 345));
    let data = TempDir::new().unwrap();
    let (path, time) = (data.path().to_owned(), clock.clone());
    let server = TestServer::builder().configure(|config| {
        config.data_dir = Some(path);
        config.clock = time;
    });
    let server = server.start().await;
    let admin = server.raw();
    let (before, files) = (presented(&admin).await, ["apiserver.crt", "admin.crt", "front-proxy-client.crt"]);
    let read = |name: &str| fs::read_to_string(data.path().join("pki").join(name)).unwrap();
    let (old, old_ca) = (files.map(read), read("ca.crt"));
    let kubeconfig = fs::read_to_string(data.path().join("kubeconfig")).unwrap();
    clock.set(now);
    wait_for("new files", async || Some(()).filter(|()| files.map(read).iter().zip(&old).all(|(new, old)| new != old)))
        .await;
    wait_for("the new certificate", async || Some(presented(&admin).await).filter(|shown| *shown != before)).await;
    assert_eq!(read("ca.crt"), old_ca, "authorities stay");
    // The kubeconfig is written with the new certificates. Both the old and the new kubeconfig are valid.
    let path = data.path().join("kubeconfig");
    wait_for("the kubeconfig", async || Some(()).filter(|()| fs::read_to_string(&path).unwrap() != kubeconfig)).await;
    let renewed = Endpoint::from_kubeconfig(&path).await.unwrap().raw();
    renewed.get("/api/v1/namespaces").await.expect(200);
    admin.get("/api/v1/namespaces").await.expect(200);
    let text = admin.get("/metrics").await.expect(200).text();
    let end = |certificate: &str| -> f64 {
        let name = format!("keelson_certificate_expiration_timestamp_seconds{{certificate=\"{certificate}\"}} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name)?.parse().ok())
            .unwrap_or_else(|| panic!("{certificate}: {text}"))
    };
    let in_half_a_year = (now + day * 180).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    for certificate in ["serving", "admin", "front-proxy-client", "ca", "front-proxy-ca"] {
        assert!(end(certificate) > in_half_a_year, "{certificate}");
    }
}
