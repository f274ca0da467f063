//! Tests of status and spec of every kind with a status: the endpoint that writes each of them, the status of a create,
//! and the changes that increase the generation.
//!
//! The table is upstream's. Definitions and APIServices are omitted, since the server writes their status during the
//! test.

use keelson_server::{AdmissionPlugins, Switches};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{DiscoveredResource, create, samples, served};

const MERGE: &str = "application/merge-patch+json";
const LEFT_OUT: [&str; 2] = ["apiservices.apiregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"];
/// The kinds whose creates keep the sent status.
const KEPT_ON_CREATE: [&str; 1] = ["nodes"];

/// The generation of a kind.
#[derive(Clone, Copy, PartialEq)]
enum Generation {
    /// The kind has no generation.
    None,
    /// The generation starts at 1, and the change increases it.
    Raised,
    /// The generation starts at 1, and the change does not increase it.
    Kept,
}

/// A valid status, a change of the rest of the object, and its effect on the generation.
struct Row {
    name: &'static str,
    status: Value,
    change: Value,
    generation: Generation,
}

fn row(name: &'static str, status: Value, change: Value, generation: Generation) -> Row {
    Row { name, status, change, generation }
}

fn condition() -> Value {
    json!({ "conditions": [{ "type": "Own", "status": "True", "reason": "Tested", "message": "m",
        "lastTransitionTime": "2024-01-01T00:00:00Z" }] })
}

fn table() -> Vec<Row> {
    use Generation::{Kept, None, Raised};
    let labels = || json!({ "metadata": { "labels": { "changed": "yes" } } });
    let spec = |spec: Value| json!({ "spec": spec });
    let time = "2024-01-01T00:00:00Z";
    let pool = json!({ "loadBalancer": { "ingress": [{ "ip": "10.1.1.1" }] } });
    let scheduled =
        json!({ "currentNumberScheduled": 1, "numberMisscheduled": 1, "desiredNumberScheduled": 2, "numberReady": 1 });
    let healthy = json!({ "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1 });
    let failed = json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "Tested", "message": "m" }] });
    let stored = json!({ "apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"] });
    let stored = json!({ "storageVersions": [stored], "commonEncodingVersion": "v1" });
    vec![
        row("namespaces", condition(), labels(), None),
        row("nodes", json!({ "phase": "Running" }), spec(json!({ "unschedulable": true })), None),
        row("persistentvolumeclaims", json!({ "phase": "Bound" }), labels(), None),
        row(
            "persistentvolumes",
            json!({ "phase": "Available" }),
            spec(json!({ "persistentVolumeReclaimPolicy": "Delete" })),
            None,
        ),
        row("pods", json!({ "phase": "Running" }), spec(json!({ "activeDeadlineSeconds": 100 })), Raised),
        row("replicationcontrollers", json!({ "replicas": 3 }), spec(json!({ "replicas": 2 })), Raised),
        row("resourcequotas", json!({ "hard": { "pods": "5" } }), spec(json!({ "hard": { "pods": "7" } })), None),
        row("services", condition(), spec(json!({ "sessionAffinity": "ClientIP" })), None),
        row(
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            condition(),
            spec(json!({ "failurePolicy": "Ignore" })),
            Raised,
        ),
        row("daemonsets.apps", scheduled, spec(json!({ "minReadySeconds": 5 })), Raised),
        row("deployments.apps", json!({ "replicas": 3 }), spec(json!({ "replicas": 2 })), Raised),
        row("replicasets.apps", json!({ "replicas": 3 }), spec(json!({ "replicas": 2 })), Raised),
        row("statefulsets.apps", json!({ "replicas": 3 }), spec(json!({ "replicas": 2 })), Raised),
        row(
            "horizontalpodautoscalers.autoscaling",
            json!({ "currentReplicas": 2, "desiredReplicas": 3 }),
            spec(json!({ "maxReplicas": 9 })),
            Raised,
        ),
        row("cronjobs.batch", json!({ "lastScheduleTime": time }), spec(json!({ "suspend": true })), Raised),
        row("jobs.batch", json!({ "active": 1, "startTime": time }), spec(json!({ "parallelism": 2 })), Raised),
        row("certificatesigningrequests.certificates.k8s.io", failed.clone(), labels(), None),
        row("podcertificaterequests.certificates.k8s.io", failed, labels(), None),
        row("flowschemas.flowcontrol.apiserver.k8s.io", condition(), spec(json!({ "matchingPrecedence": 77 })), Raised),
        row("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", condition(), labels(), Kept),
        row("storageversions.internal.apiserver.k8s.io", stored, labels(), None),
        row("ingresses.networking.k8s.io", pool, spec(json!({ "ingressClassName": "other" })), Raised),
        row("servicecidrs.networking.k8s.io", condition(), labels(), None),
        row(
            "poddisruptionbudgets.policy",
            healthy,
            spec(json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" })),
            Raised,
        ),
        row("devicetaintrules.resource.k8s.io", condition(), labels(), Kept),
        row("resourceclaims.resource.k8s.io", json!({ "allocation": {} }), labels(), None),
        row("resourcepoolstatusrequests.resource.k8s.io", json!({ "poolCount": 1 }), labels(), None),
        row("volumeattachments.storage.k8s.io", json!({ "attached": true }), labels(), None),
        row("storageversionmigrations.storagemigration.k8s.io", condition(), labels(), None),
    ]
}

