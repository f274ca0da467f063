//! Tests of the replacement for kube-apiserver and etcd, in the order in which controller-runtime's envtest starts and
//! uses them.
//!
//! The programs are this crate's binary under their names in a directory of assets. The test makes certificates as
//! envtest does.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_testkit::{Endpoint, Raw};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// envtest's timeout for a start, a stop and the installation of definitions.
const PATIENCE: Duration = Duration::from_secs(20);
/// envtest's interval of checks.
const POLL: Duration = Duration::from_millis(100);

/// An authority. All authorities of envtest have the same subject.
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("envtest-environment", KeyPair::generate().unwrap())
    }

    pub(crate) fn named(name: &str, key: KeyPair) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate. Returns it with its key.
    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// The credentials of a user: a client certificate and its key.
    fn user(&self, name: &str, group: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// The control plane of a test.
struct Environment {
    assets: TempDir,
    /// The directories of etcd and of the API server, with envtest's names.
    scratch: TempDir,
    /// The working directory of the processes: the package of the test, in which they must not leave files.
    package: TempDir,
    ports: [u16; 3],
    serving: Authority,
    clients: Authority,
    etcd: Option<Child>,
    server: Option<Child>,
}

impl Environment {
    fn new() -> Self {
        let assets = TempDir::new().unwrap();
        for name in ["kube-apiserver", "etcd"] {
            symlink(env!("CARGO_BIN_EXE_keelson"), assets.path().join(name)).unwrap();
        }
        let made = Self {
            assets,
            scratch: TempDir::new().unwrap(),
            package: TempDir::new().unwrap(),
            ports: [free_port(), free_port(), free_port()],
            serving: Authority::new(),
            clients: Authority::new(),
            etcd: None,
            server: None,
        };
        std::fs::create_dir(made.etcd_dir()).unwrap();
        std::fs::create_dir(made.cert_dir()).unwrap();
        made
    }

    fn etcd_dir(&self) -> PathBuf {
        self.scratch.path().join("k8s_test_framework_1")
    }

    fn cert_dir(&self) -> PathBuf {
        self.scratch.path().join("k8s_test_framework_2")
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[2])
    }

    fn run(&self, program: &str, flags: Vec<String>) -> Child {
        let mut flags = flags;
        flags.sort();
        let mut command = Command::new(self.assets.path().join(program));
        command.args(flags).current_dir(self.package.path()).process_group(0).kill_on_drop(true);
        // Variables of a user of keelson. They must not affect this server.
        command.env("KEELSON_DATA_DIR", "mine").env("KEELSON_CONTROLLERS", "*").env("KEELSON_STORE", "memory:");
        let log = std::fs::File::options().create(true).append(true).open(self.scratch.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Returns true if a line of the help begins with this flag.
    async fn lists(&self, program: &str, flag: &str) -> bool {
        let help = Command::new(self.assets.path().join(program)).arg("--help").output().await.unwrap();
        assert!(help.status.success(), "{program}: {help:?}");
        let text = String::from_utf8([help.stdout, help.stderr].concat()).unwrap();
        text.lines().any(|line| line.starts_with(char::is_whitespace) && line.trim_start().starts_with(flag))
    }

    async fn start_etcd(&mut self) {
        let [client, peer, _] = self.ports;
        let mut flags = vec![
            format!("--advertise-client-urls=http://127.0.0.1:{client}"),
            format!("--data-dir={}", self.etcd_dir().display()),
            format!("--listen-client-urls=http://127.0.0.1:{client}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        ];
        if self.lists("etcd", "--unsafe-no-fsync").await {
            flags.push("--unsafe-no-fsync=true".to_owned());
        }
        assert_eq!(flags.len(), 5, "the flag is probed");
        self.etcd = Some(self.run("etcd", flags));
        let healthy =
            async || plain_get(client, "/health").await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
        self.wait_for("etcd", healthy).await;
    }

    /// Writes the files that envtest writes before it starts the API server.
    fn write_certificates(&self) {
        let write = |name: &str, text: &str| std::fs::write(self.cert_dir().join(name), text).unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        let (certificate, key) = self.serving.sign(params, ExtendedKeyUsagePurpose::ServerAuth);
        write("apiserver.crt", &certificate);
        write("apiserver.key", &key);
        let signer = Authority::new();
        write("sa-signer.crt", &signer.pem);
        write("sa-signer.key", &signer.issuer.key().serialize_pem());
        write("client-cert-auth-ca.crt", &self.clients.pem);
    }

    async fn start_server(&mut self, more: &[&str]) {
        assert!(!self.lists("kube-apiserver", "--insecure-port").await);
        let certificates = self.cert_dir();
        let file = |name: &str| certificates.join(name).display().to_string();
        let mut flags = vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", certificates.display()),
            format!("--client-ca-file={}", file("client-cert-auth-ca.crt")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports[0]),
            format!("--secure-port={}", self.ports[2]),
            format!("--service-account-issuer={}/", self.url()),
            format!("--service-account-key-file={}", file("sa-signer.crt")),
            format!("--service-account-signing-key-file={}", file("sa-signer.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.server = Some(self.run("kube-apiserver", flags));
        let anonymous = self.anonymous().await;
        let is_healthy = async || anonymous.get("/healthz").try_send().await.is_ok_and(|answer| answer.status == 200);
        self.wait_for("kube-apiserver", is_healthy).await;
    }

    async fn wait_for(&mut self, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !holds().await {
            let children = [&mut self.etcd, &mut self.server].into_iter().flatten();
            let ended: Vec<_> = children.filter_map(|child| child.try_wait().unwrap()).collect();
            assert!(ended.is_empty(), "{what}: {ended:?}: {}", self.log());
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// A client with a kubeconfig like envtest's.
    async fn client(&self, user: (String, String)) -> Raw {
        self.endpoint(user).await.raw()
    }

    async fn endpoint(&self, (certificate, key): (String, String)) -> Endpoint {
        let file = self.scratch.path().join("user.kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "envtest",
            "clusters": [{"name": "envtest", "cluster": {
                "server": self.url(), "certificate-authority-data": BASE64.encode(&self.serving.pem),
            }}],
            "users": [{"name": "user", "user": {
                "client-certificate-data": BASE64.encode(certificate), "client-key-data": BASE64.encode(key),
            }}],
            "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": "user"}}],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        Endpoint::from_kubeconfig(file).await.unwrap()
    }

    async fn admin(&self) -> Raw {
        self.client(self.clients.user("admin", "system:masters")).await
    }

    async fn anonymous(&self) -> Raw {
        self.endpoint(self.clients.user("unused", "none")).await.anonymous()
    }

    async fn end(child: &mut Option<Child>) -> ExitStatus {
        let mut child = child.take().unwrap();
        let pid = child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends within the patience of envtest").unwrap()
    }

    /// Stops both programs in envtest's order and removes their directories.
    async fn stop(mut self) {
        Self::end(&mut self.server).await;
        Self::end(&mut self.etcd).await;
        let left = std::fs::read_dir(self.package.path()).unwrap().count();
        assert_eq!(left, 0, "nothing is left in the package of the test");
        for directory in [self.etcd_dir(), self.cert_dir()] {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn plain_get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    })
}

/// Installs a definition, and waits as envtest does: until the version's discovery document has the plural.
async fn install(admin: &Raw) {
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await.expect(201);
    let begun = Instant::now();
    loop {
        let answer = admin.get("/apis/example.org/v1").await;
        let served = (answer.status == 200).then(|| answer.json());
        if served.is_some_and(|it| it["resources"].as_array().unwrap().iter().any(|it| it["name"] == "widgets")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the definition is not served");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sequence_of_envtest_finds_a_bare_server() {
    let mut environment = Environment::new();
    environment.start_etcd().await;
    environment.write_certificates();
    environment
        .start_server(&[
            "--feature-gates=ContainerStopSignals=true",
            "--max-requests-inflight=10",
            "--delete-collection-workers=2",
        ])
        .await;
    let admin = environment.admin().await;
    for document in ["/api", "/apis"] {
        admin.get(document).await.expect(200);
    }
    let begun = Instant::now();
    while admin.get("/api/v1/namespaces/default").await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "there is no default namespace");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    install(&admin).await;
    let widget =
        json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}});
    admin.post("/apis/example.org/v1/namespaces/default/widgets", &widget).await.expect(201);

    // The rights of users follow from their certificates.
    let user = environment.client(environment.clients.user("ann", "devs")).await;
    user.get("/api/v1/namespaces").await.expect(403);
    environment.anonymous().await.get("/api/v1/namespaces").await.expect(403);

    // The given key signs tokens, which name the given issuer.
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account = json!({"metadata": {"name": "builder"}});
    admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let path = "/api/v1/namespaces/default/serviceaccounts/builder/token";
    let made = admin.post(path, &token).await.expect(201).json();
    let jwt = made["status"]["token"].as_str().unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], format!("{}/", environment.url()));

    // No controllers run.
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "stays"}})).await.expect(201);
    admin.get("/api/v1/namespaces/stays/serviceaccounts/default").await.expect(404);
    admin.delete("/api/v1/namespaces/stays").await.expect(200);
    let stays = admin.get("/api/v1/namespaces/stays").await.expect(200).json();
    assert_eq!(
        (&stays["status"]["phase"], &stays["spec"]["finalizers"]),
        (&json!("Terminating"), &json!(["kubernetes"]))
    );

    let log = environment.log();
    assert_eq!(log.matches("--delete-collection-workers has no effect").count(), 1, "{log}");
    environment.stop().await;
}

