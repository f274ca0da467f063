//! Tests of admission's annotations in the audit log.
//!
//! The annotations name pods that violate the audited standard, webhooks that changed an object, with their patches,
//! and webhooks that failed open.

use keelson_testkit::{HookReply, HookRequest, HookServer};
use serde_json::{Value, json};

use super::Audited;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const ALL_OF_A_PLAIN_POD: &str = "allowPrivilegeEscalation != false (container \"c\" must set \
    securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
    securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
    securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
    securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

/// The annotations of the last event, without those of authorization.
fn annotations(events: &[Value]) -> Value {
    let mut annotations = events.last().unwrap()["annotations"].clone();
    annotations.as_object_mut().unwrap().retain(|key, _| !key.starts_with("authorization."));
    annotations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_break_the_audited_standard_are_in_the_audit_log() {
    let audited = Audited::start().await;
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    let pods = "/api/v1/namespaces/meta/pods";
    let pod = |name: &str, host: bool| {
        let spec = json!({ "hostNetwork": host, "containers": [{ "name": "c", "image": "i" }] });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let (_, events) = audited.events("admin", |raw| raw.post(pods, &pod("free", true))).await;
    assert_eq!(annotations(&events), json!({ label("enforce-policy"): "privileged:latest" }));

    let labels = json!({ label("enforce"): "baseline", label("audit"): "restricted" });
    let namespace = audited.admin.patch("/api/v1/namespaces/meta", MERGE, &json!({ "metadata": { "labels": labels } }));
    namespace.await.expect(200);
    let told = |more: &str| format!("would violate PodSecurity \"restricted:latest\": {more}{ALL_OF_A_PLAIN_POD}");
    let (answer, events) = audited.events("admin", |raw| raw.post(pods, &pod("p", false))).await;
    assert_eq!(answer.status, 201);
    let expected = json!({ label("audit-violations"): told(""), label("enforce-policy"): "baseline:latest" });
    assert_eq!(annotations(&events), expected);
    let (answer, events) = audited.events("admin", |raw| raw.post(pods, &pod("q", true))).await;
    assert_eq!(answer.status, 403);
    let more = "host namespaces (hostNetwork=true), ";
    let expected = json!({ label("audit-violations"): told(more), label("enforce-policy"): "baseline:latest" });
    assert_eq!(annotations(&events), expected);

    let labels = json!({ "app": "a" });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod("", false)["spec"] });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    let deployment = json!({ "metadata": { "name": "d" }, "spec": spec });
    let deployments = "/apis/apps/v1/namespaces/meta/deployments";
    let (_, events) = audited.events("admin", |raw| raw.post(deployments, &deployment)).await;
    assert_eq!(annotations(&events), json!({ label("audit-violations"): told("") }));
}

fn answer(request: &HookRequest) -> HookReply {
    let mut response = json!({ "uid": request.body["request"]["uid"], "allowed": true });
    if request.path.starts_with("/changes") {
        // [{"path":"/data/x","op":"add","value":"<1>"}]
        response["patch"] = json!("W3sicGF0aCI6Ii9kYXRhL3giLCJvcCI6ImFkZCIsInZhbHVlIjoiPDE+In1d");
        response["patchType"] = json!("JSONPatch");
    }
    HookReply::Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_names_changing_and_failed_webhooks() {
    let audited = Audited::start().await;
    let hook = HookServer::start(&["127.0.0.1"], |request| async move { answer(&request) }).await;
    let webhook = |name: &str, client: Value| {
        json!({
            "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "clientConfig": client,
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
        })
    };
    let asked = |path: &str| json!({ "url": hook.url(path), "caBundle": hook.ca_bundle() });
    let nobody = || json!({ "url": "https://127.0.0.1:1/" });
    let configure = async |kind: &str, webhooks: Vec<Value>| {
        let configuration = json!({ "metadata": { "name": "c" }, "webhooks": webhooks });
        audited.admin.post(format!("{GROUP}/{kind}webhookconfigurations"), &configuration).await.expect(201);
    };
    let mutating =
        vec![webhook("looks", asked("/looks")), webhook("gone", nobody()), webhook("changes", asked("/changes"))];
    configure("mutating", mutating).await;
    configure("validating", vec![webhook("away", nobody())]).await;

    let mutation = |name: &str, mutated: bool| {
        format!(r#"{{"configuration":"c","webhook":"{name}.example.org","mutated":{mutated}}}"#)
    };
    let mut expected = json!({
        "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("looks", false),
        "mutation.webhook.admission.k8s.io/round_0_index_1": mutation("gone", false),
        "mutation.webhook.admission.k8s.io/round_0_index_2": mutation("changes", true),
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "gone.example.org",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "away.example.org",
    });
    let map = |name: &str| json!({ "metadata": { "name": name }, "data": { "a": "b" } });
    let maps = "/api/v1/namespaces/meta/configmaps";
    let (_, events) = audited.events("admin", |raw| raw.post(maps, &map("m"))).await;
    assert_eq!(annotations(&events), expected);

    let patch = r#"[{"op":"add","path":"/data/x","value":"\u003c1\u003e"}]"#;
    let patch =
        format!(r#"{{"configuration":"c","webhook":"changes.example.org","patch":{patch},"patchType":"JSONPatch"}}"#);
    expected["patch.webhook.admission.k8s.io/round_0_index_2"] = json!(patch);
    let maps = "/api/v1/namespaces/sent/configmaps";
    let (answer, events) = audited.events("admin", |raw| raw.post(maps, &map("m"))).await;
    assert_eq!((answer.status, &answer.json()["data"]["x"]), (201, &json!("<1>")));
    assert_eq!(annotations(&events), expected);
}