/// Returns true if a value contains all fields of another one, and all items in any order.
fn has(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| value.get(key).is_some_and(|value| has(value, wanted)))
        }
        (Value::Array(value), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| value.iter().any(|value| has(value, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

/// Starts a server whose controllers do not change the test's objects.
async fn quiet_server() -> TestServer {
    TestServer::builder()
        .every_version()
        .configure(|config| {
            let off = ["LimitRanger", "ServiceAccount"].map(str::to_owned).to_vec();
            config.admission = AdmissionPlugins::new(Vec::new(), off).unwrap();
            config.controllers = Switches::parse(["namespace-controller"]).unwrap();
        })
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_endpoint_writes_its_own_part_of_every_kind() {
    let server = quiet_server().await;
    let raw = server.raw();
    let (mut samples, served) = (samples(), served(&raw).await);
    let table = table();
    let mut with_status: Vec<&str> = served.iter().filter(|of| of.has_status).map(|of| of.name.as_str()).collect();
    with_status.retain(|name| !LEFT_OUT.contains(name));
    let mut named: Vec<&str> = table.iter().map(|row| row.name).collect();
    with_status.sort_unstable();
    named.sort_unstable();
    assert_eq!(with_status, named, "left: kinds with a status; right: kinds of the table");
    for row in &table {
        let resource = served.iter().find(|resource| resource.name == row.name).unwrap();
        let sample = samples.get_mut(row.name).unwrap();
        // The create must ignore the sent status.
        sample.body["status"] = row.status.clone();
        let (name, created) = create(&raw, resource, sample).await;
        let is_kept = KEPT_ON_CREATE.contains(&row.name);
        assert_eq!(has(&created["status"], &row.status), is_kept, "a create of {}: {created:#}", row.name);
        let first = if row.generation == Generation::None { Value::Null } else { json!(1) };
        assert_eq!(created["metadata"]["generation"], first, "{}", row.name);
        check_endpoints(&raw, row, resource, &name).await;
    }
}

async fn check_endpoints(raw: &Raw, row: &Row, resource: &DiscoveredResource, name: &str) {
    for (place, (_, path)) in resource.versions.iter().enumerate() {
        let path = format!("{path}/{name}");
        let before = raw.get(&*path).await.expect(200).json();
        let generation = |object: &Value| object["metadata"]["generation"].clone();

        // The status endpoint writes only the status, even if the rest is invalid.
        let sent = json!({ "status": row.status, "spec": null });
        let written = raw.patch(format!("{path}/status"), MERGE, &sent).await.expect(200).json();
        assert!(has(&written["status"], &row.status), "{path}/status: {written:#}");
        assert_eq!(written["spec"], before["spec"], "{path}/status keeps the specification");
        assert_eq!(generation(&written), generation(&before), "{path}/status keeps the generation");

        // The main endpoint never changes the status.
        let label = json!({ "metadata": { "labels": { "touched": "yes" } }, "status": null });
        let patched = raw.patch(&*path, MERGE, &label).await.expect(200).json();
        assert!(has(&patched["status"], &row.status), "a patch of {path} keeps the status: {patched:#}");
        assert_eq!(patched["metadata"]["labels"]["touched"], "yes", "{path}");
        assert_eq!(generation(&patched), generation(&before), "a label of {path} keeps the generation");
        let mut put = patched;
        put.as_object_mut().unwrap().remove("status");
        put["metadata"]["labels"]["touched"] = json!("twice");
        put["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        // A controller may write its part of the object in between.
        let put = loop {
            let revision = raw.get(&*path).await.expect(200).json()["metadata"]["resourceVersion"].clone();
            put["metadata"]["resourceVersion"] = revision;
            let answer = raw.put(&*path, &put).await;
            if answer.status != 409 {
                break answer.expect(200).json();
            }
        };
        assert!(has(&put["status"], &row.status), "a PUT of {path} keeps the status: {put:#}");

        // Only a change of the spec increases the generation.
        let changed = raw.patch(&*path, MERGE, &row.change).await.expect(200).json();
        assert!(has(&changed, &row.change) && has(&changed["status"], &row.status), "{path}: {changed:#}");
        let raised = place == 0 && row.generation == Generation::Raised;
        let expected =
            if raised { json!(put["metadata"]["generation"].as_i64().unwrap() + 1) } else { generation(&put) };
        assert_eq!(generation(&changed), expected, "{path} after a change");
    }
}
