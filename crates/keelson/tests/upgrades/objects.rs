//! The objects of a fixture, one for each way of storage. The tests create, read and write them with requests.
//!
//! A new way of storage needs an object here.

use keelson_testkit::Raw;
use serde_json::{Value, json};

use crate::fixture::Record;

/// The path of the namespace.
const LAB: &str = "namespaces/lab";

/// Cluster-wide collections, and the object that is created in each. Its name is always `kept`.
fn of_the_cluster() -> Vec<(String, Value)> {
    let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"}}});
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
    let bodies = [
        ("api/v1/nodes", json!({"status": {"capacity": {"cpu": "4"}}})),
        ("api/v1/persistentvolumes", volume),
        ("apis/rbac.authorization.k8s.io/v1/clusterroles", rules),
        ("apis/storage.k8s.io/v1/storageclasses", json!({"provisioner": "example.com/disks"})),
    ];
    bodies.map(|(collection, body)| (format!("/{collection}"), body)).into()
}

/// Collections of the namespace, with their objects.
fn of_the_namespace() -> Vec<(String, Value)> {
    let core = [
        (
            "configmaps",
            json!({"data": {"sky": "blue", "words": "grüße 日本語 \u{1f600}"}, "binaryData": {"b": "AAEC/w=="}}),
        ),
        ("secrets", json!({"type": "Opaque", "stringData": {"password": "swordfish"}})),
        (
            "pods",
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "kept",
                "containers": [{"name": "web", "image": "nginx"}]}}),
        ),
        (
            "services",
            json!({"spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "name": "http"}]}}),
        ),
        (
            "events",
            json!({"involvedObject": {"kind": "Pod", "namespace": "lab", "name": "kept"}, "reason": "Started",
                "type": "Normal", "source": {"component": "kubelet"}}),
        ),
    ];
    let core = core.map(|(resource, body)| (format!("/api/v1/{LAB}/{resource}"), body));
    core.into_iter().chain(of_groups()).collect()
}

fn of_groups() -> [(String, Value); 4] {
    let container = json!({"name": "web", "image": "nginx:1.29", "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1500m"}}});
    let deployment = json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "kept"});
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}});
    let autoscaler = json!({"spec": {"maxReplicas": 5, "scaleTargetRef": target,
        "metrics": [{"type": "Resource", "resource": cpu}]}});
    let lease = json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z"}});
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}});
    let bodies = [
        ("apps/v1", "deployments", deployment),
        ("autoscaling/v2", "horizontalpodautoscalers", autoscaler),
        ("coordination.k8s.io/v1", "leases", lease),
        ("networking.k8s.io/v1", "networkpolicies", policy),
    ];
    bodies.map(|(group, resource, body)| (format!("/apis/{group}/{LAB}/{resource}"), body))
}

/// The paths of all compared objects.
fn paths() -> Vec<String> {
    let made = of_the_cluster().into_iter().chain(of_the_namespace());
    let made = made.map(|(collection, _)| format!("{collection}/kept")).filter(|path| lasts(path));
    let more = ["configmaps/applied", "configmaps/leaving"].map(|path| format!("/api/v1/{LAB}/{path}"));
    std::iter::once(format!("/api/v1/{LAB}")).chain(made).chain(more).collect()
}

/// Returns true if the object remains. An event expires an hour after its creation, and fixtures are older.
fn lasts(path: &str) -> bool {
    !path.contains("/events/")
}

/// Creates the objects in an empty store.
pub(crate) async fn make(raw: &Raw) {
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "lab"}})).await.expect(201);
    for (collection, mut body) in of_the_cluster().into_iter().chain(of_the_namespace()) {
        body["metadata"]["name"] = json!("kept");
        raw.post(collection, &body).await.expect(201);
    }
    let maps = format!("/api/v1/{LAB}/configmaps");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}});
    let path = format!("{maps}/applied?fieldManager=robot");
    raw.patch(path, "application/apply-patch+yaml", &applied).await.expect(201);
    let update = json!({"data": {"c": "d"}});
    raw.patch(format!("{maps}/applied"), "application/merge-patch+json", &update).await.expect(200);
    // An object that is being deleted and has a finalizer.
    let leaving = json!({"metadata": {"name": "leaving", "finalizers": ["example.com/hold"]}});
    raw.post(maps.as_str(), &leaving).await.expect(201);
    raw.delete(format!("{maps}/leaving")).await.expect(200);
    // A deleted object, which must not reappear.
    raw.post(maps.as_str(), &json!({"metadata": {"name": "gone"}})).await.expect(201);
    raw.delete(format!("{maps}/gone")).await.expect(200);
}

/// The responses of all paths.
pub(crate) async fn read(raw: &Raw) -> Record {
    let mut found = Record::new();
    for path in paths() {
        let answer = raw.get(path.as_str()).await;
        if answer.status != 404 {
            found.insert(path, answer.expect(200).json());
        }
    }
    found
}

/// Checks that exactly the recorded objects exist. Compares their revisions too if `revisions` is true.
pub(crate) async fn check(raw: &Raw, recorded: &Record, revisions: bool) -> Record {
    let found = read(raw).await;
    let compared = |record: &Record| -> Record {
        let mut record = record.clone();
        record.retain(|path, _| lasts(path));
        if !revisions {
            record.values_mut().for_each(|object| object["metadata"]["resourceVersion"] = Value::Null);
        }
        record
    };
    assert_eq!(compared(&found), compared(recorded));
    let listed = raw.get(format!("/api/v1/{LAB}/configmaps")).await.expect(200).json();
    let names = listed["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["applied", "kept", "leaving"]);
    found
}

/// Writes each object at its read revision, and checks that related entries of the store are still valid.
pub(crate) async fn check_writes(raw: &Raw, found: Record) {
    let before = revision(&raw.get(format!("/api/v1/{LAB}/configmaps")).await.expect(200).json());
    for (path, mut object) in found {
        if object["metadata"]["deletionTimestamp"].is_string() {
            object["metadata"]["finalizers"] = json!([]);
            raw.put(path.as_str(), &object).await.expect(200);
            raw.get(path).await.expect(404);
            continue;
        }
        if path.ends_with("/services/kept") {
            check_taken(raw, &object).await;
        }
        object["metadata"]["labels"]["upgraded"] = json!("yes");
        let written = raw.put(path.as_str(), &object).await.expect(200).json();
        assert!(revision(&written) > before, "{path}: revisions go on where they were");
        assert_eq!(written["metadata"]["labels"]["upgraded"], "yes");
        raw.put(path, &object).await.expect(409);
    }
    // The owners of fields are still known: robot gives up its field.
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}});
    let path = format!("/api/v1/{LAB}/configmaps/applied?fieldManager=robot");
    let applied = raw.patch(path, "application/apply-patch+yaml", &applied).await.expect(200).json();
    assert_eq!(applied["data"], json!({"c": "d"}));
}

/// Checks that a service still has its address.
async fn check_taken(raw: &Raw, service: &Value) {
    let address = &service["spec"]["clusterIP"];
    let another = json!({"metadata": {"name": "another"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let refused = raw.post(format!("/api/v1/{LAB}/services"), &another).await.expect(422);
    assert!(refused.text().contains("already allocated"), "{}", refused.text());
}

fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
