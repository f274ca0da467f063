//! Tests of kinds that Kubernetes 1.37 has first and that are off by default: workloads, groups of pods, and evictions.
//!
//! A kind needs its version in `--runtime-config` and its feature gate.

use keelson_meta::Release;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const VERSIONS: [&str; 3] =
    ["scheduling.k8s.io/v1beta1=true", "scheduling.k8s.io/v1alpha3=true", "lifecycle.k8s.io/v1alpha1=true"];
const GATES: [&str; 4] =
    ["GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup", "EvictionRequestAPI"];
const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

async fn server(versions: &[&str], gates: &[&str]) -> TestServer {
    let gates: Vec<_> = gates.iter().map(|gate| ((*gate).to_owned(), true)).collect();
    TestServer::builder()
        .configure(|config| {
            config.registry.gates.set(&gates).unwrap();
            config.registry.serve(keelson_builtin::catalogue_of(Release::V1_37), versions).unwrap();
        })
        .start()
        .await
}

fn path(group_version: &str, plural: &str) -> String {
    format!("/apis/{group_version}/namespaces/default/{plural}")
}

/// An object of each kind, with its collection.
fn objects() -> Vec<(String, Value)> {
    // As in Go, this field of a template is always shown.
    let template = json!({"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": null});
    let of = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let target = json!({"pod": {"name": "p", "uid": UID}});
    let reference = json!({"workloadName": "w", "templateName": "t"});
    let group = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": reference});
    let composite = json!({"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": reference,
        "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/rack"}]}});
    let request = json!({"target": target, "requester": "a.example.org/drain", "intent": "Eviction"});
    vec![
        (path("scheduling.k8s.io/v1beta1", "workloads"), of("w", json!({"podGroupTemplates": [template]}))),
        (path("scheduling.k8s.io/v1beta1", "podgroups"), of("g", group)),
        (path("scheduling.k8s.io/v1alpha3", "compositepodgroups"), of("c", composite)),
        (path("lifecycle.k8s.io/v1alpha1", "evictionrequests"), of("r", request)),
        (path("lifecycle.k8s.io/v1alpha1", "evictions"), of("e", json!({"target": target}))),
    ]
}

#[tokio::test]
async fn new_kinds_need_their_version_and_their_gate() {
    let check = async |versions: &[&str], gates: &[&str], code: u16| {
        let server = server(versions, gates).await;
        for (collection, _) in objects() {
            let found = server.raw().get(&collection).await;
            assert_eq!(found.status, code, "{collection} {versions:?} {gates:?}");
        }
    };
    check(&[], &[], 404).await;
    check(&VERSIONS, &[], 404).await;
    check(&[], &GATES, 404).await;
    check(&VERSIONS, &GATES, 200).await;
    let older = TestServer::builder()
        .emulating(Release::V1_36)
        .configure(|config| {
            let ignored = config.registry.serve(keelson_builtin::catalogue_of(Release::V1_36), &VERSIONS).unwrap();
            assert_eq!(ignored.len(), VERSIONS.len(), "they are named in vain");
        })
        .start()
        .await;
    for (collection, _) in objects() {
        older.raw().get(&collection).await.expect(404);
    }
}

/// Compares an object in three forms, and a list.
async fn check_forms(raw: &Raw, collection: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let made = raw.post(collection, object).await.expect(201).json();
    let spec = object["spec"].as_object().unwrap();
    spec.iter().for_each(|(field, value)| assert_eq!(&made["spec"][field], value, "{collection}: {made}"));
    let at = format!("{collection}/{name}");
    let protobuf = raw.get(&at).header("accept", PROTOBUF).await.expect(200);
    let (kind, version) = (made["kind"].as_str().unwrap(), made["apiVersion"].as_str().unwrap());
    let decoded = serde_json::to_value(keelson_protobuf::decode(&protobuf.body).unwrap().object).unwrap();
    assert_eq!(decoded["spec"], made["spec"], "{kind} in {version}");
    let yaml = raw.get(&at).header("accept", "application/yaml").await.expect(200).text();
    assert!(yaml.contains(&format!("kind: {kind}\n")), "{yaml}");
    let list = raw.get(collection).await.expect(200).json();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!(format!("{kind}List")), 1));
    let sent = raw.call(http::Method::PUT, &at).header("content-type", PROTOBUF).body(protobuf.body);
    assert_eq!(sent.await.expect(200).json(), made, "the same object in protobuf changes nothing");
}

#[tokio::test]
async fn new_kinds_are_read_and_written_in_each_form() {
    let server = server(&VERSIONS, &GATES).await;
    let raw = server.raw();
    for (collection, object) in objects() {
        check_forms(&raw, &collection, &object).await;
    }
    let discovery = raw.get("/apis/scheduling.k8s.io/v1alpha3").await.expect(200).json();
    let names: Vec<_> =
        discovery["resources"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["compositepodgroups", "compositepodgroups/status", "podgroups", "podgroups/status", "workloads"]
    );
    let documents = raw.get("/openapi/v3/apis/lifecycle.k8s.io/v1alpha1").await.expect(200).json();
    assert!(documents["components"]["schemas"]["io.k8s.api.lifecycle.v1alpha1.EvictionRequest"].is_object());
}

#[tokio::test]
async fn a_group_has_the_priority_of_its_class_and_a_disruption_mode() {
    let server = server(&VERSIONS, &GATES).await;
    let raw = server.raw();
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    raw.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
    let groups = path("scheduling.k8s.io/v1beta1", "podgroups");
    let group = |name: &str, field: &str, value: Value| json!({"metadata": {"name": name}, "spec": {"schedulingPolicy": {"basic": {}}, field: value}});
    let made = raw.post(&groups, &group("a", "priorityClassName", json!("high"))).await.expect(201).json();
    assert_eq!((&made["spec"]["priority"], &made["spec"]["disruptionMode"]), (&json!(1000), &json!({"single": {}})));
    raw.post(&groups, &group("b", "priorityClassName", json!("missing"))).await.expect(403);
    let refused = raw.post(&groups, &group("b", "priority", json!(7))).await.expect(403).text();
    assert!(refused.contains("must not be provided in PodGroup spec"), "{refused}");
    let at = format!("{groups}/a");
    // Fields of gates that are off.
    let mut closed = group("c", "preemptionPolicy", json!("Never"));
    closed["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimName": "c"}]);
    let made = raw.post(&groups, &closed).await.expect(201).json();
    assert!(made["spec"]["preemptionPolicy"].is_null() && made["spec"]["resourceClaims"].is_null(), "{made}");
    // The other version has the same object, and the status is written alone.
    let alpha = at.replace("v1beta1", "v1alpha3");
    let condition = json!({"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""});
    let state = json!({"status": {"conditions": [condition]}, "spec": {"priority": 5}});
    let written = raw.patch(format!("{alpha}/status"), MERGE, &state).await.expect(200).json();
    assert_eq!(
        (&written["apiVersion"], &written["spec"]["priority"]),
        (&json!("scheduling.k8s.io/v1alpha3"), &json!(1000))
    );
    let read = raw.get(&at).await.expect(200).json();
    assert_eq!(read["status"]["conditions"], json!([condition]));
    let refused =
        raw.patch(&at, MERGE, &json!({"spec": {"schedulingPolicy": {"basic": null, "gang": {"minCount": 1}}}})).await;
    assert!(refused.expect(422).text().contains("field cannot be set once created"));
}
