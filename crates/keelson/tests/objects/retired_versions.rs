//! Tests of objects that kube-apiserver stored in versions that are no longer served, in a store that it shares or has
//! left.
//!
//! Reads show them in a served version, from JSON and from protobuf. They can be changed, and a migration rewrites
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_meta::Object;
use keelson_server::{Config, Switches};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::kinds::samples;

const MERGE: &str = "application/merge-patch+json";
/// The timeout for all migrations on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Resources with the possible stored `apiVersion`s of their objects. The names are those of the samples in
/// `kinds/objects.json`.
const RETIRED: [(&str, &[&str]); 38] = [
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", &["admissionregistration.k8s.io/v1beta1"]),
    ("validatingwebhookconfigurations.admissionregistration.k8s.io", &["admissionregistration.k8s.io/v1beta1"]),
    (
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        &["admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1"],
    ),
    (
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        &["admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1"],
    ),
    ("apiservices.apiregistration.k8s.io", &["apiregistration.k8s.io/v1beta1"]),
    ("controllerrevisions.apps", &["apps/v1beta1", "apps/v1beta2"]),
    ("daemonsets.apps", &["apps/v1beta2", "extensions/v1beta1"]),
    ("deployments.apps", &["apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"]),
    ("replicasets.apps", &["apps/v1beta2", "extensions/v1beta1"]),
    ("statefulsets.apps", &["apps/v1beta1", "apps/v1beta2"]),
    ("cronjobs.batch", &["batch/v1beta1"]),
    ("certificatesigningrequests.certificates.k8s.io", &["certificates.k8s.io/v1beta1"]),
    ("clustertrustbundles.certificates.k8s.io", &["certificates.k8s.io/v1alpha1"]),
    ("podcertificaterequests.certificates.k8s.io", &["certificates.k8s.io/v1beta1"]),
    ("leases.coordination.k8s.io", &["coordination.k8s.io/v1beta1"]),
    ("endpointslices.discovery.k8s.io", &["discovery.k8s.io/v1beta1"]),
    ("events", &["events.k8s.io/v1beta1"]),
    ("flowschemas.flowcontrol.apiserver.k8s.io", FLOW_CONTROL),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", FLOW_CONTROL),
    ("ingresses.networking.k8s.io", &["networking.k8s.io/v1beta1", "extensions/v1beta1"]),
    ("ingressclasses.networking.k8s.io", &["networking.k8s.io/v1beta1"]),
    ("ipaddresses.networking.k8s.io", &["networking.k8s.io/v1beta1", "networking.k8s.io/v1alpha1"]),
    ("networkpolicies.networking.k8s.io", &["extensions/v1beta1"]),
    ("servicecidrs.networking.k8s.io", &["networking.k8s.io/v1beta1", "networking.k8s.io/v1alpha1"]),
    ("runtimeclasses.node.k8s.io", &["node.k8s.io/v1beta1", "node.k8s.io/v1alpha1"]),
    ("poddisruptionbudgets.policy", &["policy/v1beta1"]),
    ("clusterroles.rbac.authorization.k8s.io", RBAC),
    ("clusterrolebindings.rbac.authorization.k8s.io", RBAC),
    ("roles.rbac.authorization.k8s.io", RBAC),
    ("rolebindings.rbac.authorization.k8s.io", RBAC),
    ("priorityclasses.scheduling.k8s.io", &["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha1"]),
    ("csidrivers.storage.k8s.io", &["storage.k8s.io/v1beta1"]),
    ("csinodes.storage.k8s.io", &["storage.k8s.io/v1beta1"]),
    ("csistoragecapacities.storage.k8s.io", &["storage.k8s.io/v1beta1", "storage.k8s.io/v1alpha1"]),
    ("storageclasses.storage.k8s.io", &["storage.k8s.io/v1beta1"]),
    ("volumeattachments.storage.k8s.io", &["storage.k8s.io/v1beta1", "storage.k8s.io/v1alpha1"]),
    ("volumeattributesclasses.storage.k8s.io", &["storage.k8s.io/v1beta1", "storage.k8s.io/v1alpha1"]),
    ("storageversionmigrations.storagemigration.k8s.io", &["storagemigration.k8s.io/v1alpha1"]),
];
const FLOW_CONTROL: &[&str] = &[
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
];
const RBAC: &[&str] = &["rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1alpha1"];

