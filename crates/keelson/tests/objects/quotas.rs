//! Tests of quotas: the usage of objects, its release, and the errors for objects that exceed a quota.
//!
//! The texts are those of kube-apiserver. `many_servers` tests that several servers together never exceed a quota.

use std::time::Duration;

use futures::future::join_all;
use keelson_server::Switches;
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(60);
const MERGE: &str = "application/merge-patch+json";

/// A server, and a namespace with one enforced quota.
struct Lab {
    server: TestServer,
    raw: Raw,
}

impl Lab {
    async fn start(spec: Value) -> Self {
        let controllers = Switches::parse(["resourcequota-controller", "namespace-controller"]).unwrap();
        let server = TestServer::builder().sqlite().configure(|config| config.controllers = controllers).start().await;
        let lab = Self { raw: server.raw(), server };
        lab.raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
        lab.quota("q", spec).await;
        lab
    }

    /// Creates a quota, and waits until it has been counted.
    async fn quota(&self, name: &str, spec: Value) {
        let hard = spec["hard"].clone();
        let quota = json!({ "metadata": { "name": name }, "spec": spec });
        self.raw.post("/api/v1/namespaces/lab/resourcequotas", &quota).await.expect(201);
        self.until(name, |status| status["hard"] == hard && status["used"].is_object()).await;
    }

    async fn status(&self, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/lab/resourcequotas/{name}");
        self.raw.get(path).await.expect(200).json()["status"].clone()
    }

