//! Tests of the deletion of pods: they have a grace period, and are removed when their kubelet confirms or no kubelet
//! has to stop them.
//!
//! No kubelet runs here; the tests write in its place.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keelson_meta::clock::{Clock, ManualClock};
use keelson_server::Switches;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The timeout for background work of the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server whose clock only moves when the test advances it.
struct Lab {
    _server: TestServer,
    raw: Raw,
    clock: Arc<ManualClock>,
    start: SystemTime,
}

impl Lab {
    async fn start() -> Self {
        let start = UNIX_EPOCH + Duration::from_secs(UNIX_EPOCH.elapsed().unwrap().as_secs());
        let clock = Arc::new(ManualClock::new(start));
        let time: Arc<dyn Clock> = clock.clone();
        let server = TestServer::builder().configure(|config| config.clock = time).start().await;
        let raw = server.raw();
        account(&raw).await;
        Self { _server: server, raw, clock, start }
    }

    async fn pod(&self, name: &str, spec: Value) -> Value {
        make(&self.raw, name, spec).await
    }

    async fn delete(&self, name: &str, query: &str) -> Value {
        self.raw.delete(format!("{PODS}/{name}?{query}")).await.expect(200).json()
    }

    /// Checks the deletion of an object: its time in seconds since the start of the test, its grace period, and its
    /// generation.
    #[track_caller]
    fn check_end(&self, object: &Value, expected: (u64, i64, i64)) {
        let metadata = &object["metadata"];
        let end = keelson_meta::clock::parse_rfc3339(metadata["deletionTimestamp"].as_str().unwrap()).unwrap();
        let end = end.duration_since(self.start).unwrap().as_secs();
        let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap();
        assert_eq!((end, grace, metadata["generation"].as_i64().unwrap()), expected, "{metadata}");
    }

    async fn status(&self, name: &str) -> u16 {
        self.raw.get(format!("{PODS}/{name}")).await.status
    }
}

/// Waits for the service account of pods, which a controller creates.
async fn account(raw: &Raw) {
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let made = raw.post(path, &json!({"metadata": {"name": "default"}})).await;
    assert!(matches!(made.status, 201 | 409), "{}", made.text());
}

async fn make(raw: &Raw, name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "web"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    raw.post(PODS, &pod).await.expect(201).json()
}

#[tokio::test]
async fn a_deleted_pod_stays_until_its_kubelet_confirms_the_end() {
    let lab = Lab::start().await;
    lab.pod("p", json!({"nodeName": "n", "terminationGracePeriodSeconds": 20})).await;
    lab.check_end(&lab.delete("p", "").await, (20, 20, 2));
    lab.clock.advance(Duration::from_secs(5));
    let report = json!({"status": {"phase": "Succeeded"}});
    lab.raw.patch(format!("{PODS}/p/status"), MERGE, &report).await.expect(200);
    lab.check_end(&lab.raw.get(format!("{PODS}/p")).await.expect(200).json(), (20, 20, 2));
    let last = lab.delete("p", "gracePeriodSeconds=0").await;
    lab.check_end(&last, (0, 0, 2));
    assert_eq!(lab.status("p").await, 404);
}

#[tokio::test]
async fn a_later_deletion_shortens_the_time_and_never_lengthens_it() {
    let lab = Lab::start().await;
    lab.pod("p", json!({"nodeName": "n"})).await;
    lab.check_end(&lab.delete("p", "gracePeriodSeconds=40").await, (40, 40, 2));
    lab.clock.advance(Duration::from_secs(5));
    for (query, expected) in [
        ("", (40, 40, 2)),
        ("gracePeriodSeconds=60", (40, 40, 2)),
        ("gracePeriodSeconds=10", (10, 10, 2)),
        ("gracePeriodSeconds=30", (10, 10, 2)),
        ("gracePeriodSeconds=-3", (1, 1, 2)),
    ] {
        lab.check_end(&lab.delete("p", query).await, expected);
    }
    lab.delete("p", "gracePeriodSeconds=0").await;
    assert_eq!(lab.status("p").await, 404);
}

