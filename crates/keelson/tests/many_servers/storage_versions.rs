//! Tests of the storage versions that servers publish (KEP-2339): before the first write, their agreement, and the
//! removal of an entry after the end of its server.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use keelson_registry::RegistryConfig;
use keelson_server::Config;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{Call, Raw, TestServer};
use serde_json::{Value, json};

use crate::identity::Cluster;
use crate::{CONFIG_MAPS, config_map, items, name, until};

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const SCALERS: &str = "autoscaling.horizontalpodautoscalers";

fn stores_old_scalers(config: &mut Config) {
    config.registry.store_as(keelson_builtin::catalogue(), "horizontalpodautoscalers.autoscaling=v1").unwrap();
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of oaks with the storage version `v1` and these served versions.
fn oaks(served: &[&str]) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |name: &&str| json!({ "name": name, "served": true, "storage": *name == "v1", "schema": schema });
    let versions: Vec<Value> = served.iter().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "oaks.versions.example.com" },
        "spec": {
            "group": "versions.example.com",
            "scope": "Namespaced",
            "names": { "plural": "oaks", "kind": "Oak" },
            "versions": versions,
        },
    })
}

async fn version(raw: &Raw, name: &str) -> Value {
    raw.get(format!("{VERSIONS}/{name}")).await.expect(200).json()
}

/// The published version of each server, and the version on which all agree.
fn said(version: &Value) -> (Vec<(&str, &str)>, Option<&str>) {
    let entries = version["status"]["storageVersions"].as_array().map_or(&[][..], Vec::as_slice);
    let each = entries
        .iter()
        .map(|entry| (entry["apiServerID"].as_str().unwrap(), entry["encodingVersion"].as_str().unwrap()));
    (each.collect(), version["status"]["commonEncodingVersion"].as_str())
}

