//! Tests of webhook credentials: each host receives its own, over its own connections, and no other host receives any.
//!
//! `access-config`, which reads the kubeconfigs, tests the rules for user names.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keelson_server::{AdmissionConfiguration, AdmissionPlugins, ServiceRoute};
use keelson_testkit::{
    HookReply, HookRequest, HookServer, Raw, TestServer, converted_review, definition, definition_version,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{GROUP, allowed, define};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The longest time until a changed file is read.
const PATIENCE: Duration = Duration::from_secs(60);

/// A webhook that records the credentials of each request, and allows everything.
struct RecordingWebhook {
    hook: HookServer,
    seen: Arc<Mutex<Vec<Option<String>>>>,
}

impl RecordingWebhook {
    async fn start(reply: impl Fn(&HookRequest) -> HookReply + Send + Sync + 'static) -> Self {
        let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let noted = seen.clone();
        let hook = HookServer::start(&["127.0.0.1", "hook.lab.svc"], move |request: HookRequest| {
            let shown = request.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(shown);
            std::future::ready(reply(&request))
        });
        Self { hook: hook.await, seen }
    }

    fn take_credentials(&self) -> Vec<Option<String>> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn host(&self) -> String {
        self.hook.addr().to_string()
    }

    fn client(&self) -> Value {
        json!({ "url": self.hook.url("/x"), "caBundle": self.hook.ca_bundle() })
    }
}

/// Allows admission reviews, and converts objects without a change.
fn answer(request: &HookRequest) -> HookReply {
    match request.body["kind"] == "ConversionReview" {
        true => HookReply::Json(converted_review(&request.body, |spec, _| spec.clone())),
        false => allowed(request),
    }
}

fn kubeconfig(file: &Path, users: &[(&str, Value)]) {
    let users: Vec<Value> = users.iter().map(|(name, user)| json!({ "name": name, "user": user })).collect();
    let text = json!({ "apiVersion": "v1", "kind": "Config", "users": users }).to_string();
    // Replaces the file by a rename, as operators do, so that it is never partially written.
    let next = file.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, file).unwrap();
}

