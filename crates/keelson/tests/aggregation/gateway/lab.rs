//! A gateway in front of a server, and users of both.
//!
//! The users have the same tokens at every source.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_gateway::{GatewaySettings, RunningGateway, SourceSettings};
use keelson_testkit::{Answer, Call, Endpoint, Raw, TestServer, TestServerBuilder};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest wait for a gateway, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The tokens of users: the administrator, and users without rights of their own.
const TOKENS: &str = "root-token,root,r,system:masters\nann-token,ann,a\nbob-token,bob,b,team\n";

/// A builder for a source that knows the users.
pub(crate) fn source() -> TestServerBuilder {
    source_of(TOKENS)
}

/// A builder for a source with these tokens.
pub(crate) fn source_of(tokens: &str) -> TestServerBuilder {
    let builder = TestServer::builder();
    let file = builder.data_dir().join("tokens.csv");
    std::fs::write(&file, tokens).unwrap();
    builder.configure(move |config| config.token_file = Some(file))
}

/// A running gateway.
pub(crate) struct Gateway {
    running: Option<RunningGateway>,
    raw: Raw,
    /// The gateway as kubectl reaches it.
    pub(crate) endpoint: Endpoint,
    directory: TempDir,
}

impl Gateway {
    /// Starts a gateway with the administrator's kubeconfig of the source, and waits until it has loaded all resources.
    pub(crate) async fn before(source: &TestServer) -> Self {
        let gateway = Self::starting(source).await;
        gateway.loaded().await;
        gateway
    }

    /// Starts a gateway, and does not wait for its mirrors.
    pub(crate) async fn starting(source: &TestServer) -> Self {
        Self::of(vec![SourceSettings::new("one", source.kubeconfig())]).await
    }

    /// Starts a gateway with these sources.
    pub(crate) async fn of(sources: Vec<SourceSettings>) -> Self {
        Self::in_directory(TempDir::new().unwrap(), sources).await
    }

    /// Starts a gateway with these sources in the directory of an earlier one.
    pub(crate) async fn in_directory(directory: TempDir, sources: Vec<SourceSettings>) -> Self {
        let settings = GatewaySettings {
            bind: ([127, 0, 0, 1], 0).into(),
            data_dir: directory.path().to_owned(),
            extra_names: Vec::new(),
            sources,
            console: None,
        };
        let running = RunningGateway::start(settings).await.unwrap();
        let kubeconfig = directory.path().join("root.kubeconfig");
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}", running.addr()),
                "certificate-authority": directory.path().join("ca.pem"),
            }}],
            "users": [{"name": "u", "user": {"token": "root-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(directory.path().join("ca.pem"), running.ca_pem()).unwrap();
        std::fs::write(&kubeconfig, file.to_string()).unwrap();
        let endpoint = Endpoint::from_kubeconfig(&kubeconfig).await.unwrap();
        Self { running: Some(running), raw: endpoint.raw(), endpoint, directory }
    }

    /// Waits until all resources are loaded.
    pub(crate) async fn loaded(&self) {
        let loading = async {
            while !self.running.as_ref().unwrap().is_loaded() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, loading).await.expect("the mirrors are loaded in time");
    }

    /// A client without credentials.
    pub(crate) fn raw(&self) -> &Raw {
        &self.raw
    }

    /// A request of the administrator.
    pub(crate) fn get(&self, path: impl Into<String>) -> Call {
        self.get_as("root", path)
    }

    /// A request of a user.
    pub(crate) fn get_as(&self, user: &str, path: impl Into<String>) -> Call {
        as_user(self.raw.get(path), user)
    }

    /// Waits until an answer for the administrator is as expected.
    pub(crate) async fn until(&self, path: &str, done: impl Fn(&Answer) -> bool) -> Answer {
        let waiting = async {
            loop {
                let answer = self.get(path).await;
                if done(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the answer comes in time")
    }

    /// Stops it. Returns its directory.
    pub(crate) async fn stop(mut self) -> TempDir {
        self.running.take().unwrap().shutdown().await;
        self.directory
    }
}

/// A request with the token of a user.
pub(crate) fn as_user(call: Call, user: &str) -> Call {
    call.header("authorization", format!("Bearer {user}-token"))
}

/// Creates config maps with a label, and a value that does not sort as their names.
pub(crate) async fn create_maps(source: &TestServer, namespace: &str, count: usize) {
    let raw = source.raw();
    if raw.get(format!("/api/v1/namespaces/{namespace}")).await.status == 404 {
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
    }
    for number in 0..count {
        let map = json!({
            "metadata": {"name": format!("m{number:04}"), "labels": {"third": (number % 3 == 0).to_string()}},
            "data": {"rank": format!("{:04}", (number * 7919) % 10_000), "text": format!("word{number}")},
        });
        raw.post(format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await.expect(201);
    }
}

/// A certificate of the source's authority for a user, with its key.
pub(crate) async fn certificate(source: &TestServer, name: &str) -> String {
    let admin = source.raw();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap());
    let spec =
        json!({"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]});
    let made = admin.post(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    let mut made = made.expect(201).json();
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Lab", "message": "yes"}]);
    let path = format!("{REQUESTS}/{name}");
    admin.put(format!("{path}/approval"), &made).await.expect(200);
    let signed = crate::until(&admin, &path, |request| request["status"]["certificate"].is_string()).await;
    let certificate = STANDARD.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    format!("{}{}", String::from_utf8(certificate).unwrap(), key.serialize_pem())
}

/// The names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}
