//! Tests of exemptions from pod security, by user, runtime class and namespace, and of their audit annotations.
//!
//! `pod_security` tests pods without an exemption.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use keelson_server::{AdmissionConfiguration, AdmissionPlugins};
use keelson_testkit::{Answer, Call, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The timeout for an event.
const PATIENCE: Duration = Duration::from_secs(120);
const LABELS: &str = "pod-security.kubernetes.io/";

const ADMISSION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, audit: baseline, warn: baseline}
    exemptions: {usernames: [ann], runtimeClasses: [sandboxed], namespaces: [free]}
";

const AUDIT: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [system:apiserver]}
- {level: None, userGroups: [system:serviceaccounts:kube-system]}
- {level: Metadata, namespaces: [strict, free]}
";

/// A server with these files, an exempt runtime class and another one, and the users ann and bob.
struct Exempting {
    _server: TestServer,
    raw: Raw,
    log: PathBuf,
    _files: TempDir,
}

impl Exempting {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let settings =
            AdmissionConfiguration::from_file(&file("admission.yaml", ADMISSION), &AdmissionPlugins::default())
                .unwrap();
        let (policy, log) = (file("policy.yaml", AUDIT), files.path().join("audit.log"));
        let server = TestServer::builder().configure({
            let log = log.clone();
            move |config| {
                config.admission_configuration = settings;
                config.audit.policy_file = Some(policy);
                config.audit.log.path = Some(log);
            }
        });
        let server = server.start().await;
        let raw = server.raw();
        for namespace in ["strict", "free"] {
            raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
        }
        for class in ["sandboxed", "plain"] {
            let class = json!({ "metadata": { "name": class }, "handler": "h" });
            raw.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.expect(201);
        }
        Self { _server: server, raw, log, _files: files }
    }

    /// Sends a request as a user. Returns the response and the audit annotations of pod security.
    async fn send_as(&self, user: &str, call: Call) -> (Answer, Value) {
        let call = call.header("impersonate-user", user).header("impersonate-group", "system:masters");
        let answer = call.await;
        let id = answer.header("audit-id").to_owned();
        let begun = Instant::now();
        loop {
            let lines = std::fs::read_to_string(&self.log).unwrap_or_default();
            // The last line may be incomplete.
            let mut events = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(event) = events.find(|event| event["auditID"] == id.as_str()) {
                let annotations = event["annotations"].as_object().unwrap().clone();
                let own = annotations
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.strip_prefix(LABELS)?.to_owned(), value)));
                return (answer, own.collect());
            }
            assert!(begun.elapsed() < PATIENCE, "{id}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spec(with: &Value) -> Value {
    let mut spec = json!({ "hostNetwork": true, "containers": [{ "name": "c", "image": "i:1" }] });
    for (field, value) in with.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

fn deployment(name: &str, spec: &Value) -> Value {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": spec });
    json!({ "metadata": { "name": name }, "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } })
}

const BROKEN: &str = "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exemptions_by_user_runtime_class_and_namespace_are_audited() {
    let exempting = Exempting::start().await;
    let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods");
    let check = async |user: &str, namespace: &str, with: Value, expected: Result<&str, &str>| {
        let name = format!("{user}-{}", with["runtimeClassName"].as_str().unwrap_or("none"));
        let pod = json!({ "metadata": { "name": name }, "spec": spec(&with) });
        let (answer, told) = exempting.send_as(user, exempting.raw.post(pods(namespace), &pod)).await;
        match expected {
            Ok(exempt) => {
                assert_eq!((answer.status, told), (201, json!({ "exempt": exempt })), "{name}: {}", answer.text());
                assert_eq!(answer.headers.get("warning"), None, "{name}");
            }
            Err(policy) => {
                assert_eq!(answer.status, 403, "{name}");
                assert_eq!(answer.json()["message"], format!("pods \"{name}\" is forbidden: {BROKEN}"));
                assert_eq!((&told["enforce-policy"], &told["exempt"]), (&json!(policy), &Value::Null), "{name}");
                exempting.raw.get(format!("{}/{name}", pods(namespace))).await.expect(404);
            }
        }
    };
    let class = |name: &str| json!({ "runtimeClassName": name });
    check("bob", "strict", json!({}), Err("baseline:latest")).await;
    check("ann", "strict", json!({}), Ok("user")).await;
    check("bob", "strict", class("plain"), Err("baseline:latest")).await;
    check("bob", "strict", class("sandboxed"), Ok("runtimeClass")).await;
    check("ann", "strict", class("sandboxed"), Ok("user")).await;
    check("bob", "free", json!({}), Ok("namespace")).await;
    check("ann", "free", json!({}), Ok("namespace")).await;
    check("anna", "strict", json!({}), Err("baseline:latest")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_of_exempt_users_get_no_warnings() {
    let exempting = Exempting::start().await;
    let check = async |user: &str, with: Value, exempt: Option<&str>| {
        let name = format!("{user}-{}", with["runtimeClassName"].as_str().unwrap_or("none"));
        let place = "/apis/apps/v1/namespaces/strict/deployments";
        let (answer, told) = exempting.send_as(user, exempting.raw.post(place, &deployment(&name, &spec(&with)))).await;
        let answer = answer.expect(201);
        let warning = answer.headers.get("warning").map(|value| value.to_str().unwrap().replace("\\\"", "\""));
        match exempt {
            Some(exempt) => assert_eq!((warning, told), (None, json!({ "exempt": exempt })), "{name}"),
            None => {
                let broken = BROKEN.replace("violates", "would violate");
                let expected = format!("299 - \"{broken}\"");
                assert_eq!((warning, told), (Some(expected), json!({ "audit-violations": broken })), "{name}");
            }
        }
    };
    check("bob", json!({}), None).await;
    check("ann", json!({}), Some("user")).await;
    check("bob", json!({ "runtimeClassName": "sandboxed" }), Some("runtimeClass")).await;
}