#[tokio::test]
async fn a_pod_without_a_node_is_deleted_at_once() {
    let lab = Lab::start().await;
    lab.pod("unbound", json!({})).await;
    lab.pod("done", json!({"nodeName": "n"})).await;
    lab.raw.patch(format!("{PODS}/done/status"), MERGE, &json!({"status": {"phase": "Failed"}})).await.expect(200);
    for name in ["unbound", "done"] {
        lab.check_end(&lab.delete(name, "gracePeriodSeconds=30").await, (0, 0, 2));
        assert_eq!(lab.status(name).await, 404, "{name}");
    }
    lab.pod("tried", json!({})).await;
    lab.check_end(&lab.delete("tried", "dryRun=All").await, (0, 0, 2));
    assert_eq!(lab.status("tried").await, 200);
}

#[tokio::test]
async fn a_finalizer_holds_a_pod_beyond_its_time() {
    let lab = Lab::start().await;
    lab.pod("p", json!({"nodeName": "n"})).await;
    let path = format!("{PODS}/p");
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    lab.raw.patch(path.clone(), MERGE, &hold(json!(["example.com/hold"]))).await.expect(200);
    lab.delete("p", "gracePeriodSeconds=30").await;
    lab.raw.patch(path.clone(), MERGE, &hold(json!(null))).await.expect(200);
    assert_eq!(lab.status("p").await, 200, "its time is not over");
    lab.raw.patch(path.clone(), MERGE, &hold(json!(["example.com/hold"]))).await.expect(422);
    lab.delete("p", "gracePeriodSeconds=0").await;
    assert_eq!(lab.status("p").await, 404);
    lab.pod("q", json!({"nodeName": "n"})).await;
    let path = format!("{PODS}/q");
    lab.raw.patch(path.clone(), MERGE, &hold(json!(["example.com/hold"]))).await.expect(200);
    lab.check_end(&lab.delete("q", "gracePeriodSeconds=0").await, (0, 0, 2));
    assert_eq!(lab.status("q").await, 200);
    lab.raw.patch(path, MERGE, &hold(json!(null))).await.expect(200);
    assert_eq!(lab.status("q").await, 404);
}

#[tokio::test]
async fn dependents_of_jobs_stay_unless_their_end_is_requested() {
    let server = TestServer::start().await;
    let raw = server.raw();
    account(&raw).await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work"}]}});
    for (name, query) in [("kept", ""), ("taken", "?propagationPolicy=Background")] {
        let job = json!({"metadata": {"name": name}, "spec": {"template": template}});
        let job = raw.post(jobs, &job).await.expect(201).json();
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true});
        let pod = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": template["spec"]});
        raw.post(PODS, &pod).await.expect(201);
        let deleted = raw.delete(format!("{jobs}/{name}{query}")).await.expect(200);
        let warned = deleted.header("warning").contains("child pods are preserved by default when jobs are deleted");
        assert_eq!(warned, query.is_empty(), "{name}");
    }
    let settled = async {
        while raw.get(format!("{PODS}/taken")).await.status != 404
            || raw.get(format!("{jobs}/kept")).await.status != 404
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the job and the pod of the other go");
    let kept = raw.get(format!("{PODS}/kept")).await.expect(200).json();
    assert!(kept["metadata"]["ownerReferences"].is_null(), "{kept}");
}

