//! Tests of servers on one store that serve different resources and answer for each other: one document, and every
//! resource on every server.
//!
//! Servers of different releases run together during a rolling upgrade.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keelson_storage::faulty::FaultyStore;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::discovery::tag;
use super::lab::PATIENCE;
use super::{AGGREGATED, MERGE, until, until_of};

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// All versions of migrations, which one server of a test does not serve.
const MIGRATION_VERSIONS: &[&str] = &["storagemigration.k8s.io/v1", "storagemigration.k8s.io/v1beta1"];
const UNSERVED_BY_A: &str = "v1beta1.storagemigration.k8s.io";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// The common parts of the servers: a store, and the keys that authenticate clients and peers.
struct Fleet {
    store: Arc<dyn Store>,
    keys: TempDir,
}

impl Fleet {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), keys: TempDir::new().unwrap() }
    }

    /// Starts a server with this name that does not serve these versions.
    async fn start(&self, name: &str, unserved: &[&str]) -> TestServer {
        self.start_on(self.store.clone(), name, unserved).await
    }

    /// Starts a server that accesses the store through a wrapper.
    async fn start_on(&self, store: Arc<dyn Store>, name: &str, unserved: &[&str]) -> TestServer {
        let authority = self.keys.path().join("pki/ca.crt");
        self.start_with(store, name, unserved, Some(authority)).await
    }

    /// Starts a server that trusts the peers in this file.
    async fn start_with(
        &self,
        store: Arc<dyn Store>,
        name: &str,
        unserved: &[&str],
        authority: Option<PathBuf>,
    ) -> TestServer {
        let builder = TestServer::builder().shared_store(store).configure(|config| {
            config.data_dir = Some(self.keys.path().to_owned());
            config.server_id = name.to_owned();
            config.peer_ca_file = authority;
            config.peer_advertise_ip = Some([127, 0, 0, 1].into());
            config.identity_interval = Duration::from_secs(1);
            for version in unserved {
                config.registry.serve(keelson_builtin::catalogue(), &[format!("{version}=false")]).unwrap();
            }
        });
        builder.start().await
    }

    /// Starts a server without migrations and one without jobs, and waits until they know each other.
    async fn two(&self) -> (TestServer, TestServer) {
        let a = self.start("server-a", MIGRATION_VERSIONS).await;
        let b = self.start("server-b", &["batch/v1"]).await;
        has_group(&a.raw(), "storagemigration.k8s.io", true).await;
        has_group(&b.raw(), "batch", true).await;
        (a, b)
    }
}

/// The groups of a discovery document, in its order.
fn groups(document: &Value) -> Vec<String> {
    let items = document["items"].as_array().or(document["groups"].as_array()).unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().or(item["name"].as_str()).unwrap().to_owned();
    items.iter().map(name).collect()
}

fn own() -> String {
    format!("{AGGREGATED};profile=nopeer")
}

async fn discovery(raw: &Raw, path: &str, accept: &str) -> Answer {
    raw.get(path).header("accept", accept).await.expect(200)
}

