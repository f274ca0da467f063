//! Tests of kubeadm's static pod for the API server: its command line, its files and probes, and the objects with which
//! kubeadm lets nodes join.
//!
//! The program is this crate's binary under the name kube-apiserver, on an etcd with TLS. Keys are RSA keys in kubeadm's
//! form (PKCS #1). Only the directories and the port differ from those of a control plane host, and `--cert-dir` is
//! added, whose default needs root.

use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_testkit::{Answer, Call, Endpoint, EtcdServer, KubeletDouble, Raw};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_RSA_SHA256, RsaKeySize, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::envtest::{Authority, free_port};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// The bytes of a PKCS #8 key of 2,048 bits before its PKCS #1 key.
const PKCS8_HEADER: usize = 26;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The arguments that kubeadm writes for 1.36 and 1.37, with local etcd. `PKI`, `ADDRESS`, `PORT` and `ETCD` are places.
const ARGUMENTS: [&str; 27] = [
    "--advertise-address=ADDRESS",
    "--allow-privileged=true",
    "--authorization-mode=Node,RBAC",
    "--client-ca-file=PKI/ca.crt",
    "--enable-admission-plugins=NodeRestriction",
    "--enable-bootstrap-token-auth=true",
    "--etcd-cafile=PKI/etcd/ca.crt",
    "--etcd-certfile=PKI/apiserver-etcd-client.crt",
    "--etcd-keyfile=PKI/apiserver-etcd-client.key",
    "--etcd-servers=https://ETCD",
    "--kubelet-client-certificate=PKI/apiserver-kubelet-client.crt",
    "--kubelet-client-key=PKI/apiserver-kubelet-client.key",
    "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
    "--proxy-client-cert-file=PKI/front-proxy-client.crt",
    "--proxy-client-key-file=PKI/front-proxy-client.key",
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-client-ca-file=PKI/front-proxy-ca.crt",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-username-headers=X-Remote-User",
    "--secure-port=PORT",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    "--service-account-key-file=PKI/sa.pub",
    "--service-account-signing-key-file=PKI/sa.key",
    "--service-cluster-ip-range=10.96.0.0/12",
    "--tls-cert-file=PKI/apiserver.crt",
    "--tls-private-key-file=PKI/apiserver.key",
];

/// A control plane host after `kubeadm init`.
struct Host {
    directory: TempDir,
    address: IpAddr,
    port: u16,
    cluster: Authority,
    _etcd: EtcdServer,
    server: Option<Child>,
}

