//! Tests of client certificates: their users, invalid ones, and certificate files that change while a server runs.
//!
//! Upstream's responses are recorded. There an invalid certificate is an invalid credential, and a valid token in the
//! same request counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keelson_testkit::{Endpoint, Raw, TestServer};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOLD: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The longest time until a changed file is read.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;

/// An authority that signs any certificate.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its chain, and its key.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) fn named(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in [(DnType::CommonName, name), (DnType::OrganizationName, group)] {
        if !text.is_empty() {
            params.distinguished_name.push(kind, text);
        }
    }
    params.extended_key_usages = vec![CLIENT];
    params
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = named("clients", "");
        params.extended_key_usages.clear();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(super) fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// A serving certificate for the loopback address.
    fn server(&self) -> Pair {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = self.sign(&params);
        Pair { certificate: format!("{}{}", pair.certificate, self.pem), ..pair }
    }
}

/// A server whose files the tests change.
struct Lab {
    server: TestServer,
    files: TempDir,
}

impl Lab {
    async fn start(clients: &str, configure: impl FnOnce(&Path, &mut keelson_server::Config)) -> Self {
        let files = TempDir::new().unwrap();
        fs::write(files.path().join("tokens.csv"), "t-ann,ann,u-ann,devs\n").unwrap();
        fs::write(files.path().join("clients.crt"), clients).unwrap();
        let server = TestServer::builder().configure(|config| {
            config.token_file = Some(files.path().join("tokens.csv"));
            config.pki.client_ca = Some(files.path().join("clients.crt"));
            configure(files.path(), config);
        });
        Self { server: server.start().await, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A client with this certificate.
    async fn client(&self, pair: &Pair) -> Raw {
        let mut pki = self.server.running().pki().clone();
        pki.admin.certificate_pem.clone_from(&pair.certificate);
        pki.admin.key_pem.clone_from(&pair.key);
        let path = self.file("client.kubeconfig");
        fs::write(&path, pki.kubeconfig(&self.server.url())).unwrap();
        Endpoint::from_kubeconfig(path).await.unwrap().raw()
    }
}

/// The code of a response, and the client's user.
async fn whoami(client: &Raw, headers: &[(&str, &str)]) -> (u16, Value) {
    let call = client.post(WHOAMI, &json!({}));
    let answer = headers.iter().fold(call, |call, (name, value)| call.header(name, *value)).await;
    (answer.status, answer.json()["status"]["userInfo"].clone())
}

/// Repeats a request until it has the expected status.
async fn until(client: &Raw, headers: &[(&str, &str)], status: u16) {
    let begun = Instant::now();
    while whoami(client, headers).await.0 != status {
        assert!(begun.elapsed() < PATIENCE, "a changed file does not count");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn user(name: &str, groups: &[&str]) -> Value {
    json!({"username": name, "groups": groups})
}

/// Removes the fields of the user that come from the certificate itself.
fn known((status, mut user): (u16, Value)) -> (u16, Value) {
    let extra = user.as_object_mut().and_then(|user| user.remove("extra")).unwrap_or_default();
    let id = extra["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{extra}");
    (status, user)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_takes_precedence_over_the_token() {
    let authority = Authority::new();
    let lab = Lab::start(&authority.pem, |_, _| {}).await;
    let of = async |params: &CertificateParams| lab.client(&authority.sign(params)).await;
    let jane = of(&named("jane", "devs")).await;
    let expected = (201, user("jane", &["devs", "system:authenticated"]));
    assert_eq!(known(whoami(&jane, &[]).await), expected);
    for token in ["Bearer t-ann", "Bearer wrong"] {
        assert_eq!(known(whoami(&jane, &[("authorization", token)]).await), expected, "{token}");
    }
    let mut with_uid = named("jane", "");
    with_uid.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "u-1");
    let mut told = user("jane", &["system:authenticated"]);
    told["uid"] = json!("u-1");
    assert_eq!(known(whoami(&of(&with_uid).await, &[]).await), (201, told));
    let mut for_anything = named("jane", "");
    for_anything.extended_key_usages.clear();
    assert_eq!(whoami(&of(&for_anything).await, &[]).await.0, 201);
    // A certificate with such a name or group is not authenticated, and its client cannot review itself.
    for nobody in [named("system:anonymous", ""), named("jane", "system:unauthenticated")] {
        assert_eq!(whoami(&of(&nobody).await, &[]).await.0, 403);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_certificate_is_refused_unless_a_token_is_valid() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let lab = Lab::start(&authority.pem, |_, _| {}).await;
    let changed = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = named("jane", "system:masters");
        change(&mut params);
        params
    };
    let key = KeyPair::generate().unwrap();
    let by_itself = named("jane", "system:masters").self_signed(&key).unwrap().pem();
    // A user who signs a certificate for another user with the key of his own.
    let (mallory, root) = (KeyPair::generate().unwrap(), named("root", "system:masters"));
    let signer = named("mallory", "");
    let own = signer.signed_by(&mallory, &authority.issuer).unwrap().pem();
    let root_key = KeyPair::generate().unwrap();
    let forged = root.signed_by(&root_key, &Issuer::new(signer, mallory)).unwrap().pem();
    let cases = [
        ("expired", authority.sign(&changed(&|params| params.not_after = date_time_ymd(2020, 1, 1)))),
        ("not yet valid", authority.sign(&changed(&|params| params.not_before = date_time_ymd(2099, 1, 1)))),
        (
            "of a server",
            authority.sign(&changed(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])),
        ),
        ("of nobody", authority.sign(&named("", "system:masters"))),
        ("of another authority of that name", foreign.sign(&named("keelson-admin", "system:masters"))),
        ("signed by itself", Pair { certificate: by_itself, key: key.serialize_pem() }),
        ("signed by a user", Pair { certificate: forged + &own, key: root_key.serialize_pem() }),
    ];
    for (what, pair) in cases {
        let client = lab.client(&pair).await;
        assert_eq!(whoami(&client, &[]).await, (401, Value::Null), "{what}");
        assert_eq!(client.get("/healthz").await.status, 401, "{what}: where anybody may ask");
        assert_eq!(client.get("/api/v1/secrets").await.status, 401, "{what}");
        assert_eq!(whoami(&client, &[("authorization", "Bearer wrong")]).await.0, 401, "{what}");
        let (status, user) = whoami(&client, &[("authorization", "Bearer t-ann")]).await;
        assert_eq!((status, &user["username"]), (201, &json!("ann")), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_certificates_cannot_act_as_front_proxies() {
    let (clients, proxies, foreign) = (Authority::new(), Authority::new(), Authority::new());
    let lab = Lab::start(&clients.pem, |files, config| {
        fs::write(files.join("proxies.crt"), &proxies.pem).unwrap();
        config.pki.front_proxy.client_ca = Some(files.join("proxies.crt"));
        config.pki.front_proxy.headers.allowed_names = vec!["front-proxy".to_owned()];
    });
    let lab = lab.await;
    let claim = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    let proxy = lab.client(&proxies.sign(&named("front-proxy", ""))).await;
    let root = (201, user("root", &["system:masters", "system:authenticated"]));
    assert_eq!(whoami(&proxy, &claim).await, root);
    assert_eq!(whoami(&proxy, &[claim[0], claim[1], ("authorization", "Bearer t-ann")]).await, root);
    assert_eq!(whoami(&proxy, &[]).await.0, 401, "by itself it is nobody");
    let named_otherwise = lab.client(&proxies.sign(&named("somebody", ""))).await;
    assert_eq!(whoami(&named_otherwise, &claim).await.0, 401);
    for stranger in [foreign.sign(&named("front-proxy", "")), {
        let mut over = named("front-proxy", "");
        over.not_after = date_time_ymd(2020, 1, 1);
        proxies.sign(&over)
    }] {
        assert_eq!(whoami(&lab.client(&stranger).await, &claim).await.0, 401);
    }
    // Any other authenticated client keeps its identity, whatever its headers are.
    let client = lab.client(&clients.sign(&named("front-proxy", ""))).await;
    assert_eq!(known(whoami(&client, &claim).await), (201, user("front-proxy", &["system:authenticated"])));
    let anonymous = lab.server.anonymous();
    let (_, told) = whoami(&anonymous, &[claim[0], claim[1], ("authorization", "Bearer t-ann")]).await;
    assert_eq!(told["username"], "ann");
    assert_eq!(whoami(&anonymous, &claim).await.0, 403, "nobody has proved who he is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorities_that_change_count_at_once_for_connections_that_are_open() {
    let (old, new) = (Authority::new(), Authority::new());
    let lab = Lab::start(&old.pem, |files, config| {
        fs::write(files.join("proxies.crt"), &old.pem).unwrap();
        config.pki.front_proxy.client_ca = Some(files.join("proxies.crt"));
        config.pki.front_proxy.headers.allowed_names = vec!["front-proxy".to_owned()];
    });
    let lab = lab.await;
    let jane = lab.client(&old.sign(&named("jane", ""))).await;
    let john = lab.client(&new.sign(&named("john", ""))).await;
    let proxy = lab.client(&new.sign(&named("front-proxy", ""))).await;
    let claim = [("x-remote-user", "ann")];
    assert_eq!((whoami(&jane, &[]).await.0, whoami(&john, &[]).await.0), (201, 401));
    fs::write(lab.file("clients.crt"), format!("{}{}", old.pem, new.pem)).unwrap();
    until(&john, &[], 201).await;
    assert_eq!(whoami(&jane, &[]).await.0, 201);
    fs::write(lab.file("proxies.crt"), format!("{}{}", old.pem, new.pem)).unwrap();
    fs::write(lab.file("clients.crt"), &new.pem).unwrap();
    until(&jane, &[], 401).await;
    assert_eq!(whoami(&john, &[]).await.0, 201);
    until(&proxy, &claim, 201).await;
    let (_, told) = whoami(&proxy, &claim).await;
    assert_eq!(told["username"], "ann");
    // Aggregated servers get the change.
    let begun = Instant::now();
    let bundle = new.pem.lines().nth(1).unwrap();
    while !lab.server.raw().get(TOLD).await.json()["data"]["client-ca-file"].as_str().unwrap().contains(bundle) {
        assert!(begun.elapsed() < PATIENCE, "aggregated servers are not told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serving_certificate_that_changes_is_presented_and_published() {
    let authority = Authority::new();
    let (first, second) = (authority.server(), authority.server());
    let lab = Lab::start(&authority.pem, |files, config| {
        fs::write(files.join("tls.crt"), &first.certificate).unwrap();
        fs::write(files.join("tls.key"), &first.key).unwrap();
        config.pki.serving = Some((files.join("tls.crt"), files.join("tls.key")));
        config.controllers = keelson_server::Switches::parse(["*"]).unwrap();
    });
    let lab = lab.await;
    let admin = lab.server.raw();
    let presented = async || {
        let stream = admin.connect().await;
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        chain[0].to_vec()
    };
    let begin = presented().await;
    fs::write(lab.file("tls.crt"), &second.certificate).unwrap();
    assert_eq!(presented().await, begin, "its key is still to come");
    fs::write(lab.file("tls.key"), &second.key).unwrap();
    let begun = Instant::now();
    while presented().await == begin {
        assert!(begun.elapsed() < PATIENCE, "the certificate is not presented");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    admin.get("/readyz").await.expect(200);
    let message = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    while admin.get(message).await.json()["data"]["ca.crt"] != json!(second.certificate) {
        assert!(begun.elapsed() < PATIENCE, "pods are not told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
