//! Tests of image reviews by a webhook backend.
//!
//! The tests cover the backend's requests and responses, and pods while it hangs, returns wrong data or is missing.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keelson_server::{AdmissionConfiguration, AdmissionPlugins, Config, Server};
use keelson_testkit::{HookReply, HookRequest, HookServer, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::access_webhooks::kubeconfig;

const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATIENCE: Duration = Duration::from_secs(60);

/// A backend that records its requests.
struct Backend {
    hook: HookServer,
    seen: Arc<Mutex<VecDeque<HookRequest>>>,
}

impl Backend {
    async fn start(answer: impl Fn(&Value) -> HookReply + Send + Sync + 'static) -> Self {
        let seen: Arc<Mutex<VecDeque<HookRequest>>> = Arc::default();
        let noted = seen.clone();
        let hook = HookServer::start(&["127.0.0.1"], move |request| {
            let reply = answer(&request.body);
            noted.lock().unwrap().push_back(request);
            std::future::ready(reply)
        });
        Self { hook: hook.await, seen }
    }

    fn take_requests(&self) -> Vec<HookRequest> {
        self.seen.lock().unwrap().drain(..).collect()
    }
}

fn plugins() -> AdmissionPlugins {
    AdmissionPlugins::new(vec!["ImagePolicyWebhook".to_owned()], vec!["ServiceAccount".to_owned()]).unwrap()
}

/// The settings of the plugin, with these fields in addition to the kubeconfig of the backend.
fn settings(directory: &Path, url: &str, ca_bundle: &str, with: &Value) -> AdmissionConfiguration {
    let file = kubeconfig(directory, "backend", url, ca_bundle);
    let mut own = json!({ "kubeConfigFile": file, "retryBackoff": 1 });
    own.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    super::optional_admission::settings(directory, "ImagePolicyWebhook", &json!({ "imagePolicy": own }), &plugins())
}

async fn server(directory: &Path, backend: &Backend, with: &Value) -> TestServer {
    let settings = settings(directory, &backend.hook.url("/images"), &backend.hook.ca_bundle(), with);
    let builder = TestServer::builder().configure(move |config| {
        config.admission = plugins();
        config.admission_configuration = settings;
    });
    builder.start().await
}

fn pod(name: &str, image: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// The response, which the name of the first image selects.
fn by_image(review: &Value) -> HookReply {
    let image = review["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    let answer = |status: Value| {
        HookReply::Json(json!({ "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "status": status }))
    };
    match image.split(':').next().unwrap() {
        "good" => answer(json!({ "allowed": true })),
        "bad" => answer(json!({ "allowed": false, "reason": "it is old" })),
        "long" => answer(json!({ "allowed": false, "reason": "x".repeat(500_000) })),
        "noted" => answer(json!({ "allowed": true, "auditAnnotations": { "scan": "5" } })),
        "silent" => answer(json!({})),
        "text" => answer(json!({ "allowed": "true" })),
        "kind" => HookReply::Json(json!({ "kind": "TokenReview", "status": { "allowed": true } })),
        "list" => HookReply::Json(json!([{ "status": { "allowed": true } }])),
        "status" => HookReply::Json(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
        "refuses" => HookReply::Other(403, Vec::new(), "no".to_owned()),
        "redirects" => HookReply::Other(307, vec![("location", "https://127.0.0.1:1/".to_owned())], String::new()),
        "hangs" => HookReply::Hangs,
        "dies" => HookReply::DiesInTheMiddle,
        "endless" => HookReply::Endless,
        _ => HookReply::Closes,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_sees_images_and_its_answer_counts_for_a_while() {
    let backend = Backend::start(by_image).await;
    let files = TempDir::new().unwrap();
    let server = server(files.path(), &backend, &json!({ "denyTTL": -1 })).await;
    let raw = server.raw();
    let mut whole = pod("whole", "good:1");
    whole["spec"]["initContainers"] = json!([{ "name": "i", "image": "good:2" }]);
    whole["metadata"]["annotations"] = json!({ "a.image-policy.k8s.io/ticket": "5", "other": "x" });
    raw.post(PODS, &whole).await.expect(201);
    let seen = backend.take_requests();
    assert_eq!((seen.len(), seen[0].path.as_str()), (1, "/images?timeout=30s"));
    assert_eq!(seen[0].headers["authorization"], "Bearer secret");
    assert_eq!(seen[0].body["kind"], "ImageReview");
    assert_eq!(seen[0].body["apiVersion"], "imagepolicy.k8s.io/v1alpha1");
    let containers = json!([{ "image": "good:1" }, { "image": "good:2" }]);
    let expected = json!({ "containers": containers, "annotations": { "a.image-policy.k8s.io/ticket": "5" }, "namespace": "default" });
    assert_eq!(seen[0].body["spec"], expected);
    // Unchanged images are not reviewed again, including those of an update.
    whole["metadata"]["name"] = json!("again");
    raw.post(PODS, &whole).await.expect(201);
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    raw.patch(format!("{PODS}/whole"), STRATEGIC, &label).await.expect(200);
    assert_eq!(backend.take_requests().len(), 0);
    // A new image is reviewed, and an ephemeral container's image alone. A status has no images.
    let image = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
    let denied = "is forbidden: image policy webhook backend denied one or more images: it is old";
    let response_body = raw.patch(format!("{PODS}/whole"), STRATEGIC, &image("bad:1")).await.expect(403).json();
    assert_eq!(response_body["message"], format!("pods \"whole\" {denied}"));
    let ephemeral = |image: &str| json!({ "spec": { "ephemeralContainers": [{ "name": "e", "image": image }] } });
    let place = format!("{PODS}/whole/ephemeralcontainers");
    let response_body = raw.patch(&*place, STRATEGIC, &ephemeral("bad:2")).await.expect(403).json();
    assert_eq!(response_body["message"], format!("pods \"whole\" {denied}"));
    raw.patch(&*place, STRATEGIC, &ephemeral("good:9")).await.expect(200);
    let status = json!({ "status": { "message": "m" } });
    raw.patch(format!("{PODS}/whole/status"), STRATEGIC, &status).await.expect(200);
    let seen = backend.take_requests();
    assert_eq!(seen.len(), 3, "a new image, and two ephemeral ones");
    assert_eq!(seen[2].body["spec"]["containers"], json!([{ "image": "good:9" }]));
    // Denials are not cached here, so each attempt calls the backend, and so does a dry run.
    for _ in 0..2 {
        let response_body = raw.post(format!("{PODS}?dryRun=All"), &pod("b", "bad:3")).await.expect(403).json();
        assert_eq!(response_body["message"], format!("pods \"b\" {denied}"));
    }
    let response_body = raw.post(PODS, &pod("s", "silent:1")).await.expect(403).json();
    assert_eq!(response_body["message"], "pods \"s\" is forbidden: one or more images rejected by webhook backend");
    assert_eq!(backend.take_requests().len(), 3);
    // Other kinds have no images.
    let job = json!({ "metadata": { "name": "j" }, "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "c", "image": "bad:1" }] } } } });
    raw.post("/apis/batch/v1/namespaces/default/jobs", &job).await.expect(201);
    assert!(backend.take_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_lies_dies_or_is_gone_allows_nothing() {
    let backend = Backend::start(by_image).await;
    let files = TempDir::new().unwrap();
    let server = server(files.path(), &backend, &json!({})).await;
    let raw = server.raw();
    for (image, why) in [
        ("text", "status.allowed of the answer is not a boolean"),
        ("kind", "the answer is not an ImageReview of imagepolicy.k8s.io/v1alpha1"),
        ("list", "the answer is not an object"),
        ("status", "the answer is not an ImageReview of imagepolicy.k8s.io/v1alpha1"),
        ("refuses", "unknown"),
        ("redirects", "the server responded with the status code 307 but did not return more information"),
        ("endless", "the answer is longer than 1048576 bytes"),
        ("dies", "unexpected EOF"),
        ("closes", "EOF"),
    ] {
        let response = raw.post(PODS, &pod("p", &format!("{image}:1"))).await.expect(403);
        let message = response.json()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("pods \"p\" is forbidden: ") && message.ends_with(why), "{image}: {message}");
        assert!(!response.text().contains("secret"), "{message}");
    }
    // A very long reason is truncated.
    let body = raw.post(PODS, &pod("p", "long:1")).await.expect(403).json();
    assert_eq!(body["message"].as_str().unwrap().matches('x').count(), 4096);
    // A write waits no longer than its timeout.
    let begun = Instant::now();
    let body = raw.post(format!("{PODS}?timeout=1s"), &pod("p", "hangs:1")).await.expect(504).json();
    assert_eq!(body["message"], "Timeout: request did not complete within the allotted timeout");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    backend.take_requests();
    // Many equal requests wait for one response.
    let several = (0..20).map(|number| {
        let raw = raw.clone();
        async move { raw.post(PODS, &pod(&format!("g{number}"), "good:1")).await.status }
    });
    assert_eq!(futures::future::join_all(several).await, [201; 20]);
    assert_eq!(backend.take_requests().len(), 1);
    drop(backend);
    let body = raw.post(PODS, &pod("gone", "good:2")).await.expect(403).json();
    assert!(body["message"].as_str().unwrap().contains("connect: connection refused"), "{body}");
    raw.post(PODS, &pod("kept", "good:1")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_pass_without_a_backend_where_the_settings_say_so() {
    let backend = Backend::start(by_image).await;
    let files = TempDir::new().unwrap();
    let (policy, log) = (files.path().join("policy.yaml"), files.path().join("audit.log"));
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let with = json!({ "defaultAllow": true });
    let settings = settings(files.path(), &backend.hook.url("/images"), &backend.hook.ca_bundle(), &with);
    let written = log.clone();
    let builder = TestServer::builder().configure(move |config| {
        config.admission = plugins();
        config.admission_configuration = settings;
        config.audit.policy_file = Some(policy);
        config.audit.log.path = Some(written);
    });
    let server = builder.start().await;
    let raw = server.raw();
    for image in ["text:1", "refuses:1", "redirects:1", "closes:1", "noted:1"] {
        let made = raw.post(format!("{PODS}?dryRun=All"), &pod("p", image)).await.expect(201).json();
        // The mark has no owner in `managedFields`, as all fields of plugins.
        let mark = made["metadata"]["annotations"]["alpha.image-policy.k8s.io/failed-open"].as_str();
        assert_eq!(mark, (image != "noted:1").then_some("true"), "{made}");
        assert!(!made["metadata"]["managedFields"].to_string().contains("failed-open"), "{made}");
    }
    // The mark is stored, also of a pod that had other annotations.
    let mut annotated = pod("kept", "redirects:1");
    annotated["metadata"]["annotations"] = json!({ "a": "b" });
    raw.post(PODS, &annotated).await.expect(201);
    let kept = raw.get(format!("{PODS}/kept")).await.expect(200).json();
    let expected = json!({ "a": "b", "alpha.image-policy.k8s.io/failed-open": "true" });
    assert_eq!(kept["metadata"]["annotations"], expected);
    // A denial of the backend rejects the pod.
    raw.post(PODS, &pod("p", "bad:1")).await.expect(403);
    // A request that times out is not a failure of the backend.
    raw.post(format!("{PODS}?timeout=1s"), &pod("p", "hangs:1")).await.expect(504);
    // The audit log has the failures, and the annotations of a response.
    let annotation = |key: &str, value: &str| format!("\"imagepolicywebhook.image-policy.k8s.io/{key}\":\"{value}\"");
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let count = |key: &str, value: &str| text.matches(&annotation(key, value)).count();
        if (count("failed-open", "true"), count("scan", "5")) == (5, 1) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_go_to_the_backend_that_the_files_name_now() {
    let (backend, other, stranger) =
        (Backend::start(by_image).await, Backend::start(by_image).await, Backend::start(by_image).await);
    let files = TempDir::new().unwrap();
    let server = server(files.path(), &backend, &json!({ "allowTTL": -1 })).await;
    let raw = server.raw();
    raw.post(format!("{PODS}?dryRun=All"), &pod("p", "good:1")).await.expect(201);
    assert_eq!(backend.take_requests().len(), 1);
    // A backend whose certificate has another authority gets no request.
    let moved = |to: &Backend, ca: &Backend| {
        let next = kubeconfig(files.path(), "next", &to.hook.url("/images"), &ca.hook.ca_bundle());
        std::fs::rename(next, files.path().join("backend")).unwrap();
    };
    moved(&stranger, &other);
    let begun = Instant::now();
    loop {
        let answer = raw.post(format!("{PODS}?dryRun=All"), &pod("p", "good:1")).await;
        if answer.status == 403 {
            assert!(answer.text().contains("certificate signed by unknown authority"), "{}", answer.text());
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the changed file is never read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(stranger.take_requests().is_empty());
    // An invalid file has no effect, a valid one is used.
    std::fs::write(files.path().join("next"), "users: [").unwrap();
    std::fs::rename(files.path().join("next"), files.path().join("backend")).unwrap();
    raw.post(format!("{PODS}?dryRun=All"), &pod("p", "good:1")).await.expect(403);
    moved(&other, &other);
    let begun = Instant::now();
    while raw.post(format!("{PODS}?dryRun=All"), &pod("p", "good:1")).await.status != 201 {
        assert!(begun.elapsed() < PATIENCE, "the changed file is never read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(other.take_requests()[0].headers["authorization"], "Bearer secret");
}

#[tokio::test]
async fn a_plugin_without_a_backend_keeps_the_server_from_starting() {
    let start = async |settings: AdmissionConfiguration| {
        let config = Config { admission: plugins(), admission_configuration: settings, ..Config::default() };
        format!("{:#}", Server::start(config).await.err().expect("it has no backend"))
    };
    let told = start(AdmissionConfiguration::default()).await;
    assert!(told.contains("the plugin ImagePolicyWebhook has no settings"), "{told}");
    let files = TempDir::new().unwrap();
    let plain = settings(files.path(), "http://127.0.0.1:1/", "", &json!({}));
    let told = start(plain).await;
    assert!(told.contains("the server \"http://127.0.0.1:1/\" is not of the form https://host[/path]"), "{told}");
}
