//! Tests of an operator in kopf: it registers its webhooks, defaults and refuses objects, keeps finalizers, and writes
//! status and events. It gives way to an operator of higher priority.
//!
//! kopf is not in this repository: `cargo xtask test` fetches it, or reports that it can't.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use keelson_testkit::{Answer, Endpoint, Raw, TestServer, definition_version};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{MERGE, definition, establish, until, until_gone};

/// Names the directory of kopf for Python; `cargo xtask kopf` prints it.
const VARIABLE: &str = "KEELSON_TEST_KOPF";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/custom_resources/operators/operator.py");
const WIDGETS: &str = "/apis/operators.example.com/v1/namespaces/default/widgets";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
/// The path where operators find each other.
const PEERS: &str = "/apis/kopf.dev/v1/clusterkopfpeerings";
/// The longest wait for an operator, which retries with growing intervals.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running operator. Killed when dropped.
struct Operator {
    child: Child,
    name: &'static str,
}

impl Operator {
    fn start(server: &Endpoint, files: &Path, name: &'static str, priority: u32) -> Self {
        let log = File::create(files.join(name)).unwrap();
        let mut command = Command::new("python3");
        command.args(["-m", "kopf", "run", "--all-namespaces", "--peering", "widgets", "--priority"]);
        command.arg(priority.to_string()).arg(SOURCE);
        command.env("PYTHONPATH", std::env::var_os(VARIABLE).unwrap()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("KUBECONFIG", server.kubeconfig()).env("OPERATOR_NAME", name).env("OPERATOR_FILES", files);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().expect("Python runs"), name }
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Writes authority, certificate and key of the operator's webhooks to files.
fn certify(files: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    for (name, text) in [("ca.pem", ca.pem()), ("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())] {
        std::fs::write(files.join(name), text).unwrap();
    }
}

/// Defines the operator's resource, and the one for kopf's peering.
async fn define(raw: &Raw) {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({ "type": "object", "properties": {
        "size": { "type": "integer" }, "color": { "type": "string" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": any } });
    let mut version = definition_version("v1", true, schema);
    version["subresources"] = json!({ "status": {} });
    establish(raw, &definition("operators.example.com", "widgets", "Widget", json!([version]))).await;
    let schema = json!({ "type": "object", "properties": { "status": any } });
    let version = definition_version("v1", true, schema);
    let mut peers = definition("kopf.dev", "clusterkopfpeerings", "ClusterKopfPeering", json!([version]));
    peers["spec"]["scope"] = json!("Cluster");
    establish(raw, &peers).await;
    let peering =
        json!({ "apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": { "name": "widgets" } });
    raw.post(PEERS, &peering).await.expect(201);
}

/// A test's server, with the directory of the operators' files.
struct Lab {
    server: TestServer,
    raw: Raw,
    files: TempDir,
}

impl Lab {
    /// Waits until the object at a path is as expected. A failure shows the operators' logs.
    async fn wait(&self, path: &str, done: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let found = match self.raw.get(path).try_send().await {
                    Ok(answer) => serde_json::from_str(&answer.text()).unwrap_or(Value::Null),
                    Err(_) => Value::Null,
                };
                if done(&found) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => panic!("{path} does not become so: {}\n{}", self.raw.get(path).await.text(), self.logs()),
        }
    }

    fn logs(&self) -> String {
        let read = |name| std::fs::read_to_string(self.files.path().join(name)).unwrap_or_default();
        ["first", "again", "second"].map(read).join("\n----\n")
    }

    fn start(&self, name: &'static str, priority: u32) -> Operator {
        Operator::start(&self.server, self.files.path(), name, priority)
    }

    /// Creates a widget once the operator's webhook answers, replacing that of a killed one.
    async fn make(&self, name: &str, spec: Value) -> Answer {
        let widget = json!({ "apiVersion": "operators.example.com/v1", "kind": "Widget",
            "metadata": { "name": name }, "spec": spec });
        let wait = async {
            loop {
                let answer = self.raw.post(WIDGETS, &widget).await;
                if answer.status != 500 {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let made = tokio::time::timeout(PATIENCE, wait).await;
        made.unwrap_or_else(|_| panic!("no operator answers for widgets\n{}", self.logs()))
    }

    /// Waits until the operator has registered both of its webhooks.
    async fn registered(&self) {
        for kind in ["mutating", "validating"] {
            let path = format!("{HOOKS}/{kind}webhookconfigurations/operators.example.com");
            self.wait(&path, |found| found["webhooks"].as_array().is_some_and(|webhooks| !webhooks.is_empty())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_in_kopf_fills_in_refuses_follows_and_comes_back() {
    if std::env::var_os(VARIABLE).is_none_or(|directory| directory.is_empty()) {
        return;
    }
    let server = TestServer::builder().sqlite().start().await;
    let (raw, files) = (server.raw(), TempDir::new().unwrap());
    define(&raw).await;
    certify(files.path());
    let mut lab = Lab { server, raw, files };

    let first = lab.start("first", 10);
    lab.registered().await;
    let made = lab.make("a", json!({ "size": 10 })).await.expect(201);
    assert_eq!(made.header("warning"), "299 - \"as large as can be\"");
    assert_eq!(made.json()["spec"], json!({ "size": 10, "color": "green" }), "its webhook fills in");
    let refused = lab.make("b", json!({ "size": 11 })).await.expect(422).json();
    let message = "admission webhook \"judge.operators.example.com\" denied the request: size 11 is too large";
    assert_eq!(refused["message"], message);
    let one = format!("{WIDGETS}/a");
    let followed = lab.wait(&one, |found| found["status"]["made"]["by"] == "first").await;
    assert_eq!(followed["metadata"]["finalizers"], json!(["operators.example.com/kopf"]));
    lab.wait(&one, |found| found["status"]["tick"]["count"].as_u64() > Some(1)).await;
    lab.raw.patch(&*one, MERGE, &json!({ "spec": { "size": 3 } })).await.expect(200);
    let grown = json!({ "by": "first", "old": 10, "new": 3 });
    lab.wait(&one, |found| found["status"]["grown/spec.size"] == grown).await;

    // After a restart of the server the operator still works.
    lab.server.restart().await;
    lab.raw = lab.server.raw();
    lab.raw.patch(&*one, MERGE, &json!({ "spec": { "size": 4 } })).await.expect(200);
    lab.wait(&one, |found| found["status"]["grown/spec.size"]["new"] == 4).await;

    // Without the operator no write passes its webhooks. It resumes from the stored state.
    first.kill().await;
    let body = lab.raw.patch(&*one, MERGE, &json!({ "spec": { "size": 5 } })).await.expect(500).json();
    assert!(
        body["message"].as_str().unwrap().contains("failed calling webhook \"fill.operators.example.com\""),
        "{body}"
    );
    lab.raw.get(&*one).await.expect(200);
    let again = lab.start("again", 10);
    lab.wait(&one, |found| found["status"]["seen"]["by"] == "again").await;
    lab.make("c", json!({ "size": 1 })).await.expect(201);
    lab.wait(&format!("{WIDGETS}/c"), |found| found["status"]["made"]["by"] == "again").await;

    gives_way(&lab, again).await;
}

/// An operator of higher priority takes over, and objects are deleted after its finalizers have run.
async fn gives_way(lab: &Lab, again: Operator) {
    let second = lab.start("second", 20);
    let log = lab.files.path().join(again.name);
    let pauses = async {
        while !std::fs::read_to_string(&log).unwrap().contains("Pausing operations in favour of") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, pauses).await.unwrap_or_else(|_| panic!("it gives no way\n{}", lab.logs()));
    lab.make("d", json!({ "size": 1 })).await.expect(201);
    lab.wait(&format!("{WIDGETS}/d"), |found| found["status"]["made"]["by"] == "second").await;
    for name in ["a", "c", "d"] {
        lab.raw.delete(format!("{WIDGETS}/{name}")).await.expect(200);
        until_gone(&lab.raw, &format!("{WIDGETS}/{name}")).await;
    }
    let gone = |found: &Value| {
        let told = |event: &Value| event["reason"] == "Gone" && event["message"] == "by second";
        found["items"].as_array().is_some_and(|events| events.iter().filter(|event| told(event)).count() == 3)
    };
    lab.wait("/api/v1/namespaces/default/events", gone).await;
    let peers = until(&lab.raw, &format!("{PEERS}/widgets"), |found| found["status"].is_object()).await;
    let of_weight = |peer: &Value| peer["priority"] == 20;
    assert!(peers["status"].as_object().unwrap().values().any(of_weight), "{peers}");
    drop((again, second));
}