fn rsa() -> KeyPair {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A private key as kubeadm writes it.
fn pkcs1(key: &KeyPair) -> String {
    pem("RSA PRIVATE KEY", &key.serialize_der()[PKCS8_HEADER..])
}

/// A certificate with its key, for this name and these organizations.
fn signed(
    authority: &Authority,
    name: &str,
    group: &str,
    usages: &[ExtendedKeyUsagePurpose],
    names: &[SanType],
) -> (String, String) {
    let key = rsa();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = usages.to_vec();
    params.subject_alt_names = names.to_vec();
    (params.signed_by(&key, &authority.issuer).unwrap().pem(), pkcs1(&key))
}

impl Host {
    /// Writes the files of kubeadm and starts etcd.
    fn init() -> Option<Self> {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let directory = TempDir::new().unwrap();
        let pki = directory.path().join("pki");
        std::fs::create_dir_all(pki.join("etcd")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(pki.join(name), text).unwrap();
        let write_pair = |name: &str, (certificate, key): (String, String)| {
            write(&format!("{name}.crt"), &certificate);
            write(&format!("{name}.key"), &key);
        };
        let [cluster, front_proxy, etcd] =
            ["kubernetes", "front-proxy-ca", "etcd-ca"].map(|name| Authority::named(name, rsa()));
        for (name, authority) in [("ca", &cluster), ("front-proxy-ca", &front_proxy), ("etcd/ca", &etcd)] {
            write_pair(name, (authority.pem.clone(), pkcs1(authority.issuer.key())));
        }
        let address = KubeletDouble::outer_address();
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "cp",
        ];
        let mut names: Vec<SanType> = names.map(dns).to_vec();
        names.extend(["10.96.0.1".parse().unwrap(), address].map(SanType::IpAddress));
        write_pair("apiserver", signed(&cluster, "kube-apiserver", "", &[ServerAuth], &names));
        let kubelets = signed(&cluster, "kube-apiserver-kubelet-client", "kubeadm:cluster-admins", &[ClientAuth], &[]);
        write_pair("apiserver-kubelet-client", kubelets);
        write_pair("front-proxy-client", signed(&front_proxy, "front-proxy-client", "", &[ClientAuth], &[]));
        write_pair("apiserver-etcd-client", signed(&etcd, "kube-apiserver-etcd-client", "", &[ClientAuth], &[]));
        let local = [dns("localhost"), SanType::IpAddress("127.0.0.1".parse().unwrap())];
        write_pair("etcd/server", signed(&etcd, "cp", "", &[ServerAuth, ClientAuth], &local));
        let accounts = rsa();
        write("sa.key", &pkcs1(&accounts));
        write("sa.pub", &accounts.public_key_pem());
        let etcd = start_etcd(&pki)?;
        Some(Self { directory, address, port: free_port(), cluster, _etcd: etcd, server: None })
    }

    fn pki(&self) -> PathBuf {
        self.directory.path().join("pki")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// Runs the static pod, and waits until its startup probe succeeds.
    async fn run(&mut self, more: &[&str]) {
        let program = self.directory.path().join("kube-apiserver");
        symlink(env!("CARGO_BIN_EXE_keelson"), &program).unwrap();
        let place = |argument: &&str| {
            let argument = argument.replace("PKI", &self.pki().display().to_string());
            let argument = argument.replace("ADDRESS", &self.address.to_string());
            argument.replace("PORT", &self.port.to_string()).replace("ETCD", &self._etcd.endpoint())
        };
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let mut command = Command::new(&program);
        command.args(ARGUMENTS.iter().map(place)).args(more);
        command.arg(format!("--cert-dir={}", self.directory.path().join("run").display()));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        self.server = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while self.probe("/livez").await != Some(200) || self.probe("/readyz").await != Some(200) {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{ended:?}: {}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// The code of a probe of the manifest: HTTPS without credentials.
    async fn probe(&self, path: &str) -> Option<u16> {
        let client = self.endpoint(json!({})).await.anonymous();
        client.get(path).try_send().await.ok().map(|answer| answer.status)
    }

    async fn endpoint(&self, user: Value) -> Endpoint {
        let file = TempDir::new().unwrap();
        let file = file.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "kubernetes", "cluster": {
                "server": self.url(), "certificate-authority-data": BASE64.encode(&self.cluster.pem),
            }}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "kubernetes", "user": "user"}}],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        Endpoint::from_kubeconfig(file).await.unwrap()
    }

    /// A client with one of kubeadm's kubeconfigs.
    async fn client(&self, name: &str, group: &str) -> Raw {
        let (certificate, key) = signed(&self.cluster, name, group, &[ExtendedKeyUsagePurpose::ClientAuth], &[]);
        let user = json!({
            "client-certificate-data": BASE64.encode(certificate), "client-key-data": BASE64.encode(key),
        });
        self.endpoint(user).await.raw()
    }

    /// Sends a request with a token.
    async fn by_token(&self, token: &str, call: impl FnOnce(&Raw) -> Call) -> Answer {
        let client = self.endpoint(json!({})).await.anonymous();
        call(&client).header("authorization", format!("Bearer {token}")).await
    }
}

/// Starts etcd with kubeadm's certificates for clients.
fn start_etcd(pki: &Path) -> Option<EtcdServer> {
    let file = |name: &str| pki.join("etcd").join(name).display().to_string();
    EtcdServer::builder()
        .tls()
        .arg(format!("--cert-file={}", file("server.crt")))
        .arg(format!("--key-file={}", file("server.key")))
        .arg("--client-cert-auth=true")
        .arg(format!("--trusted-ca-file={}", file("ca.crt")))
        .start()
}

fn binding(name: &str, role: &str, kind: &str, subject: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
    })
}