/// Waits until a group is in the discovery document, or until it is not.
async fn has_group(raw: &Raw, group: &str, expected: bool) {
    until_of(raw, "/apis", AGGREGATED, |found| {
        found["items"].is_array() && groups(found).iter().any(|name| name == group) == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_includes_resources_of_peers() {
    let fleet = Fleet::new();
    let alone = fleet.start("server-a", &[]).await;
    let whole = discovery(&alone.raw(), "/apis", AGGREGATED).await;
    let core = discovery(&alone.raw(), "/api", AGGREGATED).await;
    assert_eq!(discovery(&alone.raw(), "/apis", &own()).await.header("etag"), whole.header("etag"));
    drop(alone);

    let (a, b) = fleet.two().await;
    for (server, missing, has) in [(&a, "storagemigration.k8s.io", "batch"), (&b, "batch", "storagemigration.k8s.io")] {
        let raw = server.raw();
        // The group of a peer is the last one until the server has its APIService, which sets the order.
        let ordered = groups(&whole.json());
        until_of(&raw, "/apis", AGGREGATED, |found| found["items"].is_array() && groups(found) == ordered).await;
        let merged = discovery(&raw, "/apis", AGGREGATED).await;
        assert_eq!(merged.text(), whole.text(), "as where one server has all of it");
        assert_eq!(merged.header("etag"), whole.header("etag"));
        assert_eq!(discovery(&raw, "/api", AGGREGATED).await.header("etag"), core.header("etag"));
        let profile = format!("{AGGREGATED};profile=other");
        assert_eq!(discovery(&raw, "/apis", &profile).await.header("etag"), whole.header("etag"));
        for accept in [own(), format!("{},{AGGREGATED}", own())] {
            let own = discovery(&raw, "/apis", &accept).await;
            assert_eq!(own.header("content-type"), AGGREGATED);
            let shown = groups(&own.json());
            assert!(!shown.iter().any(|name| name == missing) && shown.iter().any(|name| name == has));
        }
        let known =
            |accept: String| raw.get("/apis").header("accept", accept).header("if-none-match", merged.header("etag"));
        known(AGGREGATED.to_owned()).await.expect(304);
        known(own()).await.expect(200);
        // The older documents have the same groups.
        assert_eq!(groups(&raw.get("/apis").await.expect(200).json()), groups(&merged.json()));
        assert_eq!(raw.get(format!("/apis/{missing}")).await.expect(200).json()["name"], json!(missing));
        let version = &raw.get(format!("/apis/{missing}")).await.json()["preferredVersion"]["groupVersion"];
        let path = format!("/apis/{}", version.as_str().unwrap());
        raw.post(&path, &json!({})).await.expect(405);
        let listed = async |server: &TestServer| {
            let mut list = server.raw().get(&path).await.expect(200).json();
            for resource in list["resources"].as_array_mut().unwrap() {
                // The server that stores the resource publishes its hash.
                resource.as_object_mut().unwrap().remove("storageVersionHash");
            }
            list
        };
        assert_eq!(listed(server).await, listed(if missing == "batch" { &a } else { &b }).await);
    }
    assert_eq!(
        groups(&discovery(&a.raw(), "/apis", &own()).await.json()),
        groups(&whole.json()).into_iter().filter(|name| name != "storagemigration.k8s.io").collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_of_peers_have_the_openapi_of_the_peer() {
    let fleet = Fleet::new();
    let (a, b) = fleet.two().await;
    let (part, other) = ("apis/batch/v1", "apis/storagemigration.k8s.io/v1beta1");
    until_of(&b.raw(), "/openapi/v3", "application/json", |index| index["paths"][part].is_object()).await;
    until_of(&a.raw(), "/openapi/v3", "application/json", |index| index["paths"][other].is_object()).await;
    let v2 = "/openapi/v2";
    let has = |path: &'static str| move |found: &Value| found["paths"][path].is_object();
    let jobs = "/apis/batch/v1/namespaces/{namespace}/jobs";
    let of_b = until_of(&b.raw(), v2, "application/json", has(jobs)).await;
    let migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    let of_a = until_of(&a.raw(), v2, "application/json", has(migrations)).await;
    for (server, part) in [(&of_b, jobs), (&of_a, migrations)] {
        let other = if part == jobs { &of_a } else { &of_b };
        let of = |document: &Value| document["paths"][part]["post"]["responses"].clone();
        assert!(of(other).is_object());
        assert_eq!(of(server), of(other), "as who serves it describes it");
    }
    let names = |document: &Value, of: &str| -> Vec<String> {
        let all = document[of].as_object().unwrap().keys();
        all.filter(|name| !name.ends_with("/batch/") && !name.ends_with("/storagemigration.k8s.io/")).cloned().collect()
    };
    for of in ["paths", "definitions"] {
        assert_eq!(names(&of_a, of), names(&of_b, of), "of the groups themselves each server describes its own");
    }
    let index = async |server: &TestServer| server.raw().get("/openapi/v3").await.expect(200);
    assert_eq!(index(&a).await.text(), index(&b).await.text(), "one index on all servers");
    assert_eq!(index(&a).await.header("etag"), index(&b).await.header("etag"));
    let url = index(&b).await.json()["paths"][part]["serverRelativeURL"].as_str().unwrap().to_owned();
    let of_peer = b.raw().get(&url).await.expect(200);
    assert_eq!(of_peer.text(), a.raw().get(&url).await.expect(200).text());
    b.raw().get(&url).header("if-none-match", of_peer.header("etag")).await.expect(304);

    let explained = b.kubectl(["explain", "jobs.spec.parallelism"]).await.ok();
    assert!(explained.contains("maximum desired number of pods"), "{explained}");
    let listed = b.kubectl(["api-resources", "--api-group=batch", "-o", "name"]).await.ok();
    assert_eq!(listed, "cronjobs.batch\njobs.batch\n");
    b.kubectl(["create", "job", "rc", "--image=i"]).await.ok();
    b.kubectl(["label", "job", "rc", "a=b"]).await.ok();
    assert!(b.kubectl(["describe", "job", "rc"]).await.ok().contains("a=b"));

    drop(a);
    until_of(&b.raw(), "/openapi/v3", "application/json", |index| index["paths"][part].is_null()).await;
    b.raw().get(&url).await.expect(404);
    b.raw().get(format!("/{part}")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_resources_of_a_peer_are_forwarded() {
    let fleet = Fleet::new();
    let (a, b) = fleet.two().await;
    for raw in [a.raw(), a.raw().http2()] {
        let empty = raw.get(MIGRATIONS).await.expect(200);
        assert_eq!(empty.json()["kind"], "StorageVersionMigrationList");
        assert_eq!(empty.header("cache-control"), "no-cache, private");
        let wanted = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m"}, "spec": {"resource": {"group": "", "resource": "secrets"}},
        });
        raw.post(MIGRATIONS, &wanted).await.expect(201);
        assert_eq!(raw.post(MIGRATIONS, &wanted).await.expect(409).json()["reason"], "AlreadyExists");
        let one = format!("{MIGRATIONS}/m");
        assert_eq!(raw.get(&one).await.expect(200).json()["spec"]["resource"]["resource"], "secrets");
        raw.patch(&one, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
        let table =
            raw.get(MIGRATIONS).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200);
        assert_eq!(table.json()["kind"], "Table");
        let mut watch = raw.get(format!("{MIGRATIONS}?watch=1")).stream().await;
        assert_eq!((watch.status, watch.next_json().await.unwrap()["type"].clone()), (200, json!("ADDED")));
        // All servers have the same object, from one store.
        b.raw().patch(&one, MERGE, &json!({"metadata": {"labels": {"a": "c"}}})).await.expect(200);
        assert_eq!(watch.next_json().await.unwrap()["object"]["metadata"]["labels"]["a"], "c");
        drop(watch);
        raw.delete(&one).await.expect(200);
        assert_eq!(raw.get(&one).await.expect(404).json()["reason"], "NotFound");
    }
    let job = json!({
        "metadata": {"name": "rc"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    assert_eq!(b.raw().post(JOBS, &job).await.expect(201).json()["metadata"]["name"], "rc");
    let deleted = b.raw().delete(format!("{JOBS}/rc")).await.expect(200);
    assert!(deleted.header("warning").contains("child pods are preserved by default"), "{}", deleted.header("warning"));

    // A resource that no server has, and requests that a peer has already forwarded.
    for path in [
        "/apis/storagemigration.k8s.io/v1beta1/nothings",
        "/apis/storagemigration.k8s.io/v9/storageversionmigrations",
        "/apis/nothing.example.org/v1/things",
    ] {
        assert_eq!(a.raw().get(path).await.expect(404).text(), "404 page not found\n", "{path}");
    }
    let again = a.raw().get(MIGRATIONS).header("x-kubernetes-peer-proxied", "true").await.expect(404);
    assert_eq!(again.text(), "404 page not found\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_servers_send_user_headers_to_peers() {
    let fleet = Fleet::new();
    let a = fleet.start("server-a", &["authentication.k8s.io/v1"]).await;
    let b = fleet.start("server-b", &[]).await;
    has_group(&a.raw(), "authentication.k8s.io", true).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = async |raw: &Raw| {
        let asked = raw.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
        let body = asked.header("x-remote-user", "root").header("x-remote-group", "forged").await.expect(201).json();
        let user = body["status"]["userInfo"].clone();
        (user["username"].clone(), user["groups"].clone())
    };
    let admin = (json!("keelson-admin"), json!(["system:masters", "system:authenticated"]));
    assert_eq!(who(&a.raw()).await, admin, "by the way of the other server");
    assert_eq!(who(&b.raw()).await, admin);
    // An unauthenticated request is not forwarded.
    a.anonymous().post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.expect(403);
    let metrics = a.raw().get("/metrics").await.expect(200).text();
    assert!(
        metrics.contains(
            r#"apiserver_rerouted_request_total{code="201",group="authentication.k8s.io",resource="selfsubjectreviews",version="v1"} 1"#
        ),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_peers_leave_discovery_at_once_and_killed_ones_later() {
    let fleet = Fleet::new();
    let (a, mut b) = fleet.two().await;
    let raw = a.raw();
    b.stop().await;
    has_group(&raw, "storagemigration.k8s.io", false).await;
    assert_eq!(raw.get(MIGRATIONS).await.expect(404).text(), "404 page not found\n");
    // The APIServices of its built-in versions remain, since it may come back.
    raw.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.storagemigration.k8s.io").await.expect(200);

    let b = fleet.start("server-b", &["batch/v1"]).await;
    has_group(&raw, "storagemigration.k8s.io", true).await;
    raw.get(MIGRATIONS).await.expect(200);
    let port = b.running().addr().port();
    drop(b);
    let wait = async {
        loop {
            let answer = raw.get(MIGRATIONS).await;
            if answer.status == 503 && answer.text().contains("refused") {
                break answer;
            }
            assert!([200, 503].contains(&answer.status), "{}", answer.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let refused = tokio::time::timeout(PATIENCE, wait).await.expect("the dead server is asked");
    assert_eq!(
        refused.text(),
        format!("error trying to reach service: dial tcp 127.0.0.1:{port}: connect: connection refused\n")
    );
    has_group(&raw, "storagemigration.k8s.io", false).await;
    raw.get(MIGRATIONS).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn built_in_versions_stay_registered_while_another_server_lacks_them() {
    let fleet = Fleet::new();
    drop(fleet.start("server-a", &[]).await);
    let held = FaultyStore::new(fleet.store.clone());
    held.hold_deletion(StoreKey::new(format!("/registry/apiregistration.k8s.io/apiservices/{UNSERVED_BY_A}")));
    let a = fleet.start_on(Arc::new(held.clone()), "server-a", MIGRATION_VERSIONS).await;
    tokio::time::timeout(PATIENCE, held.is_holding()).await.expect("nobody else is seen to have it built in");
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{UNSERVED_BY_A}");
    let before = a.raw().get(&path).await.expect(200).json();
    let _b = fleet.start("server-b", &["batch/v1"]).await;
    held.let_go();
    let is_another =
        |found: &Value| found["kind"] == "APIService" && found["metadata"]["uid"] != before["metadata"]["uid"];
    let after = until(&a.raw(), &path, is_another).await;
    assert_eq!(after["spec"], before["spec"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_every_servers_own_and_the_tags_stay_equal() {
    let fleet = Fleet::new();
    let (a, b) = fleet.two().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.peer.example.org"},
        "spec": {
            "group": "peer.example.org", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    a.raw().post(definitions, &definition).await.expect(201);
    for server in [&a, &b] {
        has_group(&server.raw(), "peer.example.org", true).await;
    }
    let wait = async {
        while tag(&a.raw()).await != tag(&b.raw()).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the tags stay different");
    b.raw().delete(format!("{definitions}/foos.peer.example.org")).await.expect(200);
    for server in [&a, &b] {
        has_group(&server.raw(), "peer.example.org", false).await;
    }
    until(&a.raw(), "/apis/peer.example.org/v1", Value::is_null).await;
}

/// Only the operator's files decide which peers a server trusts; the content of the store does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_peer_authority_serves_only_its_own() {
    let fleet = Fleet::new();
    let a = fleet.start("server-a", MIGRATION_VERSIONS).await;
    let _c = fleet.start("server-c", &[]).await;
    let b = fleet.start_with(fleet.store.clone(), "server-b", &["batch/v1"], None).await;
    // The two other servers trust each other.
    has_group(&a.raw(), "storagemigration.k8s.io", true).await;
    let raw = b.raw();
    let shown = groups(&discovery(&raw, "/apis", AGGREGATED).await.json());
    assert!(!shown.iter().any(|group| group == "batch"), "{shown:?}");
    for path in ["/apis/batch", "/apis/batch/v1", JOBS] {
        raw.get(path).await.expect(404);
    }
    a.raw().get(JOBS).await.expect(200);
}
