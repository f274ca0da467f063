//! Tests of webhooks and policies from manifests in directories.
//!
//! They are read at the start and about every ten seconds.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use keelson_meta::Release;
use keelson_server::{AdmissionConfiguration, AdmissionPlugins};
use keelson_testkit::{HookReply, HookRequest, HookServer, Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{GROUP, allowed, patched, review, warnings};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GATE: &str = "ManifestBasedAdmissionControlConfig";
const METRICS: &str = "apiserver_manifest_admission_config_controller";
/// The longest time until a changed file is read.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plugins, with the kinds of their settings. Each has the directory with its name.
const PLUGINS: [(&str, &str); 4] = [
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"),
    ("MutatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"),
    ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
];

/// The directories of all plugins, and a file that configures them.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(TempDir::new().unwrap());
        let settings = |(name, kind): (&str, &str)| {
            fs::create_dir(files.path(name)).unwrap();
            let own = json!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": files.path(name),
            });
            json!({ "name": name, "configuration": own })
        };
        let plugins = PLUGINS.map(settings);
        let document = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
        });
        fs::write(files.path("admission.yaml"), document.to_string()).unwrap();
        files
    }

    fn path(&self, below: &str) -> String {
        self.0.path().join(below).display().to_string()
    }

    /// Writes a manifest, by a rename.
    fn write(&self, plugin: &str, name: &str, documents: &[Value]) {
        let text: Vec<String> = documents.iter().map(|document| format!("{document}\n")).collect();
        let next = self.path("next");
        fs::write(&next, text.join("---\n")).unwrap();
        fs::rename(next, Path::new(&self.path(plugin)).join(name)).unwrap();
    }

    fn builder(&self) -> TestServerBuilder {
        let settings = Path::new(&self.path("admission.yaml")).to_owned();
        let settings = AdmissionConfiguration::from_file(&settings, &AdmissionPlugins::default()).unwrap();
        TestServer::builder().configure(move |config| config.admission_configuration = settings)
    }
}

fn manifest(kind: &str, name: &str, of: Value) -> Value {
    let mut manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": { "name": format!("{name}.static.k8s.io") },
    });
    let Value::Object(of) = of else { panic!("no fields: {of}") };
    manifest.as_object_mut().unwrap().extend(of);
    manifest
}

/// A policy that refuses new objects of a resource with a label, and its binding.
fn refusing(name: &str, (group, resource): (&str, &str), label: &str) -> [Value; 2] {
    let rule = json!({ "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource] });
    let validation = json!({
        "expression": format!("!(has(object.metadata.labels) && '{label}' in object.metadata.labels)"),
        "message": format!("{label} is refused"),
    });
    let spec = json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [validation] });
    [
        manifest("ValidatingAdmissionPolicy", name, json!({ "spec": spec })),
        binding("ValidatingAdmissionPolicyBinding", name, json!({ "validationActions": ["Deny"] })),
    ]
}

fn binding(kind: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({ "policyName": format!("{name}.static.k8s.io") });
    let Value::Object(more) = more else { panic!("no fields: {more}") };
    spec.as_object_mut().unwrap().extend(more);
    manifest(kind, name, json!({ "spec": spec }))
}

/// A policy that sets a label of new ConfigMaps, and its binding.
fn labelling(name: &str) -> [Value; 2] {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    });
    let expression = "Object{metadata: Object.metadata{labels: {'from-policy': 'yes'}}}";
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] }, "reinvocationPolicy": "Never",
        "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }],
    });
    [
        manifest("MutatingAdmissionPolicy", name, json!({ "spec": spec })),
        binding("MutatingAdmissionPolicyBinding", name, json!({})),
    ]
}

/// A configuration of one webhook for new ConfigMaps.
fn calling(kind: &str, name: &str, hook: &HookServer) -> Value {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    });
    let webhook = json!({
        "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": hook.url(&format!("/{name}")), "caBundle": hook.ca_bundle() }, "rules": [rule],
        "matchConditions": [{ "name": "ours", "expression": "!request.userInfo.username.startsWith('system:')" }],
    });
    manifest(kind, name, json!({ "webhooks": [webhook] }))
}

fn answer(request: &HookRequest) -> HookReply {
    let is_bad = !request.body["request"]["object"]["data"]["bad"].is_null();
    match &*request.path {
        path if path.starts_with("/patches") => {
            patched(request, &json!([{ "op": "add", "path": "/data", "value": { "patched": "yes" } }]))
        }
        path if path.starts_with("/checks") && is_bad => {
            review(request, json!({ "allowed": false, "status": { "message": "bad data" } }))
        }
        _ => allowed(request),
    }
}

fn map(name: &str, label: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { label: "x" } } })
}