#[tokio::test]
async fn a_namespace_ends_when_the_last_of_its_pods_does() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let namespace = "/api/v1/namespaces/team";
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let made = raw.post(format!("{namespace}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    assert!(matches!(made.status, 201 | 409), "{}", made.text());
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "m", "image": "i"}]}});
    raw.post(format!("{namespace}/pods"), &pod).await.expect(201);
    raw.delete(namespace).await.expect(200);
    let path = format!("{namespace}/pods/p");
    let marked = async {
        while raw.get(path.clone()).await.expect(200).json()["metadata"]["deletionTimestamp"].is_null() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, marked).await.expect("the pod is told to stop");
    raw.get(namespace).await.expect(200);
    raw.delete(format!("{path}?gracePeriodSeconds=0")).await.expect(200);
    let gone = async {
        while raw.get(namespace).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the namespace goes with its last pod");
}

#[tokio::test]
async fn status_updates_without_observed_generations_keep_them() {
    let lab = Lab::start().await;
    let made = lab.pod("p", json!({"nodeName": "n"})).await;
    let path = format!("{PODS}/p/status");
    let put = |status: Value| {
        let mut pod = made.clone();
        pod["metadata"]["resourceVersion"] = Value::Null;
        pod["status"] = status;
        lab.raw.put(path.clone(), &pod)
    };
    let observed = json!({"type": "Ready", "status": "True", "observedGeneration": 1});
    put(json!({"phase": "Running", "observedGeneration": 1, "conditions": [observed]})).await.expect(200);
    let again = put(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}));
    let status = again.await.expect(200).json()["status"].clone();
    assert_eq!((&status["observedGeneration"], &status["qosClass"]), (&json!(1), &json!("BestEffort")), "{status}");
    assert_eq!(status["conditions"][0]["observedGeneration"], 1);
}

/// Waits until a pod is gone.
async fn gone(raw: &Raw, name: &str) {
    let wait = async {
        while raw.get(format!("{PODS}/{name}")).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} is still there"));
}

#[tokio::test]
async fn pods_of_missing_nodes_are_deleted() {
    let quarantine = Duration::from_millis(200);
    let configured = TestServer::builder().configure(|config| {
        config.node_quarantine = quarantine;
        config.controllers = Switches::parse(["*", "-serviceaccount-controller", "podgc"]).unwrap();
    });
    let server = configured.start().await;
    let raw = server.raw();
    account(&raw).await;
    let node = json!({"metadata": {"name": "n"}});
    raw.post("/api/v1/nodes", &node).await.expect(201);
    for (name, node) in [("held", "gone"), ("here", "n"), ("leaving", "n"), ("lost", "gone")] {
        make(&raw, name, json!({ "nodeName": node })).await;
        let finalizers = if name == "held" { json!(["example.com/count"]) } else { json!([]) };
        raw.patch(format!("{PODS}/{name}"), MERGE, &json!({"metadata": {"finalizers": finalizers}})).await;
    }
    make(&raw, "nowhere", json!({})).await;
    raw.delete(format!("{PODS}/leaving")).await.expect(200);
    gone(&raw, "lost").await;
    let held = async {
        loop {
            let held = raw.get(format!("{PODS}/held")).await.expect(200).json();
            if held["status"]["phase"] == "Failed" {
                return held;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, held).await.expect("whoever counts it sees that it failed");
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    let condition = &held["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("DisruptionTarget"), &json!("DeletionByPodGC")));
    assert_eq!(raw.get(format!("{PODS}/leaving")).await.status, 200, "its node may still stop it");
    let taints = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
    raw.patch("/api/v1/nodes/n", MERGE, &taints).await.expect(200);
    gone(&raw, "leaving").await;
    for name in ["here", "nowhere"] {
        raw.get(format!("{PODS}/{name}")).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_without_admission_defaults_do_not_change_the_pod() {
    let lab = Lab::start().await;
    let made = lab.pod("same", json!({})).await;
    let mut sent = made.clone();
    for field in ["tolerations", "priority", "preemptionPolicy"] {
        sent["spec"].as_object_mut().unwrap().shift_remove(field);
    }
    let written = lab.raw.put(format!("{PODS}/same"), &sent).await.expect(200).json();
    assert_eq!(written["metadata"]["generation"], made["metadata"]["generation"]);
    assert_eq!(written["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}