/// Tests often stop managers after the control plane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_started_again_on_its_etcd_has_its_objects() {
    let mut environment = Environment::new();
    environment.start_etcd().await;
    environment.write_certificates();
    environment.start_server(&[]).await;
    let admin = environment.admin().await;
    install(&admin).await;
    let map = json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    let made = admin.post("/api/v1/namespaces/default/configmaps", &map).await.expect(201).json();
    let mut watch = admin.clone().http2().get("/api/v1/configmaps?watch=1&resourceVersion=0").stream().await;
    assert!(watch.next_json().await.is_some());
    for kill in [false, true] {
        if kill {
            environment.server.take().unwrap().kill().await.unwrap();
        } else {
            Environment::end(&mut environment.server).await;
        }
        environment.start_server(&[]).await;
        let admin = environment.admin().await;
        let found = admin.get("/api/v1/namespaces/default/configmaps/kept").await.expect(200).json();
        assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
        admin.get("/apis/example.org/v1/widgets").await.expect(200);
    }
    environment.stop().await;
}

/// The process that started the servers is killed, so it stops nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_envtest_end_with_the_test_process() {
    let environment = Environment::new();
    environment.write_certificates();
    let [client, peer, port] = environment.ports;
    let (assets, etcd, certificates) = (environment.assets.path(), environment.etcd_dir(), environment.cert_dir());
    let script = format!(
        "{assets}/etcd --data-dir={etcd} --listen-client-urls=http://127.0.0.1:{client} --listen-peer-urls=http://127.0.0.1:{peer} & \
         {assets}/kube-apiserver --cert-dir={certificates} --etcd-servers=http://127.0.0.1:{client} --authorization-mode=RBAC \
         --bind-address=127.0.0.1 --secure-port={port} & wait",
        assets = assets.display(),
        etcd = etcd.display(),
        certificates = certificates.display(),
    );
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut shell = shell.spawn().unwrap();
    let listens = async |port: u16| TcpStream::connect(("127.0.0.1", port)).await.is_ok();
    let until = async |expected: bool| {
        let begun = Instant::now();
        while listens(client).await != expected || listens(port).await != expected {
            assert!(begun.elapsed() < PATIENCE, "listening: {expected}");
            tokio::time::sleep(POLL).await;
        }
    };
    until(true).await;
    shell.kill().await.unwrap();
    until(false).await;
}

#[tokio::test]
async fn a_line_that_kube_apiserver_refuses_is_refused_alike() {
    let environment = Environment::new();
    let refused = async |program: &str, flags: &[&str]| {
        let command = Command::new(environment.assets.path().join(program)).args(flags).output().await.unwrap();
        assert!(command.stdout.is_empty());
        (command.status.code(), String::from_utf8(command.stderr).unwrap())
    };
    let nosuch = (Some(1), "Error: unknown flag: --nosuch\n".to_owned());
    assert_eq!(refused("kube-apiserver", &["--nosuch=1"]).await, nosuch);
    let unnamed = (Some(1), "Error: --etcd-servers must be specified\n".to_owned());
    assert_eq!(refused("kube-apiserver", &["--secure-port=1"]).await, unnamed);
    let (code, text) = refused("etcd", &["--nosuch"]).await;
    assert!(code == Some(2) && text.contains("flag provided but not defined: -nosuch"), "{text}");
    let version =
        Command::new(env!("CARGO_BIN_EXE_keelson")).args(["kube-apiserver", "--version"]).output().await.unwrap();
    assert!(version.stdout.starts_with(b"Kubernetes v1."), "{version:?}");
    assert!(!Path::new("default.etcd").exists());
}