async fn until_said(raw: &Raw, name: &str, expect: (&[(&str, &str)], Option<&str>)) {
    let expect = (expect.0.to_vec(), expect.1);
    until(name, || async { said(&version(raw, name).await) == expect }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_publishes_its_storage_versions_once() {
    let mut server =
        TestServer::builder().sqlite().configure(|config| config.server_id = "one".to_owned()).start().await;
    let raw = server.raw();
    let all = raw.get(VERSIONS).await.expect(200).json();
    let stored = keelson_builtin::catalogue().collections().len();
    assert_eq!(items(&all).len(), stored, "each place in the store once");
    for each in items(&all) {
        let (servers, common) = said(each);
        assert_eq!(servers.len(), 1, "{each}");
        assert_eq!((servers[0].0, Some(servers[0].1)), ("one", common), "{each}");
        let entry = &each["status"]["storageVersions"][0];
        assert!(entry["decodableVersions"].as_array().unwrap().contains(&entry["encodingVersion"]), "{each}");
        let condition = &each["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("CommonEncodingVersionSet")));
    }
    let scalers = items(&all).iter().find(|each| name(each) == SCALERS).unwrap();
    let entry = &scalers["status"]["storageVersions"][0];
    assert_eq!(entry["servedVersions"], json!(["autoscaling/v2", "autoscaling/v1"]));
    let policies = version(&raw, "admissionregistration.k8s.io.mutatingadmissionpolicies").await;
    let entry = &policies["status"]["storageVersions"][0];
    let newest_first = ["v1", "v1beta1", "v1alpha1"].map(|version| format!("admissionregistration.k8s.io/{version}"));
    assert_eq!(entry["encodingVersion"], newest_first[0]);
    assert_eq!(entry["decodableVersions"], json!(newest_first));
    server.restart().await;
    let again = server.raw().get(VERSIONS).await.expect(200).json();
    assert_eq!(items(&again), items(&all));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agreement_is_lost_and_found_and_entries_go_with_their_servers() {
    let cluster = Cluster::new();
    let first = cluster.server_with("a", |_| {}).await;
    let raw = first.raw();
    let (old, new) = ("autoscaling/v1", "autoscaling/v2");
    assert_eq!(said(&version(&raw, SCALERS).await), (vec![("a", new)], Some(new)));
    let mut second = cluster.server_with("b", stores_old_scalers).await;
    assert_eq!(said(&version(&raw, SCALERS).await), (vec![("a", new), ("b", old)], None));
    assert_eq!(
        said(&version(&raw, "apps.deployments").await),
        (vec![("a", "apps/v1"), ("b", "apps/v1")], Some("apps/v1"))
    );
    second.stop().await;
    until_said(&raw, SCALERS, (&[("a", new)], Some(new))).await;
    until_said(&raw, "apps.deployments", (&[("a", "apps/v1")], Some("apps/v1"))).await;
}

/// Publishes a storage version of a group in the name of a server.
async fn say_for(raw: &Raw, group: &str, server: &str) {
    let name = format!("{group}.things");
    raw.post(VERSIONS, &json!({ "metadata": { "name": &name } })).await.expect(201);
    let mut said = version(raw, &name).await;
    let versions = [format!("{group}/v1")];
    let entry = json!({ "apiServerID": server, "encodingVersion": versions[0], "decodableVersions": versions });
    let condition = json!({
        "type": "AllEncodingVersionsEqual", "status": "True", "reason": "CommonEncodingVersionSet", "message": "m"
    });
    said["status"] = json!({
        "storageVersions": [entry], "commonEncodingVersion": versions[0], "conditions": [condition]
    });
    raw.put(format!("{VERSIONS}/{name}/status"), &said).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publications_of_stopped_servers_are_deleted() {
    let server = TestServer::start().await;
    let raw = server.raw();
    say_for(&raw, "gone.example.com", "nobody").await;
    until("the object goes", || async { raw.get(format!("{VERSIONS}/gone.example.com.things")).await.status == 404 })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_an_unreadable_lease_keeps_its_publications() {
    let cluster = Cluster::new();
    let server = cluster.server_with("a", |_| {}).await;
    let raw = server.raw();
    let prefix = keelson_builtin::key_prefix("coordination.k8s.io", "leases").unwrap();
    let key = StoreKey::new(prefix + "kube-system/unreadable");
    let broken = Transaction::default().put(key.clone(), Bytes::from_static(b"{"));
    cluster.store.commit(broken).await.unwrap();
    say_for(&raw, "kept.example.com", "unreadable").await;
    // The controller processes this one after the other one.
    say_for(&raw, "gone.example.com", "nobody").await;
    let is_gone = async |name: &str| raw.get(format!("{VERSIONS}/{name}")).await.status == 404;
    until("what was said for nobody goes", || is_gone("gone.example.com.things")).await;
    let kept = version(&raw, "kept.example.com.things").await;
    assert_eq!(said(&kept).0, [("unreadable", "kept.example.com/v1")]);

    cluster.store.commit(Transaction::default().delete(key)).await.unwrap();
    until("what was said for a server that is gone goes", || is_gone("kept.example.com.things")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublishable_resources_block_only_their_own_writes() {
    let cluster = Cluster::new();
    let prefix = keelson_builtin::key_prefix("internal.apiserver.k8s.io", "storageversions").unwrap();
    let key = StoreKey::new(prefix + "core.podtemplates");
    let broken = Transaction::default().put(key.clone(), Bytes::from_static(b"{"));
    cluster.store.commit(broken).await.unwrap();
    let server = cluster.server_with("a", |_| {}).await;
    let raw = server.raw();
    let templates = "/api/v1/namespaces/default/podtemplates";
    let template = json!({ "metadata": { "name": "t" }, "template": { "spec": { "containers": [] } } });
    let refused = raw.post(format!("{templates}?dryRun=All"), &template).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    let expect = "wait for storage version registration to complete for resource: podtemplates, last seen error: ";
    assert!(message.starts_with(expect) && message.len() > expect.len(), "{message}");
    assert_eq!(refused.header("retry-after"), "1");
    // The body is not read, and the object need not exist.
    raw.call(Method::POST, templates).body("{").await.expect(503);
    raw.delete(format!("{templates}/nothing")).await.expect(503);
    raw.get(templates).await.expect(200);
    raw.post(CONFIG_MAPS, &config_map("a", 1)).await.expect(201);
    let ready = raw.get("/readyz?verbose").await;
    assert_eq!(ready.status, 500);
    let hook = "poststarthook/built-in-resources-storage-version-updater";
    let response = raw.get(format!("/readyz/{hook}")).await.text();
    assert!(response.contains("podtemplates"), "{response}");

    cluster.store.commit(Transaction::default().delete(key)).await.unwrap();
    until("the templates are published", || async { raw.get("/readyz").await.status == 200 }).await;
    let container = json!({ "name": "c", "image": "i" });
    let template = json!({ "metadata": { "name": "t" }, "template": { "spec": { "containers": [container] } } });
    raw.post(format!("{templates}?dryRun=All"), &template).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_writes_wait_for_the_publication() {
    let cluster = Cluster::new();
    let prefix = keelson_builtin::key_prefix("internal.apiserver.k8s.io", "storageversions").unwrap();
    let key = StoreKey::new(prefix + "core.podtemplates");
    cluster.store.commit(Transaction::default().put(key, Bytes::from_static(b"{"))).await.unwrap();
    let server = cluster.server_with("a", |_| {}).await;
    let raw = server.raw();
    let templates = "/api/v1/namespaces/default/podtemplates";
    let one = &*format!("{templates}/t");
    let template = json!({ "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "t" } });
    let (merge, json_patch, apply) =
        ("application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml");
    for (what, call) in [
        ("a create", raw.post(templates, &template)),
        ("a dry run", raw.post(format!("{templates}?dryRun=All"), &template)),
        ("an update", raw.put(one, &template)),
        ("a merge patch", raw.patch(one, merge, &json!({}))),
        ("a JSON patch", raw.patch(one, json_patch, &json!([]))),
        ("an apply", raw.patch(format!("{one}?fieldManager=m"), apply, &template)),
        ("a delete", raw.delete(one)),
        ("a delete of all", raw.delete(templates)),
    ] {
        let refused = call.await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{what}: {}", refused.text());
        let body = refused.json();
        let message = body["message"].as_str().unwrap();
        let expect = "wait for storage version registration to complete for resource: podtemplates, last seen error: ";
        assert!(message.starts_with(expect), "{what}: {message}");
        assert_eq!(
            (&body["reason"], &body["details"]),
            (&json!("ServiceUnavailable"), &json!({ "retryAfterSeconds": 1 }))
        );
    }
    let response = raw.post(templates, &template).header("accept", "application/yaml").await.expect(503).text();
    assert!(response.contains("reason: ServiceUnavailable"), "{response}");
    // A client without the right gets that error first.
    server.anonymous().post(templates, &template).await.expect(403);

    raw.get(templates).await.expect(200);
    raw.get(one).await.expect(404);
    let watch = raw.get(format!("{templates}?watch=true&resourceVersion=0&timeoutSeconds=1")).stream().await;
    assert_eq!(watch.status, 200);
    raw.post("/api/v1/namespaces/default/nothings", &json!({})).await.expect(404);
    let review = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } } });
    raw.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect(201);
    let lease = json!({ "metadata": { "name": "pass" }, "spec": {} });
    raw.post("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", &lease).await.expect(201);
    raw.post(DEFINITIONS, &oaks(&["v1"])).await.expect(201);
    let objects = "/apis/versions.example.com/v1/namespaces/default/oaks";
    let oak = json!({ "metadata": { "name": "o" } });
    until("a custom resource is written", || async { raw.post(objects, &oak).await.status == 201 }).await;
    raw.get("/livez").await.expect(200);
    raw.get("/readyz").await.expect(500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feature_gate_switches_all_of_it_off() {
    let server = TestServer::builder().configure(|config| config.registry.storage_version_api = false).start().await;
    let raw = server.raw();
    raw.get(VERSIONS).await.expect(404);
    raw.get("/readyz/poststarthook/built-in-resources-storage-version-updater").await.expect(404);
    raw.post(CONFIG_MAPS, &config_map("a", 1)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_lease_publishes_again_before_it_writes() {
    let cluster = Cluster::new();
    let short = |config: &mut Config| config.identity_interval = Duration::from_millis(100);
    let server = cluster.server_with("a", short).await;
    let raw = server.raw();
    raw.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a").await.expect(200);
    // The garbage collector may remove its entries, and the server publishes them again.
    let mut written = raw.post(CONFIG_MAPS, &config_map("a", 1)).await;
    while written.status == 503 {
        written = raw.post(CONFIG_MAPS, &config_map("a", 1)).await;
    }
    assert_eq!(written.status, 201, "{}", written.text());
    let found = version(&raw, "core.configmaps").await;
    assert_eq!(said(&found), (vec![("a", "v1")], Some("v1")), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_or_altered_publications_are_restored() {
    let cluster = Cluster::new();
    let server = cluster.server_with("a", |_| {}).await;
    let raw = server.raw();
    let path = format!("{VERSIONS}/{SCALERS}");
    let right = version(&raw, SCALERS).await["status"].clone();
    let first = raw.delete(&path).await.expect(200).json();
    until("it is there again", || async {
        let found = raw.get(&path).await;
        found.status == 200 && said(&found.json()) == (vec![("a", "autoscaling/v2")], Some("autoscaling/v2"))
    })
    .await;
    let mut false_one = version(&raw, SCALERS).await;
    assert_ne!(false_one["metadata"]["uid"], first["details"]["uid"]);
    false_one["status"]["commonEncodingVersion"] = json!("autoscaling/v1");
    false_one["status"]["storageVersions"][0]["encodingVersion"] = json!("autoscaling/v1");
    raw.put(format!("{path}/status"), &false_one).await.expect(200);
    until("it is true again", || async {
        let found = version(&raw, SCALERS).await;
        found["status"]["storageVersions"] == right["storageVersions"]
            && found["status"]["commonEncodingVersion"] == right["commonEncodingVersion"]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_versions_of_custom_resources_follow_their_definition() {
    let cluster = Cluster::new();
    let server = cluster.server_with("a", |_| {}).await;
    let raw = server.raw();
    let name = "versions.example.com.oaks";
    let objects = "/apis/versions.example.com/v1/namespaces/default/oaks";
    let oak = json!({ "metadata": { "name": "o" } });
    let definition = format!("{DEFINITIONS}/oaks.versions.example.com");
    let served = |found: Value| found["status"]["storageVersions"][0]["servedVersions"].clone();
    // A recreated definition of the same name must be published again before its objects can be written.
    for _ in 0..2 {
        raw.post(DEFINITIONS, &oaks(&["v1"])).await.expect(201);
        until("it is served", || async { raw.post(objects, &oak).await.status == 201 }).await;
        assert_eq!(served(version(&raw, name).await), json!(["versions.example.com/v1"]));
        let more = json!({ "spec": oaks(&["v1", "v2"])["spec"] });
        raw.patch(&definition, "application/merge-patch+json", &more).await.expect(200);
        until("both versions are told of", || async {
            served(version(&raw, name).await) == json!(["versions.example.com/v1", "versions.example.com/v2"])
        })
        .await;
        raw.delete(&definition).await.expect(200);
        until("the definition is gone", || async { raw.get(&definition).await.status == 404 }).await;
        until("nothing is said any more", || async { raw.get(format!("{VERSIONS}/{name}")).await.status == 404 }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_the_gate_off_removes_its_publications() {
    let cluster = Cluster::new();
    let first = cluster.server_with("a", |_| {}).await;
    let raw = first.raw();
    // The later process takes the name of the earlier one, which has no time to withdraw its entries.
    let earlier = cluster.server_with("b", stores_old_scalers).await;
    let later = cluster.server_with("b", |config| config.registry.storage_version_api = false).await;
    until_said(&raw, SCALERS, (&[("a", "autoscaling/v2")], Some("autoscaling/v2"))).await;
    drop((earlier, later));
}

/// The apiVersion of a stored JSON value.
fn api_version(value: &[u8]) -> String {
    let object: Value = serde_json::from_slice(value).expect("values are stored as JSON");
    object["apiVersion"].as_str().expect("a stored object has a version").to_owned()
}

/// Repeats a request while it gets an error with Retry-After, and checks the final status.
async fn again_while_refused(status: u16, call: impl Fn() -> Call) {
    loop {
        let answer = call().await;
        if answer.status != 503 {
            return drop(answer.expect(status));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_uses_an_unpublished_version_during_a_change() {
    const CHANGES: usize = 12;
    let cluster = Cluster::new();
    let server = cluster.server_with("a", |_| {}).await;
    let before = cluster.store.current_revision().await.unwrap();
    let raw = server.raw();
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let told = tokio::sync::watch::Sender::new(false);
    let writers = (0..4).map(|writer| {
        let (raw, stop) = (raw.clone(), told.subscribe());
        tokio::spawn(async move {
            let mut number = 0;
            while !*stop.borrow() {
                let scaler = json!({ "metadata": { "name": format!("s-{writer}-{number}") }, "spec": {
                    "maxReplicas": 3, "scaleTargetRef": { "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" } } });
                // While a change of the version takes long, writers get an error with Retry-After.
                again_while_refused(201, || raw.post(path, &scaler)).await;
                let name = format!("{path}/s-{writer}-{number}");
                let more = json!({ "spec": { "maxReplicas": 4 } });
                again_while_refused(200, || raw.patch(name.as_str(), "application/merge-patch+json", &more)).await;
                number += 1;
            }
            number
        })
    });
    let writers: Vec<_> = writers.collect();
    for change in 0..CHANGES {
        let mut config = RegistryConfig::default();
        let version = ["v1", "v2"][change % 2];
        config
            .store_as(keelson_builtin::catalogue(), &format!("horizontalpodautoscalers.autoscaling={version}"))
            .unwrap();
        server.running().registry().store_builtin_as(config.storage_versions).await;
        let version = format!("autoscaling/{version}");
        until_said(&raw, SCALERS, (&[("a", &version)], Some(&version))).await;
    }
    told.send_replace(true);
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("every write is answered");
    }
    assert!(written > CHANGES, "only {written} objects were written while the version changed");

    let prefix = |group, plural| keelson_builtin::key_prefix(group, plural).unwrap();
    let objects = prefix("autoscaling", "horizontalpodautoscalers");
    let said = prefix("internal.apiserver.k8s.io", "storageversions") + SCALERS;
    let last = cluster.store.current_revision().await.unwrap();
    let mut tail = cluster.store.tail(before).await.unwrap();
    let (mut published, mut seen) = ("autoscaling/v2".to_owned(), [0, 0]);
    let mut watermark = before;
    while watermark < last {
        let batch = tail.next().await.expect("the tail goes on").unwrap();
        for event in &batch.events {
            let (key, Some(value)) = (event.key.as_str(), &event.value) else { continue };
            if key == said {
                let object: Value = serde_json::from_slice(value).unwrap();
                published = object["status"]["storageVersions"][0]["encodingVersion"].as_str().unwrap().to_owned();
            } else if key.starts_with(&objects) {
                assert_eq!(api_version(value), published, "{key} at {}", event.revision);
                seen[usize::from(published == "autoscaling/v2")] += 1;
            }
        }
        watermark = batch.watermark;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}: in both versions something is written");
}
