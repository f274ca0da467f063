//! Tests of pod security: the enforced level of a namespace, its warnings, and its warnings about existing pods.
//!
//! The crate `admission` tests the controls themselves.

use keelson_server::{AdmissionConfiguration, AdmissionPlugins};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const LABELS: &str = "pod-security.kubernetes.io/";
const ALL_OF_A_PLAIN_POD: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
    securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
    securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
    securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

async fn namespace(raw: &Raw, name: &str, labels: &[(&str, &str)]) {
    let labels: Value = labels.iter().map(|(mode, level)| (format!("{LABELS}{mode}"), json!(level))).collect();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": name, "labels": labels } })).await.expect(201);
}

fn pod(name: &str, mut spec: Value) -> Value {
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "c", "image": "i:1" }]);
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

async fn post(raw: &Raw, namespace: &str, pod: &Value) -> Answer {
    raw.post(format!("/api/v1/namespaces/{namespace}/pods"), pod).await
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// The texts of a response's warnings.
fn warnings(answer: &Answer) -> Vec<String> {
    let told = answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap());
    let quoted = told.map(|text| text.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap());
    quoted.map(|text| text.replace("\\\"", "\"")).collect()
}

#[tokio::test]
async fn pods_keep_the_standard_of_their_namespace() {
    let server = TestServer::start().await;
    let raw = server.raw();
    namespace(&raw, "baseline", &[("enforce", "baseline")]).await;
    namespace(&raw, "restricted", &[("enforce", "restricted")]).await;
    namespace(&raw, "dated", &[("enforce", "baseline"), ("enforce-version", "v1.33")]).await;
    let refused = post(&raw, "baseline", &pod("p", json!({ "hostNetwork": true }))).await.expect(403);
    let text = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!(message(&refused), text);
    post(&raw, "baseline", &pod("plain", json!({}))).await.expect(201);
    let refused = post(&raw, "restricted", &pod("p", json!({}))).await.expect(403);
    let text = format!("pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": {ALL_OF_A_PLAIN_POD}");
    assert_eq!(message(&refused), text);
    let own = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let hardened = json!({
        "containers": [{ "name": "c", "image": "i", "securityContext": own }],
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
    });
    post(&raw, "restricted", &pod("good", hardened)).await.expect(201);
    // A control of a later release is not part of the standard of an earlier one.
    let probe = json!({ "httpGet": { "port": 80, "host": "10.0.0.1" } });
    let probing = json!({ "containers": [{ "name": "c", "image": "i", "livenessProbe": probe }] });
    post(&raw, "dated", &pod("p", probing.clone())).await.expect(201);
    let refused = post(&raw, "baseline", &pod("p", probing)).await.expect(403);
    assert!(message(&refused).contains("container \"c\" uses probe or lifecycle host \"10.0.0.1\""));
    // For an invalid pod the validation error comes first.
    post(&raw, "restricted", &pod("Bad_Name", json!({ "hostNetwork": true }))).await.expect(422);
}

#[tokio::test]
async fn workloads_get_warnings_for_pods_that_would_be_refused() {
    let server = TestServer::start().await;
    let raw = server.raw();
    namespace(&raw, "warned", &[("warn", "restricted")]).await;
    namespace(&raw, "enforced", &[("enforce", "baseline")]).await;
    namespace(&raw, "told", &[("enforce", "baseline"), ("warn", "privileged")]).await;
    let made = post(&raw, "warned", &pod("p", json!({}))).await.expect(201);
    assert_eq!(warnings(&made), [format!("would violate PodSecurity \"restricted:latest\": {ALL_OF_A_PLAIN_POD}")]);
    let deployment = |name: &str| {
        let capable = json!({ "capabilities": { "add": ["SYS_ADMIN"] } });
        let containers = json!([{ "name": "c", "image": "i", "securityContext": capable }]);
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": containers } });
        json!({ "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } })
    };
    let place = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let made = raw.post(place("enforced"), &deployment("w")).await.expect(201);
    let message = "would violate PodSecurity \"baseline:latest\": non-default capabilities (container \"c\" must not \
                include \"SYS_ADMIN\" in securityContext.capabilities.add)";
    assert_eq!(warnings(&made), [message]);
    assert!(warnings(&raw.post(place("told"), &deployment("w")).await.expect(201)).is_empty());
    let labelled = json!({ "metadata": { "labels": { "x": "y" } } });
    let changed = raw.patch(format!("{}/w", place("enforced")), MERGE, &labelled).await.expect(200);
    assert_eq!(warnings(&changed), [message]);
    let scaled = json!({ "spec": { "replicas": 3 } });
    let scaled = raw.patch(format!("{}/w/scale", place("enforced")), MERGE, &scaled).await.expect(200);
    assert!(warnings(&scaled).is_empty());
}

#[tokio::test]
async fn a_namespace_that_enforces_more_reports_the_pods_that_it_has() {
    let server = TestServer::start().await;
    let raw = server.raw();
    namespace(&raw, "lab", &[]).await;
    for (name, spec) in [
        ("a", json!({ "hostNetwork": true })),
        ("b", json!({ "hostPID": true })),
        ("c", json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] })),
        ("d", json!({})),
    ] {
        post(&raw, "lab", &pod(name, spec)).await.expect(201);
    }
    let enforce = |level: &str| json!({ "metadata": { "labels": { format!("{LABELS}enforce"): level } } });
    let path = "/api/v1/namespaces/lab";
    let changed = raw.patch(path, MERGE, &enforce("baseline")).await.expect(200);
    let told = [
        "existing pods in namespace \"lab\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "a (and 1 other pod): host namespaces",
        "c: hostPath volumes",
    ];
    assert_eq!(warnings(&changed), told);
    assert!(warnings(&raw.patch(path, MERGE, &enforce("baseline")).await.expect(200)).is_empty(), "it is the same");
    assert!(warnings(&raw.patch(path, MERGE, &enforce("privileged")).await.expect(200)).is_empty(), "it is less");
    raw.patch(path, MERGE, &enforce("restricted")).await.expect(200);
    // A change that does not concern the running containers is allowed.
    let pods = "/api/v1/namespaces/lab/pods/d";
    raw.patch(pods, MERGE, &json!({ "metadata": { "labels": { "x": "y" } } })).await.expect(200);
    let image = json!({ "spec": { "containers": [{ "name": "c", "image": "i:2" }] } });
    let refused = raw.patch(pods, "application/strategic-merge-patch+json", &image).await.expect(403);
    let text = format!("pods \"d\" is forbidden: violates PodSecurity \"restricted:latest\": {ALL_OF_A_PLAIN_POD}");
    assert_eq!(message(&refused), text);
    raw.delete(format!("{pods}?gracePeriodSeconds=0")).await.expect(200);
}

