//! Tests of the fields that Kubernetes 1.37 adds to existing types: dropped while their gate is off, and kept once it is
//! on.
//!
//! The list of fields is computed from the schemas of both releases, so that a field without a row fails.

use std::collections::{BTreeMap, BTreeSet};

use keelson_meta::Release;
use keelson_schema::Schemas;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const TIME: &str = "2026-01-01T00:00:00Z";

/// Fields that no gate guards.
const UNGUARDED: [&str; 6] = [
    // The older form of a field, which is converted first.
    "BasicDevice.nodeAllocatableResources",
    "HorizontalPodAutoscalerCondition.observedGeneration",
    // Fields of a kind that the server does not fill in. The kind itself is off by default.
    "PoolStatus.partitionSummary",
    "PoolStatus.shareableSummary",
    // Parts of a field that is guarded as a whole.
    "NodeAllocatableResourceClaimStatus.mapping",
    "TokenRequestSpec.attestations",
];

/// An object with a new field.
struct Row {
    gate: &'static str,
    /// The type and the name of the field.
    field: &'static str,
    collection: &'static str,
    object: Value,
    /// The place of the field in the object, as a JSON pointer.
    place: String,
}

impl Row {
    fn new(gate: &'static str, field: &'static str, collection: &'static str, object: Value, place: &str) -> Self {
        Self { gate, field, collection, object, place: place.to_owned() }
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod with these fields in its spec, and in its container.
fn pod(spec: &Value, container: &Value) -> Value {
    let mut own = json!({"name": "c", "image": "i"});
    own.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut whole = json!({"containers": [own]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"spec": whole})
}

/// A pod with a volume of this source.
fn with_volume(source: &Value) -> Value {
    let mut volume = json!({"name": "v"});
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    pod(&json!({"serviceAccountName": "default", "volumes": [volume]}), &json!({}))
}

/// Pods with a user for files in each kind of volume.
fn users_of_files() -> Vec<Row> {
    let row = |field, source: &Value, place: &str| {
        let place = format!("/spec/volumes/0/{place}");
        Row::new("AtomicWriteVolumeUserFields", field, PODS, with_volume(source), &place)
    };
    let item = json!({"key": "k", "path": "p", "user": 7});
    let named = json!({"path": "p", "user": 7, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
    let projected = |source: Value| json!({"projected": {"sources": [source]}});
    let token = projected(json!({"serviceAccountToken": {"path": "t", "user": 7}}));
    let bundle = projected(json!({"clusterTrustBundle": {"name": "b", "path": "t", "user": 7}}));
    let certificate = json!({"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "c", "user": 7});
    let certificate = projected(json!({"podCertificate": certificate}));
    let sources = "projected/sources/0";
    vec![
        row(
            "ConfigMapVolumeSource.defaultUser",
            &json!({"configMap": {"name": "m", "defaultUser": 7}}),
            "configMap/defaultUser",
        ),
        row(
            "SecretVolumeSource.defaultUser",
            &json!({"secret": {"secretName": "m", "defaultUser": 7}}),
            "secret/defaultUser",
        ),
        row("KeyToPath.user", &json!({"secret": {"secretName": "m", "items": [item]}}), "secret/items/0/user"),
        row("KeyToPath.user", &json!({"configMap": {"name": "m", "items": [item]}}), "configMap/items/0/user"),
        row(
            "DownwardAPIVolumeSource.defaultUser",
            &json!({"downwardAPI": {"defaultUser": 7}}),
            "downwardAPI/defaultUser",
        ),
        row("DownwardAPIVolumeFile.user", &json!({"downwardAPI": {"items": [named]}}), "downwardAPI/items/0/user"),
        row("ProjectedVolumeSource.defaultUser", &json!({"projected": {"defaultUser": 7}}), "projected/defaultUser"),
        row("ServiceAccountTokenProjection.user", &token, &format!("{sources}/serviceAccountToken/user")),
        row("ClusterTrustBundleProjection.user", &bundle, &format!("{sources}/clusterTrustBundle/user")),
        row("PodCertificateProjection.user", &certificate, &format!("{sources}/podCertificate/user")),
    ]
}

/// Pods, nodes and jobs.
fn workloads() -> Vec<Row> {
    let mut rows = users_of_files();
    let responders = json!({"evictionResponders": [{"name": "a.example.org/r", "priority": 1000}]});
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]});
    let volume = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let http = json!({"livenessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2"}}});
    let grpc = json!({"livenessProbe": {"grpc": {"port": 1, "mode": "TLS"}}});
    let memory = with_volume(&json!({"emptyDir": {"mode": 448}}));
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let job = json!({"spec": {"template": template, "scheduling": {"schedulingPolicy": {"basic": {}}}}});
    let preemption = json!({"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["memory"]}}});
    rows.extend([
        Row::new(
            "EvictionRequestAPI",
            "PodSpec.evictionResponders",
            PODS,
            pod(&responders, &json!({})),
            "/spec/evictionResponders",
        ),
        Row::new("EmptyDirVolumeMode", "EmptyDirVolumeSource.mode", PODS, memory, "/spec/volumes/0/emptyDir/mode"),
        Row::new(
            "VolumeBindMountOptions",
            "VolumeMount.bindMountOptions",
            PODS,
            pod(&volume, &mount),
            "/spec/containers/0/volumeMounts/0/bindMountOptions",
        ),
        Row::new(
            "H2CContainerProbe",
            "HTTPGetAction.protocol",
            PODS,
            pod(&json!({}), &http),
            "/spec/containers/0/livenessProbe/httpGet/protocol",
        ),
        Row::new(
            "GRPCContainerProbeTLS",
            "GRPCAction.mode",
            PODS,
            pod(&json!({}), &grpc),
            "/spec/containers/0/livenessProbe/grpc/mode",
        ),
        Row::new(
            "WorkloadWithJob",
            "JobSpec.scheduling",
            "/apis/batch/v1/namespaces/default/jobs",
            job,
            "/spec/scheduling/schedulingPolicy/basic",
        ),
        Row::new(
            "InPlacePodVerticalScalingSchedulerPreemption",
            "NodeSpec.podPreemptionPolicy",
            "/api/v1/nodes",
            preemption,
            "/spec/podPreemptionPolicy/disableResizePreemption",
        ),
    ]);
    rows
}

/// Objects with a status.
fn states() -> Vec<Row> {
    let health = json!([{"status": "Unhealthy", "reason": "Broken"}]);
    let of_pod = json!({"volumeHealth": [{"name": "v", "healthConditions": health, "lastTransitionTime": TIME}]});
    let claims = json!({"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c",
        "overhead": [{"name": "memory", "perPod": "1"}], "mapping": [{"name": "memory", "quantity": "1"}]}]});
    let mut healthy_pod = pod(&json!({}), &json!({}));
    let mut claiming_pod = healthy_pod.clone();
    healthy_pod["status"] = of_pod;
    claiming_pod["status"] = claims;
    let claim = json!({
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
        "status": {"healthStatus": {"healthConditions": health, "lastTransitionTime": TIME}},
    });
    let storage = json!({"name": "s", "healthConditions": [{"status": "Unhealthy", "reason": "Broken", "lastTransitionTime": TIME}]});
    let csi_node = json!({"spec": {"drivers": []}, "status": {"storageHealth": [storage]}});
    vec![
        Row::new("CSIVolumeHealth", "PodStatus.volumeHealth", PODS, healthy_pod, "/status/volumeHealth/0/name"),
        Row::new(
            "DRANodeAllocatableResources",
            "NodeAllocatableResourceClaimStatus.overhead",
            PODS,
            claiming_pod,
            "/status/nodeAllocatableResourceClaimStatuses/0/overhead",
        ),
        Row::new(
            "CSIVolumeHealth",
            "PersistentVolumeClaimStatus.healthStatus",
            "/api/v1/namespaces/default/persistentvolumeclaims",
            claim,
            "/status/healthStatus/healthConditions",
        ),
        Row::new(
            "CSIVolumeHealth",
            "CSINode.status",
            "/apis/storage.k8s.io/v1/csinodes",
            csi_node,
            "/status/storageHealth/0/name",
        ),
    ]
}

/// Devices and claims for them.
fn devices() -> Vec<Row> {
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let slice = |field: &str, value: Value| {
        let mut slice =
            json!({"spec": {"driver": "d.example.org", "nodeName": "n", "pool": pool, "devices": [{"name": "d"}]}});
        slice["spec"][field] = value;
        slice
    };
    let device = json!([{"name": "d", "nodeAllocatableResources": {"memory": {"mapping": {"deviceMultiplier": "1"}}}}]);
    let result = json!({"request": "r", "driver": "d.example.org", "pool": "p", "device": "d", "skipNodeOperations": ["Prepare"]});
    let claim = json!({
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    });
    let request = json!({"spec": {"driver": "d.example.org", "defaultPartitionTypeAttribute": "d.example.org/type"}});
    vec![
        Row::new(
            "DRANodeAllocatableResources",
            "Device.nodeAllocatableResources",
            SLICES,
            slice("devices", device),
            "/spec/devices/0/nodeAllocatableResources/memory",
        ),
        Row::new(
            "DRAPartitionableDevicesType",
            "ResourceSliceSpec.partitionTypeAttribute",
            SLICES,
            slice("partitionTypeAttribute", json!("d.example.org/type")),
            "/spec/partitionTypeAttribute",
        ),
        Row::new(
            "DRAOptionalNodeOperations",
            "ResourceSliceSpec.skipNodeOperations",
            SLICES,
            slice("skipNodeOperations", json!(["Prepare"])),
            "/spec/skipNodeOperations",
        ),
        Row::new(
            "DRAOptionalNodeOperations",
            "DeviceRequestAllocationResult.skipNodeOperations",
            CLAIMS,
            claim,
            "/status/allocation/devices/results/0/skipNodeOperations",
        ),
        Row::new(
            "DRAPartitionableDevicesType",
            "ResourcePoolStatusRequestSpec.defaultPartitionTypeAttribute",
            "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests",
            request,
            "/spec/defaultPartitionTypeAttribute",
        ),
    ]
}

fn rows() -> Vec<Row> {
    [workloads(), states(), devices()].into_iter().flatten().collect()
}

/// The fields of each type, by its name without a package and a version.
fn fields_of(release: Release) -> BTreeMap<String, BTreeSet<String>> {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for definition in Schemas::of_release(release).definitions() {
        let Some(name) = definition.definition_name() else { continue };
        let fields = definition.fields().map(|field| field.field_name().to_owned());
        types.entry(name.rsplit('.').next().unwrap().to_owned()).or_default().extend(fields);
    }
    types
}

#[test]
fn each_new_field_has_a_row() {
    let (older, newer) = (fields_of(Release::V1_36), fields_of(Release::V1_37));
    let of_both = older.iter().filter_map(|(name, fields)| Some((name, newer.get(name)?.difference(fields))));
    let new: BTreeSet<String> =
        of_both.flat_map(|(name, fields)| fields.map(move |field| format!("{name}.{field}"))).collect();
    let known: BTreeSet<String> = rows().iter().map(|row| row.field).chain(UNGUARDED).map(str::to_owned).collect();
    // Groups of pods and workloads have the same names in a version that is gone. Another group has an eviction.
    let other_kinds = ["Workload", "PodGroup", "CompositePodGroup", "Eviction."];
    let is_listed = |field: &&String| !other_kinds.iter().any(|prefix| field.starts_with(prefix));
    let missing: Vec<_> = new.iter().filter(is_listed).filter(|field| !known.contains(*field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let gone: Vec<_> = known.iter().filter(|field| !new.contains(*field)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

async fn server(off: Option<&str>, on: bool) -> TestServer {
    let mut gates = vec![("AllAlpha".to_owned(), on), ("AllBeta".to_owned(), true)];
    gates.extend(off.map(|gate| (gate.to_owned(), false)));
    TestServer::builder()
        .configure(|config| {
            config.registry.gates.set(&gates).unwrap();
            let catalogue = keelson_builtin::catalogue_of(Release::V1_37);
            config.registry.serve(catalogue, &["resource.k8s.io/v1alpha3=true"]).unwrap();
        })
        .start()
        .await
}

/// Writes the objects with these rows' fields, and returns what is stored of the fields.
async fn stored(raw: &Raw, rows: &[Row]) -> Vec<Value> {
    let mut found = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let mut object = row.object.clone();
        object["metadata"] = json!({"name": format!("o{number}")});
        let path = format!("{}/o{number}", row.collection);
        let made = raw.post(row.collection, &object).await;
        assert_eq!(made.status, 201, "{} {}", row.field, made.text());
        if let Some(status) = object.get("status") {
            let written = raw.patch(format!("{path}/status"), MERGE, &json!({"status": status})).await;
            // A node's driver writes the whole object.
            assert!([200, 404].contains(&written.status), "{} {}", row.field, written.text());
        }
        let read = raw.get(&path).await.expect(200).json();
        found.push(read.pointer(&row.place).cloned().unwrap_or_default());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn new_fields_are_dropped_by_default_and_kept_with_all_gates() {
    let rows = rows();
    let (off, on) = (server(None, false).await, server(None, true).await);
    let (dropped, kept) = (stored(&off.raw(), &rows).await, stored(&on.raw(), &rows).await);
    for ((row, dropped), kept) in rows.iter().zip(dropped).zip(kept) {
        assert_eq!(dropped, Value::Null, "{} while its gate is off", row.field);
        assert_eq!(Some(&kept), row.object.pointer(&row.place), "{} with its gate", row.field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_gate_drops_its_own_fields() {
    let mut by_gate: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    rows().into_iter().for_each(|row| by_gate.entry(row.gate).or_default().push(row));
    for (gate, rows) in by_gate {
        let server = server(Some(gate), true).await;
        for (row, found) in rows.iter().zip(stored(&server.raw(), &rows).await) {
            assert_eq!(found, Value::Null, "{} without {gate}", row.field);
        }
    }
}
