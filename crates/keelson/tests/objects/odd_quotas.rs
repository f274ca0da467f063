//! Tests of quotas with unknown resource names, and of quotas that another controller counts.
//!
//! Texts are as recorded. `quotas` tests known names.

use std::time::Duration;

use keelson_server::Switches;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/lab/resourcequotas";
const PODS: &str = "/api/v1/namespaces/lab/pods";
const MERGE: &str = "application/merge-patch+json";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with these controllers and the namespace `lab`.
async fn lab(controllers: &[&str]) -> (TestServer, Raw) {
    let controllers = Switches::parse(controllers.iter().copied()).unwrap();
    let server = TestServer::builder().sqlite().configure(|config| config.controllers = controllers).start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
    (server, raw)
}

fn quota(hard: &Value) -> Value {
    json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } })
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

/// A pod with a container with these resource requests.
fn pod(name: &str, resources: &Value) -> Value {
    let container = json!({ "name": "c", "image": "i:1", "resources": resources });
    json!({ "metadata": { "name": name }, "spec": { "containers": [container] } })
}

async fn status(raw: &Raw) -> Value {
    raw.get(format!("{QUOTAS}/q")).await.expect(200).json()["status"].clone()
}

#[tokio::test]
async fn invalid_quota_names_are_refused_and_unknown_ones_block_nothing() {
    let (_server, raw) = lab(&["resourcequota-controller", "namespace-controller"]).await;
    let why = ["must be a standard resource type or fully qualified", "must be a standard resource for quota"];
    let cause = |why: &str| json!({ "reason": "FieldValueInvalid", "message": format!("Invalid value: \"things\": {why}"), "field": "spec.hard[things]" });
    let told = why.map(|why| format!("spec.hard[things]: Invalid value: \"things\": {why}")).join(", ");
    let refused = raw.post(QUOTAS, &quota(&json!({ "things": "1" }))).await.expect(422).json();
    assert_eq!(refused["message"], format!("ResourceQuota \"q\" is invalid: [{told}]"));
    assert_eq!(refused["details"]["causes"], json!(why.map(cause)));
    raw.get(format!("{QUOTAS}/q")).await.expect(404);

    let hard = json!({
        "count/things.example.org": "0", "count/things": "0", "requests.example.org/gpu": "1", "configmaps": "1",
    });
    raw.post(QUOTAS, &quota(&hard)).await.expect(201);
    let counted = async {
        loop {
            let status = status(&raw).await;
            if status["hard"] == hard && status["used"]["configmaps"] == "0" {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let status_of = tokio::time::timeout(PATIENCE, counted).await.expect("it is counted");
    assert_eq!(status_of["used"]["count/things.example.org"], Value::Null, "nobody can say how many there are");
    // Known names are charged, and unknown names are ignored.
    raw.post("/api/v1/namespaces/lab/secrets", &named("s")).await.expect(201);
    raw.post("/api/v1/namespaces/lab/configmaps", &named("a")).await.expect(201);
    let beyond = raw.post("/api/v1/namespaces/lab/configmaps", &named("b")).await.expect(403).json();
    let message = "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1";
    assert_eq!(beyond["message"], message);
    let gpus =
        |count: &str| json!({ "requests": { "example.org/gpu": count }, "limits": { "example.org/gpu": count } });
    raw.post(PODS, &pod("one", &gpus("1"))).await.expect(201);
    let beyond = raw.post(PODS, &pod("two", &gpus("1"))).await.expect(403).json();
    let message = "pods \"two\" is forbidden: exceeded quota: q, requested: requests.example.org/gpu=1, used: requests.example.org/gpu=1, limited: requests.example.org/gpu=1";
    assert_eq!(beyond["message"], message);
    raw.post(PODS, &pod("plain", &json!({}))).await.expect(201);

    let change = json!({ "spec": { "hard": { "things": "1" } } });
    raw.patch(format!("{QUOTAS}/q"), MERGE, &change).await.expect(422);
    assert_eq!(raw.get(format!("{QUOTAS}/q")).await.expect(200).json()["spec"]["hard"], hard);
    raw.post("/api/v1/namespaces/lab/secrets", &named("t")).await.expect(201);
}

#[tokio::test]
async fn quotas_with_external_controllers_are_enforced_by_their_status() {
    let (_server, raw) = lab(&["*", "-resourcequota-controller"]).await;
    let hard =
        json!({ "limits.cpu": "2", "memory": "1Gi", "pods": "3", "requests.cpu": "1", "requests.memory": "1Gi" });
    raw.post(QUOTAS, &quota(&hard)).await.expect(201);
    let sized = |name: &str| {
        pod(name, &json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "cpu": "200m" } }))
    };
    let refused = async |sent: &Value, why: &str| {
        let body = raw.post(PODS, sent).await.expect(403).json();
        let expected = format!("pods \"a\" is forbidden: {why}");
        assert_eq!((&body["message"], &body["reason"]), (&json!(expected), &json!("Forbidden")));
        raw.get(format!("{PODS}/a")).await.expect(404);
    };
    let say = async |status: Value| {
        let mut whole = raw.get(format!("{QUOTAS}/q")).await.expect(200).json();
        whole["status"] = status;
        raw.put(format!("{QUOTAS}/q/status"), &whole).await.expect(200);
    };
    assert_eq!(status(&raw).await, json!({}));
    raw.post(format!("{PODS}?dryRun=All"), &pod("a", &json!({}))).await.expect(201);

    let unknown = "status unknown for quota: q, resources: limits.cpu,memory,pods,requests.cpu,requests.memory";
    let unstated =
        "failed quota: q: must specify limits.cpu for: c; memory for: c; requests.cpu for: c; requests.memory for: c";
    say(json!({ "hard": hard })).await;
    refused(&sized("a"), unknown).await;
    refused(&pod("a", &json!({})), unstated).await;
    raw.post("/api/v1/namespaces/lab/configmaps", &named("x")).await.expect(201);
    say(json!({ "hard": hard, "used": { "pods": "0" } })).await;
    refused(&sized("a"), unknown).await;

    let used = |pods: &str, requests: &str, limits: &str, memory: &str| json!({ "pods": pods, "requests.cpu": requests, "limits.cpu": limits, "requests.memory": memory, "memory": memory });
    say(json!({ "hard": hard, "used": used("0", "0", "0", "0") })).await;
    refused(&pod("a", &json!({})), unstated).await;
    raw.post(PODS, &sized("a")).await.expect(201);
    let once = json!({ "hard": hard, "used": used("1", "100m", "200m", "64Mi") });
    assert_eq!(status(&raw).await, once);
    raw.post(format!("{PODS}?dryRun=All"), &sized("b")).await.expect(201);
    assert_eq!(status(&raw).await, once, "a rehearsal takes nothing");
    // Only the controller that counts a quota reduces its usage.
    raw.delete(format!("{PODS}/a?gracePeriodSeconds=0")).await.expect(200);
    raw.post(PODS, &sized("b")).await.expect(201);
    assert_eq!(status(&raw).await, json!({ "hard": hard, "used": used("2", "200m", "400m", "128Mi") }));
    say(json!({ "hard": hard, "used": used("1", "100m", "200m", "64Mi") })).await;
    for name in ["c", "d"] {
        raw.post(PODS, &sized(name)).await.expect(201);
    }
    let body = raw.post(PODS, &sized("e")).await.expect(403).json();
    let full = "pods \"e\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3";
    assert_eq!(body["message"], full);
}