/// Sets the fields of an old version that differ. Returns the values that a read must show, by JSON pointer.
fn age(api_version: &str, object: &mut Value) -> Vec<(&'static str, Value)> {
    match (api_version, object["kind"].as_str().unwrap()) {
        ("admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            let webhook = object["webhooks"][0].as_object_mut().unwrap();
            webhook.insert("rules".to_owned(), json!([]));
            for field in ["failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds"] {
                webhook.remove(field);
            }
            vec![
                ("/webhooks/0/failurePolicy", json!("Ignore")),
                ("/webhooks/0/matchPolicy", json!("Exact")),
                ("/webhooks/0/sideEffects", json!("Unknown")),
                ("/webhooks/0/timeoutSeconds", json!(30)),
            ]
        }
        ("extensions/v1beta1", "DaemonSet") => {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
            object["spec"]["templateGeneration"] = json!(4);
            vec![("/metadata/annotations/deprecated.daemonset.template.generation", json!("4"))]
        }
        ("apps/v1beta1" | "extensions/v1beta1", "Deployment") => {
            object["spec"]["rollbackTo"] = json!({"revision": 3});
            vec![
                ("/metadata/annotations/deprecated.deployment.rollback.to", json!("3")),
                ("/spec/rollbackTo", Value::Null),
            ]
        }
        (_, "EndpointSlice") => {
            let topology = json!({"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n", "rack": "r"});
            object["endpoints"] = json!([{"addresses": ["192.0.2.1"], "conditions": {}, "topology": topology}]);
            vec![
                ("/endpoints/0/zone", json!("z")),
                ("/endpoints/0/nodeName", json!("n")),
                ("/endpoints/0/deprecatedTopology", json!({"rack": "r"})),
            ]
        }
        (_, "Event") => {
            let fields = object.as_object_mut().unwrap();
            for (from, to) in [
                ("involvedObject", "regarding"),
                ("source", "deprecatedSource"),
                ("firstTimestamp", "deprecatedFirstTimestamp"),
                ("lastTimestamp", "deprecatedLastTimestamp"),
                ("reportingComponent", "reportingController"),
            ] {
                let value = fields.remove(from).unwrap();
                fields.insert(to.to_owned(), value);
            }
            vec![
                ("/involvedObject/kind", json!("Pod")),
                ("/source/component", json!("kubelet")),
                ("/regarding", Value::Null),
            ]
        }
        ("flowcontrol.apiserver.k8s.io/v1beta3", "PriorityLevelConfiguration") => {
            object["spec"]["limited"]["nominalConcurrencyShares"] = json!(0);
            object["metadata"]["annotations"] =
                json!({"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""});
            vec![("/spec/limited/nominalConcurrencyShares", json!(0)), ("/metadata/annotations", Value::Null)]
        }
        (_, "PriorityLevelConfiguration") => {
            let limited = object["spec"]["limited"].as_object_mut().unwrap();
            limited.remove("nominalConcurrencyShares");
            limited.insert("assuredConcurrencyShares".to_owned(), json!(7));
            vec![("/spec/limited/nominalConcurrencyShares", json!(7))]
        }
        _ => age_moved(api_version, object),
    }
}

/// Converts kinds whose fields had another place or another meaning to their old form.
fn age_moved(api_version: &str, object: &mut Value) -> Vec<(&'static str, Value)> {
    match (api_version, object["kind"].as_str().unwrap()) {
        (_, "Ingress") => {
            let path = json!({"path": "/", "backend": {"serviceName": "b", "servicePort": "http"}});
            let backend = json!({"serviceName": "a", "servicePort": 80});
            object["spec"] = json!({"backend": backend, "rules": [{"host": "a.example", "http": {"paths": [path]}}]});
            vec![
                ("/spec/defaultBackend/service", json!({"name": "a", "port": {"number": 80}})),
                ("/spec/rules/0/http/paths/0/backend/service", json!({"name": "b", "port": {"name": "http"}})),
                ("/spec/rules/0/http/paths/0/pathType", json!("ImplementationSpecific")),
            ]
        }
        ("node.k8s.io/v1alpha1", "RuntimeClass") => {
            let handler = object.as_object_mut().unwrap().remove("handler").unwrap();
            object["spec"] = json!({"runtimeHandler": handler, "overhead": {"podFixed": {"cpu": "1500u"}}});
            vec![("/handler", handler), ("/overhead/podFixed/cpu", json!("2m"))]
        }
        (_, "StorageVersionMigration") => {
            object["spec"]["resource"]["version"] = json!("v1");
            object["spec"]["continueToken"] = json!("t");
            vec![("/spec/resource/version", Value::Null), ("/spec/continueToken", Value::Null)]
        }
        (_, "PodCertificateRequest") => {
            object["spec"]["pkixPublicKey"] = json!("a2V5");
            object["spec"]["proofOfPossession"] = json!("c2lnbg==");
            vec![("/spec/pkixPublicKey", Value::Null), ("/spec/proofOfPossession", Value::Null)]
        }
        (_, "PodDisruptionBudget") => {
            object["spec"]["selector"] = json!({});
            let key = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";
            vec![("/spec/selector", json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}))]
        }
        ("rbac.authorization.k8s.io/v1alpha1", "ClusterRoleBinding" | "RoleBinding") => {
            let subject =
                |kind: &str, name: &str| json!({"kind": kind, "apiVersion": "v1", "name": name, "namespace": "n"});
            object["subjects"] = json!([subject("ServiceAccount", "a"), {"kind": "User", "name": "*"}]);
            let group = "rbac.authorization.k8s.io";
            vec![
                ("/subjects/0", json!({"kind": "ServiceAccount", "name": "a", "namespace": "n"})),
                ("/subjects/1", json!({"kind": "Group", "apiGroup": group, "name": "system:authenticated"})),
            ]
        }
        _ => Vec::new(),
    }
}