#[tokio::test]
async fn a_file_sets_defaults_and_exemptions() {
    let files = tempfile::TempDir::new().unwrap();
    let path = files.path().join("admission.yaml");
    let text = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
    exemptions: {namespaces: [free]}
";
    std::fs::write(&path, text).unwrap();
    let settings = AdmissionConfiguration::from_file(&path, &AdmissionPlugins::default()).unwrap();
    let server = TestServer::builder().configure(|config| config.admission_configuration = settings).start().await;
    let raw = server.raw();
    namespace(&raw, "free", &[]).await;
    namespace(&raw, "labelled", &[("enforce", "privileged")]).await;
    let bad = pod("p", json!({ "hostNetwork": true }));
    post(&raw, "default", &bad).await.expect(403);
    post(&raw, "free", &bad).await.expect(201);
    post(&raw, "labelled", &bad).await.expect(201);
    std::fs::write(&path, text.replace("baseline", "high")).unwrap();
    let error = AdmissionConfiguration::from_file(&path, &AdmissionPlugins::default()).unwrap_err().to_string();
    assert!(error.contains("defaults.enforce: Invalid value: \"high\""), "{error}");
    // Settings of plugins that are off are not read, and the older name of the group is accepted.
    let others = "- name: ResourceQuota\n- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {}}\n- name: PodTolerationRestriction\n  path: none.yaml\n";
    std::fs::write(&path, format!("{text}{others}").replace("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"))
        .unwrap();
    AdmissionConfiguration::from_file(&path, &AdmissionPlugins::default()).unwrap();
    let on = AdmissionPlugins::new(vec!["ImagePolicyWebhook".to_owned()], Vec::new()).unwrap();
    let error = AdmissionConfiguration::from_file(&path, &on).unwrap_err().to_string();
    assert!(error.contains("imagePolicy.kubeConfigFile: Required value"), "{error}");
}

/// A profile in an annotation, as before Kubernetes 1.30, is copied to its field.
#[tokio::test]
async fn profiles_in_annotations_are_read_into_fields_and_validated() {
    let server = TestServer::start().await;
    let raw = server.raw();
    namespace(&raw, "baseline", &[("enforce", "baseline")]).await;
    let annotated = |name: &str, container: &str, profile: &str, spec: Value| {
        let mut pod = pod(name, spec);
        let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
        pod["metadata"]["annotations"] = json!({ key: profile });
        pod
    };
    let text = "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \
                \"appArmorProfile\" field instead";
    let refused = post(&raw, "baseline", &annotated("p", "c", "unconfined", json!({}))).await.expect(403);
    assert_eq!(
        message(&refused),
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": forbidden AppArmor profiles (container \"c\" and \
         annotation must not set AppArmor profile type to \"Unconfined\", \
         \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")"
    );
    assert_eq!(warnings(&refused), [text]);
    let stated = |answer: &Answer| answer.json()["spec"]["containers"][0]["securityContext"]["appArmorProfile"].clone();
    let made = post(&raw, "baseline", &annotated("a", "c", "localhost/mine", json!({}))).await.expect(201);
    assert_eq!(stated(&made), json!({ "type": "Localhost", "localhostProfile": "mine" }));
    assert_eq!(warnings(&made), [text]);
    // The field is not set if the pod or the container already has a profile, or if the annotation is for another
    // container.
    let of_pod = json!({ "securityContext": { "appArmorProfile": { "type": "RuntimeDefault" } } });
    let made = post(&raw, "baseline", &annotated("b", "c", "runtime/default", of_pod)).await.expect(201);
    assert_eq!((stated(&made), warnings(&made)), (Value::Null, vec![]));
    let own =
        json!({ "name": "c", "image": "i", "securityContext": { "appArmorProfile": { "type": "RuntimeDefault" } } });
    let made = annotated("d", "c", "runtime/default", json!({ "containers": [own] }));
    let made = post(&raw, "baseline", &made).await.expect(201);
    assert_eq!((stated(&made), warnings(&made)), (json!({ "type": "RuntimeDefault" }), vec![]));
}
