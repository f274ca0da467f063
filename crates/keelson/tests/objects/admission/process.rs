//! Tests of webhooks in separate processes.
//!
//! One is killed and restarted, one is slow or returns wrong data, and one runs in a pod that it must admit itself.

use std::time::Duration;

use keelson_testkit::{HookProcess, HookReply, HookRequest, TestServer, hook_process};
use serde_json::{Value, json};

use super::{GROUP, MAPS, map};

/// Runs the webhook, if this program was started as its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_admits() {
    hook_process(answer).await;
}

fn answer(mood: &str, request: &HookRequest) -> HookReply {
    let uid = request.body["request"]["uid"].clone();
    let uid = if mood == "lies" { json!("other") } else { uid };
    let response = json!({ "uid": uid, "allowed": mood != "refuses" });
    if mood == "hangs" {
        return HookReply::Hangs;
    }
    HookReply::Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}

fn webhook(hook: &HookProcess, client: Value, resources: &str, policy: &str) -> Value {
    let mut client = client;
    client["caBundle"] = json!(hook.ca_bundle());
    json!({ "metadata": { "name": "w" }, "webhooks": [{
        "name": "w.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": client,
        "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resources] }],
        "failurePolicy": policy, "timeoutSeconds": 30,
    }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_webhook_delays_only_its_own_requests() {
    let mut hook = HookProcess::start("admission::process::the_process_that_admits").await;
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "hooked" } })).await.expect(201);
    let configuration = webhook(&hook, json!({ "url": hook.url("/w") }), "configmaps", "Fail");
    raw.post(format!("{GROUP}/validatingwebhookconfigurations"), &configuration).await.expect(201);
    raw.post(MAPS, &map("a")).await.expect(201);
    hook.be("hangs").await;
    let waits = tokio::spawn({
        let raw = raw.clone();
        async move { raw.post(MAPS, &map("b")).await }
    });
    hook.asked().await;
    let secrets = "/api/v1/namespaces/hooked/secrets";
    raw.post(secrets, &json!({ "metadata": { "name": "s" } })).await.expect(201);
    raw.patch(format!("{MAPS}/a"), super::MERGE, &json!({ "data": { "c": "d" } })).await.expect(200);
    hook.kill().await;
    let body = waits.await.unwrap().expect(500).json();
    assert!(body["message"].as_str().unwrap().contains("failed to call webhook: Post "), "{body}");
    let body = raw.post(MAPS, &map("c")).await.expect(500).json();
    let refused = ": dial tcp ";
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(refused) && message.ends_with("connect: connection refused"), "{body}");
    raw.post(secrets, &json!({ "metadata": { "name": "t" } })).await.expect(201);
    hook.restart().await;
    hook.be("admits").await;
    raw.post(MAPS, &map("c")).await.expect(201);
    hook.be("lies").await;
    raw.post(MAPS, &map("d")).await.expect(500);
    hook.be("refuses").await;
    raw.post(MAPS, &map("d")).await.expect(400);
    for name in ["b", "d"] {
        raw.get(format!("{MAPS}/{name}")).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_pod_starts_if_its_webhook_fails_open() {
    let hook = HookProcess::start("admission::process::the_process_that_admits").await;
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "hooked" } })).await.expect(201);
    let ports = json!([{ "port": 443, "targetPort": 8443 }]);
    let service = json!({ "metadata": { "name": "hook" }, "spec": { "selector": { "app": "hook" }, "ports": ports } });
    raw.post("/api/v1/namespaces/hooked/services", &service).await.expect(201);
    let pods = "/api/v1/namespaces/hooked/pods";
    let containers = json!([{ "name": "c", "image": "i" }]);
    let pod = |name: &str| json!({ "metadata": { "name": name, "labels": { "app": "hook" } }, "spec": { "containers": containers } });
    let client = json!({ "service": { "namespace": "hooked", "name": "hook", "path": "/w" } });
    let configuration = |policy: &str| webhook(&hook, client.clone(), "pods", policy);
    let place = format!("{GROUP}/validatingwebhookconfigurations");
    raw.post(&*place, &configuration("Fail")).await.expect(201);
    let body = raw.post(pods, &pod("one")).await.expect(500).json();
    let none = "failed to call webhook: Post \"https://hook.hooked.svc:443/w?timeout=30s\": no endpoints available for service \"hook\"";
    assert!(body["message"].as_str().unwrap().ends_with(none), "nobody could ever answer: {body}");
    // With a failure policy that ignores the missing webhook, its first pod can be created.
    raw.delete(format!("{place}/w")).await.expect(200);
    raw.post(&*place, &configuration("Ignore")).await.expect(201);
    raw.post(pods, &pod("one")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_service_is_called_once_one_of_its_pods_runs() {
    let mut hook = HookProcess::behind("admission::process::the_process_that_admits", "hook.hooked.svc").await;
    let route = format!("hooked/hook={}", hook.url("")).parse().unwrap();
    let server = TestServer::builder().configure(|config| config.service_routes = [route].into_iter().collect());
    let server = server.start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "hooked" } })).await.expect(201);
    let service = json!({ "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": 443 }] } });
    raw.post("/api/v1/namespaces/hooked/services", &service).await.expect(201);
    let pods = "/api/v1/namespaces/hooked/pods";
    let containers = json!([{ "name": "c", "image": "i" }]);
    let pod = |name: &str| json!({ "metadata": { "name": name }, "spec": { "containers": containers } });
    let client = json!({ "service": { "namespace": "hooked", "name": "hook", "path": "/w" } });
    let place = format!("{GROUP}/validatingwebhookconfigurations");
    let configured = async |hook: &HookProcess, policy: &str| {
        let configuration = webhook(hook, client.clone(), "pods", policy);
        raw.post(&*place, &configuration).await.expect(201);
    };
    let called = "failed calling webhook \"w.example.org\": failed to call webhook: Post \"https://hook.hooked.svc:443/w?timeout=30s\": dial tcp 127.0.0.1:";
    // The service has no running pod yet.
    configured(&hook, "Fail").await;
    let url = hook.url("");
    let port = url.rsplit(':').next().unwrap();
    hook.kill().await;
    let body = raw.post(pods, &pod("one")).await.expect(500).json();
    assert_eq!(body["message"], format!("Internal error occurred: {called}{port}: connect: connection refused"));
    raw.get(format!("{pods}/one")).await.expect(404);
    raw.delete(format!("{place}/w")).await.expect(200);
    configured(&hook, "Ignore").await;
    raw.post(pods, &pod("one")).await.expect(201);
    // The test starts the webhook, as a kubelet would start the pod's containers.
    hook.restart().await;
    hook.be("admits").await;
    raw.delete(format!("{place}/w")).await.expect(200);
    configured(&hook, "Fail").await;
    raw.post(pods, &pod("two")).await.expect(201);
    hook.asked().await;
    hook.be("refuses").await;
    let body = raw.post(pods, &pod("three")).await.expect(400).json();
    assert_eq!(body["message"], "admission webhook \"w.example.org\" denied the request without explanation");
    raw.get(format!("{pods}/three")).await.expect(404);
    raw.get(format!("{pods}/two")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_webhook_delays_only_its_own_requests() {
    let mut hook = HookProcess::start("admission::process::the_process_that_admits").await;
    let server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "hooked" } })).await.expect(201);
    let configuration = webhook(&hook, json!({ "url": hook.url("/w") }), "configmaps", "Fail");
    raw.post(format!("{GROUP}/validatingwebhookconfigurations"), &configuration).await.expect(201);
    let begun = |name: &'static str| {
        let raw = raw.clone();
        tokio::spawn(async move { raw.post(MAPS, &map(name)).await })
    };
    for (later, code) in [("admits", 201), ("refuses", 400), ("lies", 500)] {
        hook.be("waits").await;
        let (name, waits) = (later, begun(later));
        hook.asked().await;
        // Meanwhile other clients write, also in the same namespace, and no read shows the ConfigMap.
        raw.post("/api/v1/namespaces/hooked/secrets", &json!({ "metadata": { "name": name } })).await.expect(201);
        raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await.expect(201);
        raw.delete(format!("/api/v1/namespaces/hooked/secrets/{name}")).await.expect(200);
        raw.get(format!("{MAPS}/{name}")).await.expect(404);
        assert!(!waits.is_finished(), "{later}");
        hook.be(later).await;
        waits.await.unwrap().expect(code);
        raw.get(format!("{MAPS}/{name}")).await.expect(if code == 201 { 200 } else { 404 });
    }
    // A response that does not belong to the request is rejected.
    let told = raw.post(MAPS, &map("d")).await.expect(500).json();
    let told = told["message"].as_str().unwrap();
    let (before, after) = ("received invalid webhook response: expected response.uid=\"", "\", got \"other\"");
    assert!(told.contains(before) && told.ends_with(after), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_answers_nothing_of_anything_keeps_no_server_from_living() {
    let hook = HookProcess::start("admission::process::the_process_that_admits").await;
    let server =
        TestServer::builder().configure(|config| config.identity_interval = Duration::from_secs(1)).start().await;
    let raw = server.raw();
    let mut configuration = webhook(&hook, json!({ "url": hook.url("/w") }), "*/*", "Fail");
    for member in ["operations", "apiGroups", "apiVersions"] {
        configuration["webhooks"][0]["rules"][0][member] = json!(["*"]);
    }
    let place = format!("{GROUP}/validatingwebhookconfigurations");
    raw.post(&*place, &configuration).await.expect(201);
    drop(hook);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let servers = format!("{leases}?labelSelector=apiserver.kubernetes.io/identity");
    let own = raw.get(&*servers).await.expect(200).json()["items"][0].clone();
    let other = json!({ "metadata": { "name": "other" }, "spec": {} });
    raw.post(leases, &other).await.expect(500);
    let renewed = async {
        while raw.get(&*servers).await.expect(200).json()["items"][0]["spec"]["renewTime"] == own["spec"]["renewTime"] {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), renewed).await.expect("the server keeps its lease");
    raw.delete(format!("{place}/w")).await.expect(200);
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "after" } })).await.expect(201);
}