/// A stored object, and the expected result of a read.
struct Old {
    key: String,
    api_version: String,
    /// The URL of the object in the served version.
    url: String,
    served: String,
    shows: Vec<(&'static str, Value)>,
}

/// Gives an object a unique name. Kinds whose names have a meaning follow their rules.
fn rename(object: &mut Value, number: usize) -> String {
    let name = match object["kind"].as_str().unwrap() {
        "APIService" => {
            object["spec"]["group"] = json!(format!("old{number}.example.org"));
            format!("v7.old{number}.example.org")
        }
        "IPAddress" => format!("192.0.2.{number}"),
        _ => format!("old-{number}"),
    };
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("5cf4b8a1-0c86-4d3a-9a4f-{number:012}"));
    name
}

/// Creates the sample of each resource, and writes it to the store in each old version and both encodings.
async fn fill(store: &MemoryStore) -> Vec<Old> {
    let samples = samples();
    let server = TestServer::builder().every_version().start().await;
    let (raw, mut old) = (server.raw(), Vec::new());
    for (resource, versions) in RETIRED {
        let mut body = samples[resource].body.clone();
        if body["metadata"].is_null() {
            body["metadata"] = json!({"name": "minimal"});
        }
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let served = body["apiVersion"].as_str().unwrap().to_owned();
        let root = if group.is_empty() { format!("/api/{served}") } else { format!("/apis/{served}") };
        let mut url = format!("{root}/{plural}");
        let mut created = raw.post(url.as_str(), &body).await;
        if created.status != 201 {
            url = format!("{root}/namespaces/default/{plural}");
            created = raw.post(url.as_str(), &body).await;
        }
        let created = created.expect(201).json();
        let prefix = keelson_builtin::key_prefix(group, plural).unwrap();
        let place = if url.contains("/namespaces/") { "default/" } else { "" };
        for (api_version, in_protobuf) in versions.iter().flat_map(|version| [(*version, false), (*version, true)]) {
            let mut object = created.clone();
            let metadata = object["metadata"].as_object_mut().unwrap();
            for field in ["resourceVersion", "managedFields"] {
                metadata.remove(field);
            }
            let shows = age(api_version, &mut object);
            let name = rename(&mut object, old.len() + 1);
            object["apiVersion"] = json!(api_version);
            let kind = object["kind"].as_str().unwrap().to_owned();
            let key = format!("{prefix}{place}{name}");
            let value = if in_protobuf {
                let object = Object::from_value(serde_json::from_str(&object.to_string()).unwrap()).unwrap();
                keelson_protobuf::encode(api_version, &kind, &object).unwrap().into()
            } else {
                bytes::Bytes::from(object.to_string())
            };
            store.commit(Transaction::default().put(StoreKey::new(key.as_str()), value)).await.unwrap();
            let (url, served) = (format!("{url}/{name}"), served.clone());
            old.push(Old { key, api_version: api_version.to_owned(), url, served, shows });
        }
    }
    old
}

async fn stored(store: &MemoryStore, key: &str) -> Value {
    serde_json::from_slice(&store.get(&StoreKey::new(key)).await.unwrap().unwrap().value).unwrap_or_default()
}

