//! Tests of resources that the settings of the plugin ResourceQuota limit: they may be used only if a quota covers
//! them.
//!
//! Texts are those of kube-apiserver's plugin.

use std::time::Duration;

use keelson_server::{AdmissionConfiguration, AdmissionPlugins, Switches};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const LAB: &str = "/api/v1/namespaces/lab";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const DEADLINE: Duration = Duration::from_secs(60);

const SETTINGS: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: persistentvolumeclaims
      matchContains: [.storageclass.storage.k8s.io/requests.storage]
    - resource: pods
      matchContains: [cpu]
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [vital, high]}
    - apiGroup: apps
      resource: deployments
      matchContains: [count/]
";

async fn start() -> (TestServer, Raw) {
    let files = tempfile::TempDir::new().unwrap();
    let path = files.path().join("admission.yaml");
    std::fs::write(&path, SETTINGS).unwrap();
    let settings = AdmissionConfiguration::from_file(&path, &AdmissionPlugins::default()).unwrap();
    let controllers = Switches::parse(["resourcequota-controller", "namespace-controller"]).unwrap();
    let builder = TestServer::builder().configure(move |config| {
        config.admission_configuration = settings;
        config.controllers = controllers;
    });
    let server = builder.start().await;
    let raw = server.raw();
    for namespace in ["lab", "other"] {
        raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
    }
    for name in ["vital", "low"] {
        raw.post(CLASSES, &json!({ "metadata": { "name": name }, "value": 1 })).await.expect(201);
    }
    (server, raw)
}

/// Creates a quota, and waits until it is enforced.
async fn quota(raw: &Raw, name: &str, spec: Value) {
    raw.post(format!("{LAB}/resourcequotas"), &json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
    let begun = Instant::now();
    loop {
        let status = raw.get(format!("{LAB}/resourcequotas/{name}")).await.expect(200).json()["status"].clone();
        if status["hard"] == spec["hard"] && status["used"].is_object() {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{status}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn refused(raw: &Raw, path: &str, object: &Value, expected: &str) {
    let begun = Instant::now();
    let status = loop {
        let status = raw.post(path, object).await.expect(403).json();
        // Admission reads priority classes from the cache, which may be behind.
        let is_behind = status["message"].as_str().unwrap().contains("no PriorityClass with name");
        if !is_behind || begun.elapsed() > DEADLINE {
            break status;
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(status["message"], expected);
    assert_eq!(status["reason"], "Forbidden");
}

fn pod(name: &str, class: &str, requests: &Value) -> Value {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": requests } });
    let mut pod = json!({ "metadata": { "name": name }, "spec": { "containers": [container] } });
    if !class.is_empty() {
        pod["spec"]["priorityClassName"] = class.into();
    }
    pod
}

fn claim(name: &str, class: &str) -> Value {
    let mut claim = json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    } });
    if !class.is_empty() {
        claim["spec"]["storageClassName"] = class.into();
    }
    claim
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limited_resources_are_used_only_where_a_quota_covers_them() {
    let (_server, raw) = start().await;
    let (pods, claims) = (format!("{LAB}/pods"), format!("{LAB}/persistentvolumeclaims"));

    // Limits by the names of resources.
    let message = "persistentvolumeclaims \"a\" is forbidden: insufficient quota to consume: \
                gold.storageclass.storage.k8s.io/requests.storage";
    refused(&raw, &claims, &claim("a", "gold"), message).await;
    raw.post(&*claims, &claim("classless", "")).await.expect(201);
    let message = "pods \"a\" is forbidden: insufficient quota to consume: cpu,requests.cpu";
    refused(&raw, &pods, &pod("a", "", &json!({ "cpu": "1", "memory": "1Mi" })), message).await;
    raw.post(&*pods, &pod("no-cpu", "", &json!({ "memory": "1Mi" }))).await.expect(201);
    raw.post(&*pods, &pod("zero", "", &json!({ "cpu": "0" }))).await.expect(201);
    let message = "deployments.apps \"a\" is forbidden: insufficient quota to consume: count/deployments.apps";
    let template =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let deployment = json!({ "metadata": { "name": "a" }, "spec": spec });
    refused(&raw, "/apis/apps/v1/namespaces/lab/deployments", &deployment, message).await;

    // A quota must list all limited resources of the object.
    quota(&raw, "part", json!({ "hard": { "requests.cpu": "10", "count/deployments.apps": "1" } })).await;
    let message = "pods \"a\" is forbidden: insufficient quota to consume: cpu";
    refused(&raw, &pods, &pod("a", "", &json!({ "cpu": "1" })), message).await;
    raw.post("/apis/apps/v1/namespaces/lab/deployments", &deployment).await.expect(201);
    quota(&raw, "rest", json!({ "hard": { "cpu": "10", "gold.storageclass.storage.k8s.io/requests.storage": "5Gi" } }))
        .await;
    raw.post(&*pods, &pod("a", "", &json!({ "cpu": "1" }))).await.expect(201);
    raw.post(&*claims, &claim("a", "gold")).await.expect(201);
    let message = "persistentvolumeclaims \"b\" is forbidden: insufficient quota to consume: \
                silver.storageclass.storage.k8s.io/requests.storage";
    refused(&raw, &claims, &claim("b", "silver"), message).await;
    // A change that uses no more is not rejected. Other namespaces have no quota, so the limit applies there.
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    raw.patch(format!("{claims}/classless"), "application/merge-patch+json", &label).await.expect(200);
    let message = "pods \"a\" is forbidden: insufficient quota to consume: cpu,requests.cpu";
    refused(&raw, "/api/v1/namespaces/other/pods", &pod("a", "", &json!({ "cpu": "1" })), message).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limited_scopes_need_a_quota_of_the_same_scope() {
    let (_server, raw) = start().await;
    let pods = format!("{LAB}/pods");
    let message =
        "pods \"a\" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [vital high]}]";
    refused(&raw, &pods, &pod("a", "vital", &json!({})), message).await;
    raw.post(&*pods, &pod("low", "low", &json!({}))).await.expect(201);
    // A quota for other priority classes does not cover the pod.
    let of = |classes: Value| {
        let scope = json!({ "scopeName": "PriorityClass", "operator": "In", "values": classes });
        json!({ "hard": { "pods": "1" }, "scopeSelector": { "matchExpressions": [scope] } })
    };
    quota(&raw, "low", of(json!(["low"]))).await;
    refused(&raw, &pods, &pod("a", "vital", &json!({})), message).await;
    quota(&raw, "vital", of(json!(["vital"]))).await;
    raw.post(&*pods, &pod("a", "vital", &json!({}))).await.expect(201);
    let message = "pods \"b\" is forbidden: exceeded quota: vital, requested: pods=1, used: pods=1, limited: pods=1";
    refused(&raw, &pods, &pod("b", "vital", &json!({})), message).await;
}