    async fn until(&self, name: &str, expected: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let status = self.status(name).await;
            if expected(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "{status}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn until_used(&self, used: Value) {
        self.until("q", |status| status["used"] == used).await;
    }

    async fn post(&self, plural: &str, object: &Value) -> Answer {
        self.raw.post(format!("/api/v1/namespaces/lab/{plural}"), object).await
    }

    async fn refused(&self, plural: &str, object: &Value, expected: &str) {
        let answer = self.post(plural, object).await.expect(403).json();
        assert_eq!(answer["message"], expected);
        assert_eq!(answer["reason"], "Forbidden");
    }
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn pod(name: &str, requests: &Value, limits: &Value) -> Value {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": requests, "limits": limits } });
    json!({ "metadata": { "name": name }, "spec": { "containers": [container] } })
}

#[tokio::test]
async fn quota_usage_follows_creates_and_deletes_of_pods() {
    let hard =
        json!({ "pods": "2", "requests.cpu": "1", "limits.cpu": "2", "requests.memory": "1Gi", "memory": "1Gi" });
    let lab = Lab::start(json!({ "hard": hard })).await;
    let bare = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let missing = "pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: c; memory for: c; \
                   requests.cpu for: c; requests.memory for: c";
    lab.refused("pods", &bare, missing).await;
    let small = |name: &str| pod(name, &json!({ "cpu": "100m", "memory": "64Mi" }), &json!({ "cpu": "200m" }));
    lab.post("pods", &small("a")).await.expect(201);
    let used = |pods: &str, requests: &str, limits: &str, memory: &str| {
        json!({ "pods": pods, "requests.cpu": requests, "limits.cpu": limits,
            "requests.memory": memory, "memory": memory })
    };
    // The status has the new usage when the response arrives, not some time later.
    assert_eq!(lab.status("q").await["used"], used("1", "100m", "200m", "64Mi"));
    let large = pod("b", &json!({ "cpu": "950m", "memory": "64Mi" }), &json!({ "cpu": "1500m" }));
    let message = "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=950m, used: requests.cpu=100m, \
                limited: requests.cpu=1";
    lab.refused("pods", &large, message).await;
    lab.refused("pods?dryRun=All", &large, message).await;
    lab.post("pods?dryRun=All", &small("b")).await.expect(201);
    lab.post("pods", &small("a")).await.expect(409);
    assert_eq!(lab.status("q").await["used"], used("1", "100m", "200m", "64Mi"), "nothing else was taken");
    let several = pod("b", &json!({ "cpu": "5", "memory": "2Gi" }), &json!({ "cpu": "6" }));
    let message = "pods \"b\" is forbidden: exceeded quota: q, requested: \
                limits.cpu=6,memory=2Gi,requests.cpu=5,requests.memory=2Gi, used: \
                limits.cpu=200m,memory=64Mi,requests.cpu=100m,requests.memory=64Mi, limited: \
                limits.cpu=2,memory=1Gi,requests.cpu=1,requests.memory=1Gi";
    lab.refused("pods", &several, message).await;

    let resize = |requests: &str, limits: &str| {
        let resources = json!({ "requests": { "cpu": requests }, "limits": { "cpu": limits } });
        json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    };
    let path = "/api/v1/namespaces/lab/pods/a/resize";
    let strategic = "application/strategic-merge-patch+json";
    let answer = lab.raw.patch(path, strategic, &resize("1500m", "1500m")).await.expect(403).json();
    let message = "pods \"a\" is forbidden: exceeded quota: q, requested: requests.cpu=1400m, used: requests.cpu=100m, \
                limited: requests.cpu=1";
    assert_eq!(answer["message"], message);
    lab.raw.patch(path, strategic, &resize("300m", "400m")).await.expect(200);
    assert_eq!(lab.status("q").await["used"], used("1", "300m", "400m", "64Mi"));

    lab.post("pods", &small("b")).await.expect(201);
    let message = "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
    lab.refused("pods", &small("c"), message).await;
    lab.raw.delete("/api/v1/namespaces/lab/pods/b").await.expect(200);
    lab.until_used(used("1", "300m", "400m", "64Mi")).await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    lab.raw.patch("/api/v1/namespaces/lab/pods/a/status", MERGE, &ended).await.expect(200);
    lab.until_used(used("0", "0", "0", "0")).await;
}

#[tokio::test]
async fn objects_of_any_resource_are_counted() {
    let hard = json!({
        "count/configmaps": "1", "secrets": "0", "count/things.example.org": "1", "services": "2",
        "services.nodeports": "1", "count/leases.coordination.k8s.io": "1",
    });
    let lab = Lab::start(json!({ "hard": hard })).await;
    lab.post("configmaps", &named("a")).await.expect(201);
    let message = "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
                count/configmaps=1, limited: count/configmaps=1";
    lab.refused("configmaps", &named("b"), message).await;
    let message =
        "secrets \"s\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0";
    lab.refused("secrets", &named("s"), message).await;
    lab.raw.delete("/api/v1/namespaces/lab/configmaps/a").await.expect(200);
    lab.until("q", |status| status["used"]["count/configmaps"] == "0").await;
    lab.post("configmaps", &named("b")).await.expect(201);

    let leases = "/apis/coordination.k8s.io/v1/namespaces/lab/leases";
    let lease = |name: &str| json!({ "metadata": { "name": name }, "spec": {} });
    lab.raw.put(format!("{leases}/a"), &lease("a")).await.expect(201);
    let answer = lab.raw.put(format!("{leases}/b"), &lease("b")).await.expect(403).json();
    let message = "leases.coordination.k8s.io \"b\" is forbidden: exceeded quota: q, requested: \
                count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=1, limited: \
                count/leases.coordination.k8s.io=1";
    assert_eq!(answer["message"], message);

    let service = |name: &str, kind: &str| json!({ "metadata": { "name": name }, "spec": { "type": kind, "ports": [{ "port": 80 }] } });
    lab.post("services", &service("a", "ClusterIP")).await.expect(201);
    lab.post("services", &service("b", "NodePort")).await.expect(201);
    let change = json!({ "spec": { "type": "NodePort" } });
    let answer = lab.raw.patch("/api/v1/namespaces/lab/services/a", MERGE, &change).await.expect(403).json();
    let message = "services \"a\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: \
                services.nodeports=1, limited: services.nodeports=1";
    assert_eq!(answer["message"], message);
    lab.until("q", |status| status["used"]["services"] == "2" && status["used"]["services.nodeports"] == "1").await;

    // A resource that is defined later is counted from then on.
    let definition = json!({
        "metadata": { "name": "things.example.org" },
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    });
    lab.raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    lab.until("q", |status| status["used"]["count/things.example.org"] == "0").await;
    let things = "/apis/example.org/v1/namespaces/lab/things";
    let thing = |name: &str| json!({ "apiVersion": "example.org/v1", "kind": "Thing", "metadata": { "name": name } });
    lab.raw.post(things, &thing("a")).await.expect(201);
    let answer = lab.raw.post(things, &thing("b")).await.expect(403).json();
    let message = "things.example.org \"b\" is forbidden: exceeded quota: q, requested: count/things.example.org=1, used: \
                count/things.example.org=1, limited: count/things.example.org=1";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn a_quota_counts_only_pods_in_its_scopes() {
    let lab = Lab::start(json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort"] })).await;
    lab.quota("terminating", json!({ "hard": { "pods": "1" }, "scopes": ["Terminating"] })).await;
    let bare =
        |name: &str| json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let sized = |name: &str| pod(name, &json!({ "cpu": "1m" }), &json!({}));
    lab.post("pods", &bare("a")).await.expect(201);
    let message = "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    lab.refused("pods", &bare("b"), message).await;
    for name in ["b", "c"] {
        lab.post("pods", &sized(name)).await.expect(201);
    }
    // A deadline that is set later moves a pod into the quota's scope.
    let deadline = json!({ "spec": { "activeDeadlineSeconds": 60 } });
    lab.raw.patch("/api/v1/namespaces/lab/pods/b", MERGE, &deadline).await.expect(200);
    let answer = lab.raw.patch("/api/v1/namespaces/lab/pods/c", MERGE, &deadline).await.expect(403).json();
    let message =
        "pods \"c\" is forbidden: exceeded quota: terminating, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(answer["message"], message);
}

#[tokio::test]
async fn existing_objects_count_and_new_limits_apply() {
    let lab = Lab::start(json!({ "hard": { "configmaps": "5" } })).await;
    for name in ["a", "b", "c"] {
        lab.post("configmaps", &named(name)).await.expect(201);
    }
    lab.quota("later", json!({ "hard": { "configmaps": "3" } })).await;
    assert_eq!(lab.status("later").await["used"], json!({ "configmaps": "3" }));
    let message = "configmaps \"d\" is forbidden: exceeded quota: later, requested: configmaps=1, used: configmaps=3, \
                limited: configmaps=3";
    lab.refused("configmaps", &named("d"), message).await;
    lab.raw.delete("/api/v1/namespaces/lab/resourcequotas/later").await.expect(200);
    lab.post("configmaps", &named("d")).await.expect(201);
    let raised = json!({ "spec": { "hard": { "configmaps": "4" } } });
    lab.raw.patch("/api/v1/namespaces/lab/resourcequotas/q", MERGE, &raised).await.expect(200);
    lab.until("q", |status| status["hard"]["configmaps"] == "4").await;
    lab.post("configmaps", &named("e")).await.expect(403);
    assert_eq!(lab.status("q").await["used"], json!({ "configmaps": "4" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_get_as_many_as_there_is_room_for() {
    const ROOM: usize = 40;
    let lab = Lab::start(json!({ "hard": { "configmaps": ROOM.to_string() } })).await;
    let clients: Vec<Raw> = (0..8).map(|_| lab.server.raw()).collect();
    let create = |number: usize| {
        let raw = clients[number % clients.len()].clone();
        async move { raw.post("/api/v1/namespaces/lab/configmaps", &named(&format!("m-{number}"))).await.status }
    };
    let answers = join_all((0..3 * ROOM).map(create)).await;
    let made = answers.iter().filter(|status| **status == 201).count();
    assert_eq!(made, ROOM, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status, 201 | 403)), "{answers:?}");
    assert_eq!(lab.status("q").await["used"], json!({ "configmaps": ROOM.to_string() }));
}