/// Waits until the server's own migration has stored an object as JSON in the served version.
async fn until_migrated(store: &MemoryStore, object: &Old) -> Value {
    let started = Instant::now();
    loop {
        let found = stored(store, &object.key).await;
        if !found.is_null() && found["apiVersion"] != *object.api_version {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{} is stored in {}", object.key, object.api_version);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_retired_versions_are_read_changed_and_migrated() {
    let store = MemoryStore::new();
    let old = fill(&store).await;
    let reading = |config: &mut Config| config.controllers = Switches::parse(None).unwrap();
    let server =
        TestServer::builder().every_version().shared_store(Arc::new(store.clone())).configure(reading).start().await;
    let raw = server.raw();
    for (place, object) in old.iter().enumerate() {
        let Old { key, api_version, url, served, shows } = object;
        let found = raw.get(url.as_str()).await.expect(200).json();
        assert_eq!(found["apiVersion"], **served, "{api_version} {url}");
        for (pointer, expected) in shows {
            let shown = found.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(shown, expected, "{api_version} {url}: {pointer} in {found:#}");
        }
        // A list has the same object.
        let (collection, name) = url.rsplit_once('/').unwrap();
        let list = raw.get(format!("{collection}?fieldSelector=metadata.name%3D{name}")).await.expect(200).json();
        let mut bare = found.clone();
        bare.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
        assert_eq!(list["items"], json!([bare]), "{url}");
        // Every second object, those in protobuf, is changed; the others wait for a migration.
        if place % 2 == 1 {
            let patch = json!({"metadata": {"labels": {"touched": "yes"}}});
            let changed = raw.patch(url.as_str(), MERGE, &patch).await.expect(200).json();
            assert_eq!(changed["metadata"]["labels"]["touched"], "yes", "{url}");
            assert_eq!(stored(&store, key).await["metadata"]["labels"]["touched"], "yes", "{url}");
        }
    }
    drop(server);
    let migrating = |config: &mut Config| {
        config.controllers = Switches::parse(["*"]).unwrap();
        config.allow_other_keys = true;
        config.server_id = "migrating".to_owned();
    };
    let _server =
        TestServer::builder().every_version().shared_store(Arc::new(store.clone())).configure(migrating).start().await;
    for object in &old {
        let found = until_migrated(&store, object).await;
        for (pointer, expected) in &object.shows {
            assert_eq!(found.pointer(pointer).unwrap_or(&Value::Null), expected, "{}: {pointer}", object.key);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_and_claims_of_older_servers_can_be_changed() {
    let store = MemoryStore::new();
    let metadata = json!({"name": "old", "namespace": "default", "uid": "5cf4b8a1-0c86-4d3a-9a4f-000000000001",
        "creationTimestamp": "2020-01-01T00:00:00Z"});
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": metadata,
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.9.9", "selector": {"a": "b"}, "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}});
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "dataSource": source, "storageClassName": "a",
            "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}});
    for (key, object) in
        [("/registry/services/specs/default/old", &service), ("/registry/persistentvolumeclaims/default/old", &claim)]
    {
        store.commit(Transaction::default().put(StoreKey::new(key), object.to_string())).await.unwrap();
    }
    let server = TestServer::builder().every_version().shared_store(Arc::new(store.clone())).start().await;
    let raw = server.raw();
    let patch = json!({"metadata": {"labels": {"touched": "yes"}}});

    let url = "/api/v1/namespaces/default/services/old";
    let read = raw.get(url).await.expect(200).json();
    let families = json!({"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
    for (field, expected) in families.as_object().unwrap() {
        assert_eq!(read["spec"][field], *expected, "{read:#}");
    }
    raw.get("/apis/networking.k8s.io/v1/ipaddresses/10.96.9.9").await.expect(404);
    let changed = raw.patch(url, MERGE, &patch).await.expect(200).json();
    assert_eq!(changed["spec"], read["spec"]);
    let address = raw.get("/apis/networking.k8s.io/v1/ipaddresses/10.96.9.9").await.expect(200).json();
    assert_eq!(address["spec"]["parentRef"]["name"], "old");

    let url = "/api/v1/namespaces/default/persistentvolumeclaims/old";
    let read = raw.get(url).await.expect(200).json();
    let source = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "other"});
    assert_eq!((&read["spec"]["dataSource"], &read["spec"]["dataSourceRef"]), (&source, &source));
    raw.patch(url, MERGE, &patch).await.expect(200);
    // A client that knows only the older field writes back the object that it has read.
    let mut known = raw.get(url).await.expect(200).json();
    known["spec"].as_object_mut().unwrap().remove("dataSourceRef");
    known["metadata"]["annotations"] = json!({"a": "b"});
    let written = raw.put(url, &known).await.expect(200).json();
    assert_eq!(written["spec"]["dataSourceRef"], source);
}