#[tokio::test]
async fn kubeadms_static_pod_runs_with_its_files_probes_and_kubeconfigs() {
    let Some(mut host) = Host::init() else { return };
    host.run(&[]).await;
    assert_eq!(host.probe("/readyz").await, Some(200));
    let notes = host.log();
    for wrong in ["ERROR", "panicked"] {
        assert!(!notes.contains(wrong), "{notes}");
    }
    // kubeadm binds its administrators with the credentials of super-admin.conf.
    let admin = host.client("kubernetes-admin", "kubeadm:cluster-admins").await;
    assert_eq!(admin.get("/api/v1/nodes").await.status, 403);
    let root = host.client("kubernetes-super-admin", "system:masters").await;
    let admins = binding("kubeadm:cluster-admins", "cluster-admin", "Group", "kubeadm:cluster-admins");
    root.post(format!("{RBAC}/clusterrolebindings"), &admins).await.expect(201);
    admin.get("/api/v1/nodes").await.expect(200);
    for (user, path) in [
        ("system:kube-controller-manager", "/api/v1/pods"),
        ("system:kube-scheduler", "/api/v1/nodes"),
        ("system:kube-scheduler", "/apis/apps/v1/replicasets"),
    ] {
        host.client(user, "").await.get(path).await.expect(200);
    }
    let lease = json!({"metadata": {"name": "kube-controller-manager", "namespace": "kube-system"}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    host.client("system:kube-controller-manager", "").await.post(leases, &lease).await.expect(201);
    // The kubelet registers its node, and no other.
    let kubelet = host.client("system:node:cp", "system:nodes").await;
    kubelet.post("/api/v1/nodes", &json!({"metadata": {"name": "cp"}})).await.expect(201);
    assert_eq!(kubelet.post("/api/v1/nodes", &json!({"metadata": {"name": "other"}})).await.status, 403);
    // The certificate for kubelets is accepted as a client's, and that of a front proxy is none.
    let service = root.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = root.get(slices).await.expect(200).json();
    assert_eq!(slice["endpoints"][0]["addresses"], json!([host.address.to_string()]));
    // Tokens have the issuer and are signed by sa.key.
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    root.post(accounts, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let token = root.post(format!("{accounts}/a/token"), &json!({"spec": {}})).await.expect(201).json();
    let token = token["status"]["token"].as_str().unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = host.by_token(token, |client| client.post(reviews, &review)).await.expect(201).json();
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:kube-system:a");
}

#[tokio::test]
async fn a_node_joins_by_kubeadms_bootstrap_objects() {
    let Some(mut host) = Host::init() else { return };
    host.run(&[]).await;
    let root = host.client("kubernetes-super-admin", "system:masters").await;
    let groups = "system:bootstrappers:kubeadm:default-node-token";
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": groups, "expiration": "2199-01-01T00:00:00Z",
        },
    });
    root.post("/api/v1/namespaces/kube-system/secrets", &secret).await.expect(201);
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "apiVersion: v1"}});
    root.post("/api/v1/namespaces/kube-public/configmaps", &info).await.expect(201);
    let role = json!({
        "metadata": {"name": "kubeadm:bootstrap-signer-clusterinfo"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
    });
    let public = format!("{RBAC}/namespaces/kube-public");
    root.post(format!("{public}/roles"), &role).await.expect(201);
    let anonymous = json!({
        "metadata": {"name": "kubeadm:bootstrap-signer-clusterinfo"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kubeadm:bootstrap-signer-clusterinfo"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
    });
    root.post(format!("{public}/rolebindings"), &anonymous).await.expect(201);
    let nodes = json!({
        "metadata": {"name": "kubeadm:get-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    });
    root.post(format!("{RBAC}/clusterroles"), &nodes).await.expect(201);
    let approver = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper".to_owned(), groups),
        ("kubeadm:node-autoapprove-bootstrap", format!("{approver}:nodeclient"), groups),
        ("kubeadm:node-autoapprove-certificate-rotation", format!("{approver}:selfnodeclient"), "system:nodes"),
        ("kubeadm:get-nodes", "kubeadm:get-nodes".to_owned(), groups),
    ] {
        let bound = binding(name, &role, "Group", group);
        root.post(format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
    }
    // kubeadm join: cluster-info without credentials, then a certificate request by token.
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    host.endpoint(json!({})).await.anonymous().get(info).await.expect(200);
    const TOKEN: &str = "abcdef.0123456789abcdef";
    assert_eq!(host.by_token(TOKEN, |client| client.get("/api/v1/nodes/worker")).await.status, 404);
    assert_eq!(host.by_token(TOKEN, |client| client.get("/api/v1/nodes")).await.status, 403);
    assert_eq!(host.by_token("abcdef.0123456789abcdee", |client| client.get(info)).await.status, 401);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "system:node:worker");
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({
        "metadata": {"name": "node-csr-worker"},
        "spec": {
            "request": BASE64.encode(request), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    let made = host.by_token(TOKEN, |client| client.post(requests, &request)).await.expect(201).json();
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    assert!(made["spec"]["groups"].as_array().unwrap().contains(&json!(groups)));
    let own = format!("{requests}/node-csr-worker");
    host.by_token(TOKEN, |client| client.get(own)).await.expect(200);
}