async fn message(raw: &Raw, path: &str, object: &Value) -> String {
    raw.post(path, object).await.expect(422).json()["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_and_policies_from_manifests_apply_from_the_start() {
    let hook = HookServer::start(&["127.0.0.1"], |request: HookRequest| std::future::ready(answer(&request))).await;
    let files = Files::new();
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let mut both = refusing("maps", ("", "configmaps"), "refused").to_vec();
    both.extend(refusing("policies", ("admissionregistration.k8s.io", "*"), "locked"));
    files.write("ValidatingAdmissionPolicy", "policies.yaml", &both);
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": labelling("labels") });
    files.write("MutatingAdmissionPolicy", "labels.json", &[list]);
    let hooks = |kind, name| [calling(kind, name, &hook)];
    files.write("MutatingAdmissionWebhook", "hooks.yml", &hooks("MutatingWebhookConfiguration", "patches"));
    files.write("ValidatingAdmissionWebhook", "hooks.yaml", &hooks("ValidatingWebhookConfiguration", "checks"));
    let server = files.builder().start().await;
    let raw = server.raw();

    let made = raw.post(MAPS, &map("good", "any")).await.expect(201).json();
    assert_eq!(made["metadata"]["labels"], json!({ "any": "x", "from-policy": "yes" }));
    assert_eq!(made["data"], json!({ "patched": "yes" }));
    let refused = message(&raw, MAPS, &map("refused", "refused")).await;
    let by = "ValidatingAdmissionPolicy 'maps.static.k8s.io' with binding 'maps.static.k8s.io'";
    assert!(refused.ends_with(&format!("{by} denied request: refused is refused")), "{refused}");

    // Manifests guard the objects that configure admission too.
    let rule = json!({ "apiGroups": ["none"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["none"] });
    let policy = |name: &str, labels: Value| {
        json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": "true" }] },
        })
    };
    let refused = message(&raw, &policies, &policy("own", json!({ "locked": "yes" }))).await;
    assert!(refused.ends_with("denied request: locked is refused"), "{refused}");
    raw.post(&policies, &policy("own", json!({}))).await.expect(201);

    // The API shows no manifest, and has no objects with such names.
    let names: Vec<Value> = raw.get(&policies).await.expect(200).json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| policy["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["own"]);
    let refused = message(&raw, &policies, &policy("other.static.k8s.io", json!({}))).await;
    let reserved = "names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and \
                    cannot be managed via the API";
    assert!(refused.ends_with(&format!("metadata.name: Invalid value: \"other.static.k8s.io\": {reserved}")));

    let text = raw.get("/metrics").await.expect(200).text();
    let of = |family: &str| text.lines().filter(|line| line.starts_with(&format!("{METRICS}_{family}{{"))).count();
    let expected = (4, 4, 4);
    assert_eq!(
        (of("automatic_reloads_total"), of("automatic_reload_last_timestamp_seconds"), of("last_config_info")),
        expected
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_changes_of_manifests_take_effect_and_others_do_not() {
    const PLUGIN: &str = "ValidatingAdmissionPolicy";
    let files = Files::new();
    files.write(PLUGIN, "a.yaml", &refusing("first", ("", "configmaps"), "first"));
    let server = files.builder().start().await;
    let raw = server.raw();
    message(&raw, MAPS, &map("a", "first")).await;
    raw.post(MAPS, &map("b", "second")).await.expect(201);

    // A binding without a policy: the earlier manifests stay.
    let [_, alone] = refusing("alone", ("", "configmaps"), "alone");
    files.write(PLUGIN, "b.yaml", &[alone]);
    let until = Instant::now() + PATIENCE;
    let reads = async |status: &str| {
        let text = raw.get("/metrics").await.expect(200).text();
        let family = format!("{METRICS}_automatic_reloads_total{{");
        text.lines().any(|line| {
            line.starts_with(&family)
                && line.contains(&format!("plugin=\"{PLUGIN}\""))
                && line.contains(&format!("status=\"{status}\""))
        })
    };
    assert!(reads("success").await);
    while !reads("failure").await {
        assert!(Instant::now() < until, "the failure is not counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    message(&raw, MAPS, &map("a", "first")).await;

    files.write(PLUGIN, "b.yaml", &refusing("second", ("", "configmaps"), "second"));
    let until = Instant::now() + PATIENCE;
    while raw.post(format!("{MAPS}?dryRun=All"), &map("c", "second")).await.status != 422 {
        assert!(Instant::now() < until, "the change has no effect");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    message(&raw, MAPS, &map("a", "first")).await;
}

#[tokio::test]
async fn manifests_need_their_gate_and_valid_files() {
    let files = Files::new();
    let failure = async |builder: TestServerBuilder| match builder.try_start().await {
        Ok(_) => panic!("the server started"),
        Err(error) => error,
    };
    let closed = format!("staticManifestsDir requires the {GATE} feature gate to be enabled");
    let error = failure(files.builder().emulating(Release::V1_36)).await;
    assert!(error.contains(&closed), "{error}");
    let without =
        files.builder().configure(|config| config.registry.gates.set(&[(GATE.to_owned(), false)]).map(drop).unwrap());
    let error = failure(without).await;
    assert!(error.contains(&closed), "{error}");

    let [policy, _] = refusing("a", ("", "configmaps"), "a");
    files.write("ValidatingAdmissionWebhook", "a.yaml", &[policy]);
    let error = failure(files.builder()).await;
    assert!(
        error.contains("unsupported resource type admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy"),
        "{error}"
    );
}

#[tokio::test]
async fn without_manifests_reserved_names_are_warned_of() {
    let text = "metadata.name: names ending with \\\".static.k8s.io\\\" are reserved for static manifest-based \
                configurations and cannot be managed via the API";
    let configuration = json!({ "metadata": { "name": "a.static.k8s.io" }, "webhooks": [] });
    let server = TestServer::builder().emulating(Release::V1_36).start().await;
    let made = server.raw().post(format!("{GROUP}/validatingwebhookconfigurations"), &configuration).await.expect(201);
    assert_eq!(warnings(&made), [format!("299 - \"{text}\"")]);
}
