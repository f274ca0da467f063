//! Tests of every built-in kind with a minimal object: its defaults, and equal content in a get, a list and a watch, in
//! every served version. `kinds/objects.json` has the objects and the expected values, `kinds/refusals.json` has
//! invalid changes of each.

mod metadata;
mod resets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Object;
use keelson_server::AdmissionPlugins;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{RangeRequest, Store as _, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use serde::Deserialize;
use serde_json::{Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const HPA: &str = "horizontalpodautoscalers.autoscaling";

/// An object to create, and its expected values by JSON pointer; null for an absent value.
#[derive(Deserialize)]
pub(crate) struct Sample {
    pub(crate) body: Value,
    shows: BTreeMap<String, Value>,
}

/// Values that make a sample's object invalid, by JSON pointer, and the expected error.
#[derive(Deserialize)]
struct Refusal {
    with: BTreeMap<String, Value>,
    says: String,
}

/// A resource according to discovery.
struct DiscoveredResource {
    /// The plural name, and the group after a dot.
    name: String,
    namespaced: bool,
    has_status: bool,
    /// For each version its `apiVersion` and the path of its collection.
    versions: Vec<(String, String)>,
}

/// An object of each resource, by its plural name and the group after a dot.
pub(crate) fn samples() -> BTreeMap<String, Sample> {
    serde_json::from_str(include_str!("kinds/objects.json")).unwrap()
}

/// All resources whose objects can be created and listed.
async fn served(raw: &Raw) -> Vec<DiscoveredResource> {
    let mut found: BTreeMap<String, DiscoveredResource> = BTreeMap::new();
    for root in ["/api", "/apis"] {
        let answer = raw.get(root).header("accept", AGGREGATED).await.expect(200).json();
        for group in list(&answer["items"]) {
            let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in list(&group["versions"]) {
                for resource in list(&version["resources"]) {
                    let verbs: Vec<&str> = list(&resource["verbs"]).iter().filter_map(Value::as_str).collect();
                    if !(verbs.contains(&"create") && verbs.contains(&"list")) {
                        continue;
                    }
                    let plural = resource["resource"].as_str().unwrap();
                    let version = version["version"].as_str().unwrap();
                    let (name, api_version) = match group_name {
                        "" => (plural.to_owned(), version.to_owned()),
                        _ => (format!("{plural}.{group_name}"), format!("{group_name}/{version}")),
                    };
                    let namespaced = resource["scope"] == "Namespaced";
                    let place = if namespaced { "/namespaces/default" } else { "" };
                    let path = format!("{root}/{api_version}{place}/{plural}");
                    let has_status =
                        list(&resource["subresources"]).iter().any(|below| below["subresource"] == "status");
                    let entry = DiscoveredResource { name: name.clone(), namespaced, has_status, versions: Vec::new() };
                    found.entry(name).or_insert(entry).versions.push((api_version, path));
                }
            }
        }
    }
    found.into_values().collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Creates the object of a sample. Returns its path and the response. The server later writes conditions of definitions
/// and flow schemas, so this waits for them.
async fn create(raw: &Raw, resource: &DiscoveredResource, sample: &Sample) -> (String, Value) {
    let mut body = sample.body.clone();
    if body["metadata"]["name"].is_null() {
        body["metadata"] = json!({"name": "minimal"});
    }
    let (_, path) = resource.versions.iter().find(|(version, _)| body["apiVersion"] == **version).unwrap();
    let created = raw.post(path.as_str(), &body).await.expect(201).json();
    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
    let written = match body["kind"].as_str() {
        Some("CustomResourceDefinition") => "Established",
        Some("FlowSchema") => "Dangling",
        _ => return (name, created),
    };
    let has_condition = async || {
        let found = raw.get(format!("{path}/{name}")).await.expect(200).json();
        let is_it = |condition: &Value| {
            condition["type"] == written && (written != "Established" || condition["status"] == "True")
        };
        list(&found["status"]["conditions"]).iter().any(is_it)
    };
    while !has_condition().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (name, created)
}

fn check_shown(name: &str, created: &Value, shows: &BTreeMap<String, Value>) {
    for (pointer, expected) in shows {
        let found = created.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, expected, "{name}: {pointer} in {created:#}");
    }
}

/// Reads an object of a collection in a version by each verb, and returns it.
async fn read(raw: &Raw, api_version: &str, path: &str, name: &str) -> Value {
    let got = raw.get(format!("{path}/{name}")).await.expect(200).json();
    assert_eq!(got["apiVersion"], api_version, "{path}");
    let selected = format!("{path}?fieldSelector=metadata.name%3D{name}");
    let listed = raw.get(selected.as_str()).await.expect(200).json();
    assert_eq!(listed["apiVersion"], api_version, "{path}");
    let [item] = list(&listed["items"]) else { panic!("{path}: {listed}") };
    let mut bare = got.clone();
    let fields = bare.as_object_mut().unwrap();
    fields.retain(|field, _| field != "kind" && field != "apiVersion");
    assert_eq!(*item, bare, "a list of {path} shows what a get shows");
    let watched = raw.get(format!("{selected}&watch=1&resourceVersion=0")).stream().await.next_json().await.unwrap();
    assert_eq!(watched, json!({"type": "ADDED", "object": got}), "a watch of {path} shows what a get shows");
    read_protobuf(raw, path, name, &got).await;
    read_outlines(raw, path, name, &got).await;
    got
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The object in the form that protobuf can represent: embedded objects have no kind.
fn in_protobuf(mut object: Value) -> Value {
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
        claim.retain(|field, _| field != "kind" && field != "apiVersion");
    }
    object
}

/// Reads an object in protobuf by each verb, and compares it with a get in JSON.
async fn read_protobuf(raw: &Raw, path: &str, name: &str, shown: &Value) {
    let shown = in_protobuf(shown.clone());
    let decoded = |body: &[u8]| serde_json::to_value(keelson_protobuf::decode(body).unwrap().object).unwrap();
    let got = raw.get(format!("{path}/{name}")).header("accept", PROTOBUF).await.expect(200);
    assert_eq!(got.header("content-type"), PROTOBUF);
    assert_eq!(decoded(&got.body), shown, "{path} in protobuf");
    let selected = format!("{path}?fieldSelector=metadata.name%3D{name}");
    let listed = raw.get(selected.as_str()).await.expect(200).json();
    let list_body = raw.get(selected.as_str()).header("accept", PROTOBUF).await.expect(200).body;
    let listed_so = decoded(&list_body);
    let item = in_protobuf(listed["items"][0].clone());
    assert_eq!((&listed_so["kind"], &listed_so["items"]), (&listed["kind"], &json!([item])), "{path} in protobuf");
    let mut watch = raw.get(format!("{selected}&watch=1&resourceVersion=0")).header("accept", PROTOBUF).stream().await;
    let mut frame = Vec::new();
    while frame.len() < 4 || frame.len() - 4 < u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize {
        frame.extend_from_slice(&watch.next_chunk().await.unwrap().expect("an event comes"));
    }
    let object = frame.windows(4).position(|window| window == keelson_protobuf::PREFIX).unwrap();
    assert_eq!(decoded(&frame[object..]), shown, "a watch of {path} in protobuf");
}

/// Reads the table row and the metadata of an object, alone and in lists.
async fn read_outlines(raw: &Raw, path: &str, name: &str, shown: &Value) {
    let form = |kind: &str| format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    let selected = format!("{path}?fieldSelector=metadata.name%3D{name}");
    let (one, many) = (format!("{path}/{name}"), selected.as_str());
    let bare = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": shown["metadata"]});
    let got = raw.get(one.as_str()).header("accept", form("PartialObjectMetadata")).await.expect(200).json();
    assert_eq!(got, bare, "the metadata of {path}");
    let listed = raw.get(many).header("accept", form("PartialObjectMetadataList")).await.expect(200).json();
    assert_eq!(listed["items"], json!([bare]), "the metadata of {path}");
    // A form that does not fit the request is an error, even if a later media type in Accept would fit.
    let refusals = [(one.as_str(), "PartialObjectMetadataList", " not"), (many, "PartialObjectMetadata", "")];
    for (path, wanted, not) in refusals {
        let refused = raw.get(path).header("accept", form(wanted) + ",application/json").await.expect(406).json();
        let message = refused["message"].as_str().unwrap();
        let text = format!("you requested {wanted}, but the requested object is{not} a list (*");
        assert!(message.starts_with(&text), "{path}: {message}");
    }
    let mut in_row = bare;
    if path.ends_with("/daemonsets") {
        // The annotation replaces a field that the kind no longer has. Rows omit it.
        let annotations = in_row["metadata"]["annotations"].as_object_mut().unwrap();
        assert!(annotations.remove("deprecated.daemonset.template.generation").is_some());
        if annotations.is_empty() {
            in_row["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    let got = raw.get(one).header("accept", form("Table")).await.expect(200).json();
    let listed = raw.get(many).header("accept", form("Table")).await.expect(200).json();
    for table in [&got, &listed] {
        let [row] = list(&table["rows"]) else { panic!("{path}: {table}") };
        assert_eq!(row["object"], in_row, "{path}");
        let cells = list(&row["cells"]).len();
        // The age that is shown for an IPAddress has no column definition.
        let extra = usize::from(path.ends_with("/ipaddresses"));
        assert_eq!(cells, list(&table["columnDefinitions"]).len() + extra, "{path}");
    }
    let mut watch = raw.get(format!("{many}&watch=1&resourceVersion=0")).header("accept", form("Table")).stream().await;
    let event = watch.next_json().await.unwrap();
    assert_eq!(event["object"]["rows"][0]["object"], in_row, "a watch of {path} as a table");
}

/// Starts a server on which no object affects the defaults of others.
async fn plain_server() -> TestServer {
    TestServer::builder()
        .every_version()
        .configure(|config| {
            // One of the samples is a LimitRange, which would add defaults.
            let off = ["LimitRanger", "ServiceAccount"].map(str::to_owned).to_vec();
            config.admission = AdmissionPlugins::new(Vec::new(), off).unwrap();
        })
        .start()
        .await
}

/// The resources whose deletion returns the object although it has no finalizer; others return a `Status`.
const RETURNED: [&str; 18] = [
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "devicetaintrules.resource.k8s.io",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcepoolstatusrequests.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_answered_as_clients_of_each_kind_know_it() {
    let server = plain_server().await;
    let raw = server.raw();
    let samples = samples();
    let background = json!({"propagationPolicy": "Background", "dryRun": ["All"]});
    for resource in &served(&raw).await {
        let (name, created) = create(&raw, resource, &samples[&resource.name]).await;
        for (_, path) in &resource.versions {
            let object = raw.get(format!("{path}/{name}")).await.expect(200).json();
            // The deletion of a definition adds a finalizer.
            let is_held = !list(&object["metadata"]["finalizers"]).is_empty()
                || !object["spec"]["finalizers"].is_null()
                || resource.name == "customresourcedefinitions.apiextensions.k8s.io";
            let deleted = raw.delete(format!("{path}/{name}")).json(&background).await.expect(200).json();
            let is_returned = is_held || RETURNED.contains(&resource.name.as_str());
            let kind = if is_returned { created["kind"].clone() } else { json!("Status") };
            assert_eq!(deleted["kind"], kind, "{path}: {deleted}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_defaulted_and_reads_equal_in_all_versions() {
    let server = plain_server().await;
    let raw = server.raw();
    let (samples, served) = (samples(), served(&raw).await);
    let names: BTreeSet<&str> = served.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, samples.keys().map(String::as_str).collect(), "left: served; right: with a sample");
    for resource in &served {
        let sample = &samples[&resource.name];
        let (name, created) = create(&raw, resource, sample).await;
        check_shown(&resource.name, &created, &sample.shows);
        assert_eq!(created["metadata"]["namespace"].is_null(), !resource.namespaced, "{}", resource.name);
        for (api_version, path) in &resource.versions {
            let read = read(&raw, api_version, path, &name).await;
            assert_eq!(read["metadata"]["uid"], created["metadata"]["uid"]);
            let is_written = created["kind"] == "CustomResourceDefinition" || created["kind"] == "FlowSchema";
            if created["apiVersion"] == **api_version && !is_written {
                assert_eq!(read, created, "{path} reads as the create was answered");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_writes_in_any_version_change_nothing() {
    let server = TestServer::builder().every_version().start().await;
    let raw = server.raw();
    let samples = samples();
    for resource in &served(&raw).await {
        let (name, _) = create(&raw, resource, &samples[&resource.name]).await;
        for (_, path) in &resource.versions {
            let path = format!("{path}/{name}");
            let before = raw.get(path.as_str()).await.expect(200).json();
            assert_eq!(raw.put(path.as_str(), &before).await.expect(200).json(), before, "a PUT of {path}");
            for form in ["application/yaml", PROTOBUF] {
                let read = raw.get(path.as_str()).header("accept", form).await.expect(200).body;
                let put = raw.put(path.as_str(), &Value::Null).header("content-type", form).body(read).await;
                assert_eq!(put.expect(200).json(), before, "a PUT of {path} in {form}");
            }
            let patched = raw.patch(path.as_str(), "application/merge-patch+json", &json!({})).await;
            assert_eq!(patched.expect(200).json(), before, "a patch of {path}");
        }
    }
}

/// A store with the same objects in kube-apiserver's encoding.
async fn as_protobuf(store: &MemoryStore) -> MemoryStore {
    let other = MemoryStore::new();
    let (from, to) = (StoreKey::new("/registry/"), StoreKey::prefix_end("/registry/"));
    let page = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    for entry in page.entries {
        let object = Object::from_value(serde_json::from_slice(&entry.value).unwrap()).unwrap();
        let (kind, version) = (object.kind().unwrap(), object.api_version().unwrap());
        let value = keelson_protobuf::encode(version, kind, &object).unwrap();
        other.commit(Transaction::default().put(entry.key, value)).await.unwrap();
    }
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_read_from_the_protobuf_that_kube_apiserver_stores() {
    let store = MemoryStore::new();
    let server = TestServer::builder().every_version().shared_store(Arc::new(store.clone())).start().await;
    let samples = samples();
    let served = served(&server.raw()).await;
    let mut created = Vec::new();
    for resource in &served {
        let (name, object) = create(&server.raw(), resource, &samples[&resource.name]).await;
        let (_, path) = resource.versions.iter().find(|(version, _)| object["apiVersion"] == **version).unwrap();
        let path = format!("{path}/{name}");
        let object = server.raw().get(path.as_str()).await.expect(200).json();
        created.push((path, object));
    }
    let other = TestServer::builder().every_version().shared_store(Arc::new(as_protobuf(&store).await)).start().await;
    for (path, object) in created {
        let without_revision = |mut object: Value| {
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            in_protobuf(object)
        };
        let read = other.raw().get(path.as_str()).await.expect(200).json();
        assert_eq!(without_revision(read), without_revision(object), "{path}");
    }
}

/// Sets the value at a JSON pointer, and creates missing parents.
fn put(body: &mut Value, pointer: &str, value: &Value) {
    let mut place = body;
    for step in pointer.split('/').skip(1) {
        place = match place {
            Value::Array(items) => &mut items[step.parse::<usize>().unwrap()],
            other => &mut other[step],
        };
    }
    *place = value.clone();
}

#[tokio::test]
async fn every_kind_refuses_invalid_objects() {
    let server = TestServer::builder().every_version().start().await;
    let raw = server.raw();
    let refusals: BTreeMap<String, Refusal> = serde_json::from_str(include_str!("kinds/refusals.json")).unwrap();
    let samples = samples();
    assert!(samples.keys().eq(refusals.keys()), "each kind with a sample has a refusal");
    let mut otherwise = BTreeMap::new();
    for resource in &served(&raw).await {
        let mut body = samples[&resource.name].body.clone();
        if body["metadata"]["name"].is_null() {
            body["metadata"] = json!({"name": "minimal"});
        }
        let refusal = &refusals[&resource.name];
        refusal.with.iter().for_each(|(pointer, value)| put(&mut body, pointer, value));
        let (_, path) = resource.versions.iter().find(|(version, _)| body["apiVersion"] == **version).unwrap();
        let answer = raw.post(path.as_str(), &body).await.json();
        let said = answer["message"].as_str().unwrap_or_default().split_once(" is invalid: ");
        let said = said.map_or_else(|| answer.to_string(), |(_, said)| said.to_owned());
        if answer["code"] != 422 || said != refusal.says {
            otherwise.insert(resource.name.clone(), said);
        }
    }
    assert!(otherwise.is_empty(), "{}", serde_json::to_string_pretty(&otherwise).unwrap());
}

/// The hash by which clients notice another storage version of autoscalers.
async fn storage_version_hash(raw: &Raw) -> Value {
    let found = raw.get("/apis/autoscaling/v2").await.expect(200).json();
    list(&found["resources"]).iter().find(|resource| resource["name"] == "horizontalpodautoscalers").unwrap()
        ["storageVersionHash"]
        .clone()
}

#[tokio::test]
async fn a_resource_can_be_stored_in_another_version() {
    let sqlite = || TestServer::builder().every_version().sqlite();
    let mut server = sqlite()
        .configure(|config| config.registry.store_as(keelson_server::catalogue(), &format!("{HPA}=v1")).unwrap())
        .start()
        .await;
    let [v1, v2] =
        ["v1", "v2"].map(|version| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers"));
    let metrics = json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}}}]);
    let body = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "metrics": metrics},
    });
    let created = server.raw().post(v2.as_str(), &body).await.expect(201).json();
    assert_eq!(created["spec"]["metrics"], metrics);
    let usual = TestServer::builder().every_version().start().await;
    assert_ne!(storage_version_hash(&server.raw()).await, storage_version_hash(&usual.raw()).await);
    let annotations = |object: &Value| object["metadata"]["annotations"].as_object().map_or(0, serde_json::Map::len);
    assert_eq!(annotations(&created), 0, "what v1 carries in annotations is not shown in v2");
    let shown = server.raw().get(format!("{v1}/a")).await.expect(200).json();
    assert_eq!(annotations(&shown), 1);
    assert_eq!(shown["apiVersion"], "autoscaling/v1");
    server.restart().await;
    let patch = json!({"spec": {"maxReplicas": 4}});
    let raw = server.raw();
    let patched = raw.patch(format!("{v1}/a"), "application/merge-patch+json", &patch).await.expect(200).json();
    assert_eq!(patched["spec"]["maxReplicas"], 4);
    let read = raw.get(format!("{v2}/a")).await.expect(200).json();
    assert_eq!((&read["spec"]["metrics"], &read["spec"]["maxReplicas"]), (&metrics, &json!(4)));
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_dropped_in_objects_and_patches() {
    let server = TestServer::builder().every_version().start().await;
    let raw = server.raw();
    let path = "/api/v1/namespaces/default/configmaps";
    let object = json!({"metadata": {"name": "a"}, "spce": 1});
    let warning = r#"299 - "unknown field \"spce\"""#;
    let strict = raw.post(format!("{path}?fieldValidation=Strict"), &object).await.expect(400);
    assert!(strict.text().contains(r#"strict decoding error: unknown field \"spce\""#), "{}", strict.text());
    let created = raw.post(path, &object).await.expect(201);
    assert_eq!((created.header("warning"), &created.json()["spce"]), (warning, &Value::Null));
    let one = format!("{path}/a");
    let replaced = raw.put(one.as_str(), &object).await.expect(200);
    assert_eq!(replaced.header("warning"), warning);
    let patch = |query: &str| raw.patch(format!("{one}{query}"), "application/merge-patch+json", &json!({"spce": 1}));
    assert_eq!(patch("").await.expect(200).header("warning"), warning);
    let ignored = patch("?fieldValidation=Ignore").await.expect(200);
    assert!(!ignored.headers.contains_key("warning"));
    let refused = patch("?fieldValidation=Strict").await.expect(422).json();
    assert!(
        refused["message"].as_str().unwrap().ends_with(r#": strict decoding error: unknown field "spce""#),
        "{refused}"
    );
    let twice =
        raw.patch(one.as_str(), "application/merge-patch+json", &json!({"data": {"a": 5}})).await.expect(422).json();
    let cause = &twice["details"]["causes"][0];
    assert_eq!((&cause["field"], &cause["reason"]), (&json!("patch"), &json!("FieldValueInvalid")));
}

/// Upstream keeps the template generation of a daemon set in a field, which version 1 shows as an annotation, except in
/// rows.
#[tokio::test]
async fn a_row_lacks_the_annotations_that_stand_for_fields() {
    let server = TestServer::builder().every_version().start().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let count = "deprecated.daemonset.template.generation";
    for (name, annotations) in [("a", json!({"kept": "yes"})), ("b", Value::Null)] {
        let containers = json!([{"name": "c", "image": "i"}]);
        let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
        let set = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        let made = server.raw().post(sets, &set).await.expect(201).json();
        assert_eq!(made["metadata"]["annotations"][count], "1");
    }
    let rows = async |query: &str| {
        let table =
            server.raw().get(format!("{sets}{query}")).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table = table.await.expect(200).json();
        let of = |row: usize| table["rows"][row]["object"]["metadata"].clone();
        [of(0), of(1)]
    };
    let [one, other] = rows("").await;
    assert_eq!((&one["annotations"], &other["annotations"]), (&json!({"kept": "yes"}), &Value::Null));
    assert!(one["name"] == "a" && other["name"] == "b" && !one["resourceVersion"].is_null(), "{one} {other}");
    let [one, other] = rows("?includeObject=Object").await;
    assert_eq!((&one["annotations"][count], &other["annotations"][count]), (&json!("1"), &json!("1")));
}

/// Many intermediaries accept only some KB of header fields, and clients print all warnings.
#[tokio::test]
async fn the_number_and_length_of_warnings_are_limited() {
    let server = TestServer::builder().every_version().start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let warned = async |fields: usize, length: usize| {
        let mut object = json!({"metadata": {"generateName": "a-"}});
        for field in 0..fields {
            object[format!("x{field:03}{}", "y".repeat(length))] = json!(1);
        }
        let created = server.raw().post(path, &object).await.expect(201);
        let texts = created.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().len());
        texts.collect::<Vec<_>>()
    };
    let whole = warned(3, 1000).await;
    assert!(whole.len() == 3 && whole.iter().all(|length| *length > 1000), "a few are told whole: {whole:?}");
    for (fields, length) in [(1000, 100), (100, 1000), (2, 100_000)] {
        let told = warned(fields, length).await;
        // The last warning may exceed the total limit. The code and the quotation marks are not counted.
        assert!(!told.is_empty() && told.iter().sum::<usize>() <= 4096 + 256 + told.len() * 10, "{told:?}");
        assert!(length < 256 || told.iter().all(|length| *length <= 256 + 10), "{told:?}");
    }
}

#[tokio::test]
async fn a_version_that_goes_is_warned_of_before_everything_else() {
    let server = TestServer::builder().recorded().every_version().start().await;
    let path = "/apis/networking.k8s.io/v1beta1/servicecidrs";
    let deprecated = r#"299 - "networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+""#;
    assert_eq!(server.raw().get(path).await.expect(200).header("warning"), deprecated);
    let object = json!({"metadata": {"name": "a"}, "spec": {"cidrs": ["198.51.100.0/24"]}, "x": 1});
    let created = server.raw().post(path, &object).await.expect(201);
    let warnings: Vec<&str> = created.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(warnings, [deprecated, r#"299 - "unknown field \"x\"""#]);
}