/// The settings of both webhook plugins, in the older and the newer version.
fn configuration(directory: &Path) -> AdmissionConfiguration {
    let file = |name: &str| directory.join(name).display().to_string();
    let plugins = json!([
        { "name": "MutatingAdmissionWebhook", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1alpha1", "kind": "WebhookAdmission", "kubeConfigFile": file("mutating") } },
        { "name": "ValidatingAdmissionWebhook", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": file("validating") } },
    ]);
    let document =
        json!({ "apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration", "plugins": plugins });
    let path = directory.join("admission.yaml");
    std::fs::write(&path, document.to_string()).unwrap();
    AdmissionConfiguration::from_file(&path, &AdmissionPlugins::default()).unwrap()
}

/// Configures one webhook for ConfigMaps with a label with its name.
async fn configure(raw: &Raw, kind: &str, name: &str, client: Value) {
    let webhook = json!({
        "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": client, "objectSelector": { "matchLabels": { "for": name } },
        "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
    });
    let configuration = json!({ "metadata": { "name": name }, "webhooks": [webhook] });
    raw.post(format!("{GROUP}/{kind}webhookconfigurations"), &configuration).await.expect(201);
}

fn map(name: &str, label: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "for": label } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_go_to_the_host_that_they_are_for() {
    // SIZE: one story, in its order.
    let (own, other) = (RecordingWebhook::start(answer).await, RecordingWebhook::start(answer).await);
    let redirected = other.hook.url("/x");
    let redirecting =
        RecordingWebhook::start(move |_| HookReply::Other(307, vec![("location", redirected.clone())], String::new()));
    let redirecting = redirecting.await;
    let files = TempDir::new().unwrap();
    let basic = json!({ "username": "ann", "password": "pass" });
    let users = [
        (&*own.host(), json!({ "token": "for-own" })),
        (&*redirecting.host(), json!({ "token": "for-redirecting" })),
        ("hook.lab.svc", json!({ "token": "for-service", "as": "bob" })),
        ("localhost", json!({ "token": "for-localhost" })),
    ];
    kubeconfig(&files.path().join("mutating"), &users);
    kubeconfig(&files.path().join("validating"), &[(&own.host(), basic)]);
    let settings = configuration(files.path());
    let route: ServiceRoute = format!("lab/hook={}", own.hook.url("")).parse().unwrap();
    let builder = TestServer::builder().configure(move |config| {
        config.admission_configuration = settings;
        config.service_routes = [route].into_iter().collect();
    });
    let server = builder.start().await;
    let raw = server.raw();

    configure(&raw, "mutating", "own", own.client()).await;
    configure(&raw, "mutating", "other", other.client()).await;
    configure(&raw, "mutating", "redirecting", redirecting.client()).await;
    configure(&raw, "validating", "checked", own.client()).await;
    let service = json!({ "service": { "namespace": "lab", "name": "hook" }, "caBundle": own.hook.ca_bundle() });
    configure(&raw, "mutating", "service", service).await;

    let bearer = |token: &str| vec![Some(format!("Bearer {token}"))];
    raw.post(MAPS, &map("own", "own")).await.expect(201);
    assert_eq!((own.take_credentials(), other.take_credentials()), (bearer("for-own"), vec![]));
    raw.post(MAPS, &map("other", "other")).await.expect(201);
    assert_eq!(
        (own.take_credentials(), other.take_credentials()),
        (vec![], vec![None]),
        "no user is named after this host"
    );
    raw.post(MAPS, &map("checked", "checked")).await.expect(201);
    assert_eq!(
        own.take_credentials(),
        [Some("Basic YW5uOnBhc3M=".to_owned())],
        "the other plugin has credentials of its own"
    );
    raw.post(MAPS, &map("service", "service")).await.expect(201);
    assert_eq!(own.take_credentials(), bearer("for-service"));

    // A redirect is a failure, and is not followed.
    let failed = raw.post(MAPS, &map("redirected", "redirecting")).await.expect(500);
    assert_eq!((redirecting.take_credentials(), other.take_credentials()), (bearer("for-redirecting"), vec![]));
    assert!(!failed.text().contains("for-redirecting"), "{}", failed.text());

    // A conversion webhook on the same host is called without the credentials.
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let versions = ["v1", "v2"].map(|name| definition_version(name, name == "v1", schema.clone())).to_vec();
    let mut things = definition("hooked.example.com", "things", "Thing", versions);
    let webhook = json!({ "clientConfig": own.client(), "conversionReviewVersions": ["v1"] });
    things["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    define(&raw, &things).await;
    let place = |version: &str| format!("/apis/hooked.example.com/{version}/namespaces/default/things");
    raw.post(place("v1"), &json!({ "metadata": { "name": "a" } })).await.expect(201);
    raw.get(format!("{}/a", place("v2"))).await.expect(200);
    let seen = own.take_credentials();
    assert!(!seen.is_empty() && seen.iter().all(Option::is_none), "conversions have no credentials: {seen:?}");

    // The running server reads changed files, and ignores invalid ones.
    std::fs::write(files.path().join("mutating"), "users: [{name: x, user: {exec: {}}}]").unwrap();
    raw.post(MAPS, &map("kept", "own")).await.expect(201);
    assert_eq!(own.take_credentials(), bearer("for-own"));
    kubeconfig(&files.path().join("mutating"), &[(&own.host(), json!({ "token": "renewed" }))]);
    let begun = Instant::now();
    for number in 0.. {
        raw.post(MAPS, &map(&format!("renewed-{number}"), "own")).await.expect(201);
        if own.take_credentials() == bearer("renewed") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the changed file is never read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
