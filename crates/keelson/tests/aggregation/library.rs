//! Tests of a server written with `keelson-apiserver`, in a separate process, through the main server.
//!
//! The processes are the examples of the library, which `cargo test` builds along with the tests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use keelson_storage::{RangeRequest, Store as _, StoreKey, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_testkit::{EtcdServer, PostgresServer, TestServer};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use crate::example::Example;
use crate::lab::PATIENCE;
use crate::{MERGE, until};

/// The number of clients that create objects concurrently.
const WRITERS: usize = 4;
/// The number of times that the test kills the server meanwhile.
const CRASHES: usize = 3;
/// The number of attempts to delete a record and write before the process notices the deletion by itself.
const ATTEMPTS: usize = 20;
/// The prefix of the records of processes that share a store.
const RECORDS: &str = "/keelson-apiserver/servers/";
/// The prefix of stored flunders.
const STORED: &str = "/registry/wardle.example.com/flunders/default";
/// The path of the flunders' published storage versions on the main server.
const PUBLISHED: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/wardle.example.com.flunders";
/// The path of server leases on the main server.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The path of flunders.
const FLUNDERS: &str = "/apis/wardle.example.com/v1/namespaces/default/flunders";

/// A flunder as a manifest.
fn manifest(name: &str, colour: &str, size: u32) -> String {
    json!({
        "apiVersion": "wardle.example.com/v1", "kind": "Flunder", "metadata": { "name": name },
        "spec": { "colour": colour, "size": size },
    })
    .to_string()
}

/// The lines of a table that kubectl prints, in words.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// The server of the program compresses, and the main server passes the bytes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_watch_passes_through_the_main_server() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    main.kubectl(["create", "-f", "-"]).stdin(manifest("one", "red", 3)).await.ok();
    let path = format!(
        "{FLUNDERS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let watch = main.raw().get(&path).header("accept-encoding", "gzip").stream().await;
    assert_eq!([&watch.headers["content-encoding"], &watch.headers["vary"]], ["gzip", "Accept-Encoding"]);
    let mut watch = watch.gunzip();
    let mut next = async || watch.next_json().await.unwrap();
    assert_eq!(next().await["object"]["metadata"]["name"], "one");
    assert_eq!(next().await["type"], "BOOKMARK");
    main.kubectl(["create", "-f", "-"]).stdin(manifest("two", "red", 3)).await.ok();
    assert_eq!(next().await["object"]["metadata"]["name"], "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_written_with_the_library_is_used_with_kubectl() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    main.kubectl(["create", "-f", "-"]).stdin(manifest("one", "red", 3)).await.ok();
    let table = main.kubectl(["get", "flunders"]).await.ok();
    assert_eq!(words(&table), [vec!["NAME", "COLOUR", "SIZE", "POLISHED"], vec!["one", "red", "3"]], "{table}");

    let apply = |text: String| main.kubectl(["apply", "-f", "-"]).stdin(text);
    assert_eq!(apply(manifest("two", "blue", 5)).await.ok().trim(), "flunder.wardle.example.com/two created");
    assert_eq!(apply(manifest("two", "green", 6)).await.ok().trim(), "flunder.wardle.example.com/two configured");
    let owned = main.kubectl(["apply", "--server-side", "--field-manager=other", "-f", "-"]);
    let conflict = owned.stdin(manifest("two", "black", 6)).await.refused();
    assert!(conflict.contains("conflict with \"kubectl-client-side-apply\""), "{conflict}");
    let new = main.kubectl(["apply", "--server-side", "-f", "-"]).stdin(manifest("three", "red", 60)).await;
    assert!(new.stderr.contains("Warning: flunders of this size are hard to polish"), "{}", new.stderr);
    assert_eq!(new.ok().trim(), "flunder.wardle.example.com/three serverside-applied");

    let shrunk = apply(manifest("two", "green", 4)).await.refused();
    let message = "flunders.wardle.example.com \"two\" is forbidden: a flunder does not shrink";
    assert!(shrunk.contains(message), "{shrunk}");
    let wrong = apply(manifest("four", "Red", 500)).await.refused();
    assert!(wrong.contains("spec.colour: Invalid value: \"Red\"") && wrong.contains("spec.size"), "{wrong}");

    // The server's admission hook has added a label with the colour.
    let labelled = main.kubectl(["get", "fl", "-l", "wardle.example.com/colour=red", "-o", "name"]).await.ok();
    let names = ["flunder.wardle.example.com/one", "flunder.wardle.example.com/three"];
    assert_eq!(labelled.lines().collect::<Vec<_>>(), names);
    let selected = ["get", "fl", "--field-selector=spec.colour=green", "--chunk-size=1", "-o", "name"];
    assert_eq!(main.kubectl(selected).await.ok().trim(), "flunder.wardle.example.com/two");
    let chunked = main.kubectl(["get", "all", "--chunk-size=1", "-o", "name"]).await.ok();
    assert_eq!(chunked.matches("flunder.wardle.example.com/").count(), 3, "{chunked}");

    let polish =
        ["patch", "fl", "one", "--subresource=status", "--type=merge", "-p", r#"{"status":{"polished":true}}"#];
    main.kubectl(polish).await.ok();
    let table = main.kubectl(["get", "fl", "one", "--no-headers"]).await.ok();
    assert_eq!(words(&table), [["one", "red", "3", "true"]]);
    // The main server fetches the documents by itself.
    let published = |index: &Value| index["paths"].get("apis/wardle.example.com/v1").is_some();
    until(&main.raw(), "/openapi/v3", published).await;
    let explained = main.kubectl(["explain", "flunder.spec.size"]).await.ok();
    assert!(explained.contains("The size in metres."), "{explained}");
    let resources = main.kubectl(["api-resources", "--api-group=wardle.example.com", "--no-headers"]).await.ok();
    assert_eq!(words(&resources), [["flunders", "fl", "wardle.example.com/v1", "true", "Flunder"]]);
}

/// The selectable fields of a type work in selectors, indexes, sorting and searches through the main server.
#[tokio::test(flavor = "multi_thread")]
async fn its_declared_fields_are_selected_indexed_and_sorted_by() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    let raw = main.raw();
    let colours: Vec<String> = ('a'..='z').map(|letter| format!("dark{letter}")).collect();
    let mut watch = raw.get(format!("{FLUNDERS}?watch=1&fieldSelector=spec.colour%3Ddarkc")).stream().await;
    for number in 0..300_usize {
        let name = format!("n{number:03}");
        let sent = serde_json::from_str(&manifest(&name, &colours[number % 26], 1 + number as u32 % 50)).unwrap();
        raw.post(FLUNDERS, &sent).await.expect(201);
    }
    for expected in ["n002", "n028"] {
        let event = watch.next_json().await.expect("the watch goes on");
        assert_eq!(event["object"]["metadata"]["name"], expected);
    }
    let list = raw.get(format!("{FLUNDERS}?fieldSelector=spec.colour%3Ddarkz")).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 11);
    raw.get(format!("{FLUNDERS}?fieldSelector=spec.size%3D3")).await.expect(400);

    let mut looked_at = Vec::new();
    // The list above was the first one that would have used an index.
    for limit in 1..=3 {
        let filter = format!("keelson.io/filter=spec.size+%3C+{}", 1000 + limit);
        let asked = format!("{FLUNDERS}?fieldSelector=spec.colour%3Ddarkb&limit=1&{filter}");
        let answer = raw.get(asked).await.expect(200);
        assert_eq!(answer.header("keelson-total-count"), "12");
        looked_at.push(answer.header("keelson-objects-scanned").to_owned());
    }
    assert_eq!(looked_at, ["300", "312", "12"]);

    let sorted = format!("{FLUNDERS}?limit=2&keelson.io/sortBy=-spec.size,spec.colour&keelson.io/page=2");
    let page = raw.get(sorted).await.expect(200).json();
    let shown: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["spec"].clone()).collect();
    assert_eq!(shown, [json!({ "colour": "darkr", "size": 50 }), json!({ "colour": "darkt", "size": 50 })]);
    let matches = raw.get(format!("{FLUNDERS}?keelson.io/search=darkq&keelson.io/matches=true&limit=1")).await;
    assert_eq!(matches.expect(200).json()["items"][0]["matches"][0]["word"], "darkq");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_the_library_send_changes_and_namespaces_take_its_objects() {
    let main = TestServer::start().await;
    let _flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    main.kubectl(["create", "namespace", "n"]).await.ok();
    let create = |name: &str| main.kubectl(["create", "-n", "n", "-f", "-"]).stdin(manifest(name, "red", 3));
    create("one").await.ok();
    let mut watch = main.kubectl(["get", "fl", "-n", "n", "-w", "-o", "name"]).spawn().await;
    assert_eq!(watch.next_line().await.unwrap(), "flunder.wardle.example.com/one");
    create("two").await.ok();
    assert_eq!(watch.next_line().await.unwrap(), "flunder.wardle.example.com/two");
    watch.stop().await;

    let missing = main.kubectl(["create", "-n", "none", "-f", "-"]).stdin(manifest("one", "red", 3)).await.refused();
    assert!(missing.contains("namespaces \"none\" not found"), "{missing}");
    // While a finalizer holds the namespace, nothing new can be created in it.
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/held"] } });
    let maps = "/api/v1/namespaces/n/configmaps";
    main.raw().post(maps, &held).await.expect(201);
    main.kubectl(["delete", "namespace", "n", "--wait=false"]).await.ok();
    let refused = create("three").await.refused();
    assert!(refused.contains("because it is being terminated"), "{refused}");
    let let_go = json!({ "metadata": { "finalizers": null } });
    main.raw().patch(format!("{maps}/held"), MERGE, &let_go).await.expect(200);
    main.kubectl(["wait", "--for=delete", "namespace/n", "--timeout=60s"]).await.ok();
    let left = main.raw().get("/apis/wardle.example.com/v1/flunders").await.expect(200).json();
    assert_eq!(left["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_trusts_only_the_front_proxy_and_users_of_the_main_server() {
    let main = TestServer::start().await;
    let flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    let direct = flunders.direct(&main).await;
    let (known, stranger) = (direct.raw(), direct.anonymous());
    known.get(FLUNDERS).await.expect(200);
    stranger.get(FLUNDERS).await.expect(403);
    stranger.get("/readyz").await.expect(200);
    let claimed = stranger.get(FLUNDERS).header("x-remote-user", "ann").header("x-remote-group", "system:masters");
    claimed.await.expect(403);
    stranger.get(FLUNDERS).header("authorization", "Bearer nonsense").await.expect(401);
    // The server authenticates a service account by its token, and grants it nothing.
    main.kubectl(["create", "serviceaccount", "reader"]).await.ok();
    let token = main.kubectl(["create", "token", "reader"]).await.ok();
    let answer = stranger.get(FLUNDERS).header("authorization", format!("Bearer {}", token.trim())).await.expect(403);
    let told = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(told.contains("User \"system:serviceaccount:default:reader\" cannot list resource \"flunders\""), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_of_the_library_survive_a_crash() {
    let main = TestServer::start().await;
    let mut flunders = Example::flunders(&main, |directory| format!("sqlite:{}", directory.display())).await;
    check_crashes(&mut flunders, &[&main]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_main_servers_on_one_postgresql_serve_the_library() {
    let Some(postgres) = PostgresServer::shared() else { return };
    let (of_main, own) = (postgres.create_database("flunders_main"), postgres.create_database("flunders"));
    let mut servers = Vec::new();
    for name in ["left", "right"] {
        let store = PostgresStore::open(PostgresConfig::from_url(&of_main).unwrap()).await.unwrap();
        let server = TestServer::builder().shared_store(Arc::new(store));
        // Each server has its own authorities. All of them are published.
        let server = server.configure(|config| {
            config.server_id = name.to_owned();
            config.allow_other_keys = true;
        });
        servers.push(server.start().await);
    }
    let [left, right] = &servers[..] else { unreachable!("there are two") };
    let mut flunders = Example::flunders(left, |_| own).await;
    until(&right.raw(), "/apis/wardle.example.com/v1", |found| found["kind"] == "APIResourceList").await;
    left.kubectl(["create", "-f", "-"]).stdin(manifest("one", "red", 3)).await.ok();
    let shown = right.kubectl(["get", "fl", "--no-headers"]).await.ok();
    assert_eq!(words(&shown), [["one", "red", "3"]]);
    // One apply is sent to both servers in turn.
    for (server, size, told) in [(right, 5, "created"), (left, 6, "configured"), (right, 6, "unchanged")] {
        let done = server.kubectl(["apply", "-f", "-"]).stdin(manifest("two", "blue", size)).await.ok();
        assert_eq!(done.trim(), format!("flunder.wardle.example.com/two {told}"));
    }
    let published = |index: &Value| index["paths"].get("apis/wardle.example.com/v1").is_some();
    until(&right.raw(), "/openapi/v3", published).await;
    let explained = right.kubectl(["explain", "flunder.spec.size"]).await.ok();
    assert!(explained.contains("The size in metres."), "{explained}");
    left.kubectl(["create", "namespace", "n"]).await.ok();
    let mut watch = right.kubectl(["get", "fl", "-n", "n", "-w", "-o", "name"]).spawn().await;
    left.kubectl(["create", "-n", "n", "-f", "-"]).stdin(manifest("one", "red", 3)).await.ok();
    assert_eq!(watch.next_line().await.unwrap(), "flunder.wardle.example.com/one");
    watch.stop().await;
    right.kubectl(["delete", "namespace", "n", "--wait=false"]).await.ok();
    left.kubectl(["wait", "--for=delete", "namespace/n", "--timeout=60s"]).await.ok();
    let left_over = left.raw().get("/apis/wardle.example.com/v1/namespaces/n/flunders").await.expect(200).json();
    assert_eq!(left_over["items"], json!([]));
    check_crashes(&mut flunders, &[left, right]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_library_servers_on_one_postgresql_share_objects() {
    let Some(postgres) = PostgresServer::shared() else { return };
    let main = TestServer::start().await;
    let store = postgres.create_database("flunders_shared");
    let mut first = Example::flunders(&main, |_| store).await;
    let second = first.another().await;
    let (through, beside) = (main.raw(), second.direct(&main).await.raw());
    let path = format!("{FLUNDERS}/one");
    let sent: Value = serde_json::from_str(&manifest("one", "red", 3)).unwrap();
    let made = through.post(FLUNDERS, &sent).await.expect(201).json();
    assert_eq!(beside.get(&path).await.expect(200).json(), made);
    let grown = beside.patch(&path, MERGE, &json!({ "spec": { "size": 4 } })).await.expect(200).json();
    assert_eq!(through.get(&path).await.expect(200).json(), grown);
    // A stale write gets a conflict.
    through.put(&path, &made).await.expect(409);
    first.kill().await;
    beside.patch(&path, MERGE, &json!({ "spec": { "size": 5 } })).await.expect(200);
    first.start_again().await;
    until(&through, &path, |found| found["spec"]["size"] == 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_versions_of_the_library_are_published_while_its_lease_lasts() {
    let main = TestServer::start().await;
    let raw = main.raw();
    let mut flunders = Example::flunders(&main, |_| "memory:".to_owned()).await;
    let published = raw.get(PUBLISHED).await.expect(200).json();
    let entry = published["status"]["storageVersions"][0].clone();
    assert_eq!(entry["encodingVersion"], "wardle.example.com/v1", "{published}");
    assert_eq!(entry["decodableVersions"], json!(["wardle.example.com/v1"]));
    assert_eq!(published["status"]["commonEncodingVersion"], "wardle.example.com/v1");
    let lease = format!("{LEASES}/{}", entry["apiServerID"].as_str().unwrap());
    let label = &raw.get(&lease).await.expect(200).json()["metadata"]["labels"]["apiserver.kubernetes.io/identity"];
    assert_eq!(label, "keelson-apiserver", "it is no main server");
    let sent: Value = serde_json::from_str(&manifest("one", "red", 3)).unwrap();
    raw.post(FLUNDERS, &sent).await.expect(201);

    // Deleting its lease removes its published versions; it registers and publishes again.
    raw.delete(&lease).await.expect(200);
    until(&raw, PUBLISHED, |found| found["status"]["storageVersions"][0] != entry).await;
    until(&raw, PUBLISHED, |found| found["status"]["storageVersions"][0] == entry).await;
    raw.get(&lease).await.expect(200);
    raw.patch(format!("{FLUNDERS}/one"), MERGE, &json!({ "spec": { "size": 4 } })).await.expect(200);

    let other = flunders.another().await;
    let both = |found: &Value| found["status"]["storageVersions"].as_array().is_some_and(|all| all.len() == 2);
    until(&raw, PUBLISHED, both).await;
    drop(other);
    flunders.stop().await;
    raw.get(&lease).await.expect(404);
    until(&raw, PUBLISHED, |found| found["status"]["storageVersions"][0] != entry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_its_record_writes_only_after_registering_again() {
    let Some(postgres) = PostgresServer::shared() else { return };
    let main = TestServer::start().await;
    let url = postgres.create_database("flunders_fenced");
    let store = PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.unwrap();
    let mut first = Example::flunders(&main, |_| url).await;
    let second = first.another().await;
    let records = async || {
        let (from, to) = (StoreKey::new(RECORDS), StoreKey::prefix_end(RECORDS));
        store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap().entries
    };
    assert_eq!(records().await.len(), 2);
    for raw in [main.raw(), second.direct(&main).await.raw()] {
        let mut refused = false;
        for number in 0..ATTEMPTS {
            // Deletes the records, as another process does that considers this one dead.
            for record in records().await {
                store.commit(Transaction::default().delete(record.key)).await.unwrap();
            }
            let name = format!("m-{number}");
            let sent: Value = serde_json::from_str(&manifest(&name, "red", 3)).unwrap();
            let answer = raw.post(FLUNDERS, &sent).await;
            if answer.status == 503 {
                assert!(answer.text().contains("the store is unavailable"), "{}", answer.text());
                refused = true;
                let stored = store.get(&StoreKey::new(format!("{STORED}/{name}"))).await.unwrap();
                assert!(stored.is_none(), "what was refused is not written");
                break;
            }
            // The process has just registered again by itself.
            answer.expect(201);
        }
        assert!(refused, "writes are not compared with the record");
        let sent: Value = serde_json::from_str(&manifest("later", "red", 3)).unwrap();
        let again = async {
            while raw.post(FLUNDERS, &sent).await.status != 201 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("it registers anew");
        for number in 0..ATTEMPTS {
            raw.delete(format!("{FLUNDERS}/m-{number}")).await;
        }
        raw.delete(format!("{FLUNDERS}/later")).await.expect(200);
    }
    first.stop().await;
    assert!(records().await.len() < 2, "who stops takes its record along");
}

#[tokio::test(flavor = "multi_thread")]
async fn library_objects_on_etcd_survive_crashes() {
    let Some(etcd) = EtcdServer::shared() else { return };
    let main = TestServer::start().await;
    let mut flunders = Example::flunders(&main, |_| format!("etcd://{}/flunders", etcd.endpoint())).await;
    check_crashes(&mut flunders, &[&main]).await;
}

/// A server registers on its store at the start. If the store is full, it registers when there is space again.
#[tokio::test(flavor = "multi_thread")]
async fn the_library_starts_on_a_full_etcd() {
    /// A quota of etcd that some writes fill, in bytes.
    const QUOTA: u64 = 8 << 20;
    let Some(etcd) = EtcdServer::builder().arg(format!("--quota-backend-bytes={QUOTA}")).start() else { return };
    let main = TestServer::start().await;
    let raw = main.raw();
    let url = format!("etcd://{}/flunders", etcd.endpoint());
    let mut flunders = Example::flunders(&main, |_| url.clone()).await;
    let made = |name: &str| serde_json::from_str::<Value>(&manifest(name, "red", 1)).unwrap();
    raw.post(FLUNDERS, &made("kept")).await.expect(201);
    raw.post(FLUNDERS, &made("other")).await.expect(201);
    // The record of the process remains, as after a kill.
    flunders.kill().await;
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let filler = |number: usize| StoreKey::new(format!("/filler/{number}"));
    let mut count = 0;
    while store.commit(Transaction::default().put(filler(count), vec![b'x'; 400_000])).await.is_ok() {
        count += 1;
    }
    flunders.start_again().await;
    until(&raw, FLUNDERS, |list| counted(list) == 2).await;
    let refused = raw.post(FLUNDERS, &made("new")).await;
    assert!(refused.status >= 500, "{}", refused.text());
    raw.delete(format!("{FLUNDERS}/other")).await.expect(200);
    for number in 0..count {
        store.commit(Transaction::default().delete(filler(number))).await.unwrap();
    }
    store.compact(store.current_revision().await.unwrap()).await.unwrap();
    let written = async {
        loop {
            tokio::task::block_in_place(|| etcd.make_room());
            if [201, 409].contains(&raw.post(FLUNDERS, &made("new")).await.status) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("it registers, and writes again");
    let list = raw.get(FLUNDERS).await.expect(200).json();
    assert_eq!(counted(&list), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn computed_objects_need_no_store() {
    let main = TestServer::start().await;
    let _loads = Example::loads(&main).await;
    let table = main.kubectl(["get", "loads"]).await.ok();
    let rows = words(&table);
    assert_eq!(rows[0], ["NAME", "MINUTES", "PROCESSES"], "{table}");
    let named: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[0], row[1]]).collect();
    assert_eq!(named, [["fifteen", "15"], ["five", "5"], ["one", "1"]], "{table}");
    let one = main.kubectl(["get", "load", "five", "-o", "jsonpath={.spec.minutes}"]).await.ok();
    assert_eq!(one, "5");
    let new = r#"{"apiVersion":"host.example.com/v1","kind":"Load","metadata":{"name":"x"}}"#;
    let refused = main.kubectl(["create", "--validate=false", "-f", "-"]).stdin(new.to_owned()).await.refused();
    assert!(refused.contains("does not allow this method"), "{refused}");
    let shown =
        main.kubectl(["api-resources", "--api-group=host.example.com", "--no-headers", "-o", "wide"]).await.ok();
    assert!(shown.contains("get,list") && !shown.contains("create"), "{shown}");
}

/// Kills the process repeatedly while these servers create objects. In the end every acknowledged object exists, and
/// the events of a watch equal the list.
async fn check_crashes(flunders: &mut Example, servers: &[&TestServer]) {
    let ended = Arc::<AtomicBool>::default();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (raw, ended) = (servers[writer % servers.len()].raw(), ended.clone());
        writers.push(tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            for number in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("w{writer}-{number}");
                let sent = serde_json::from_str(&manifest(&name, "red", 1)).unwrap();
                match raw.post(FLUNDERS, &sent).try_send().await.map(|answer| answer.status) {
                    Ok(201) => drop(acknowledged.insert(name)),
                    // The server is unavailable. It may or may not have stored this object.
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            acknowledged
        }));
    }
    let watched = Arc::<Mutex<BTreeSet<String>>>::default();
    let watcher = tokio::spawn(watch(servers[servers.len() - 1].client(), watched.clone()));
    for _ in 0..CRASHES {
        let before = count(servers[0]).await;
        until(&servers[0].raw(), &format!("{FLUNDERS}?limit=1"), |list| counted(list) > before + 20).await;
        flunders.crash().await;
    }
    ended.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let list = until(&servers[0].raw(), FLUNDERS, |list| list["kind"] == "FlunderList").await;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let listed: BTreeSet<String> = list["items"].as_array().unwrap().iter().map(name).collect();
    assert!(acknowledged.len() > 20 * CRASHES && acknowledged.is_subset(&listed));
    let caught_up = async {
        while *watched.lock().unwrap() != listed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, caught_up).await.expect("a client that watches does not see what is listed");
    watcher.abort();
}

/// Watches flunders as a controller does, and records their names.
async fn watch(client: kube::Client, seen: Arc<Mutex<BTreeSet<String>>>) {
    let kind = GroupVersionKind::gvk("wardle.example.com", "v1", "Flunder");
    let resource = ApiResource::from_gvk_with_plural(&kind, "flunders");
    let api = Api::<DynamicObject>::namespaced_with(client, "default", &resource);
    let changes = watcher(api, watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes.touched_objects());
    while let Some(change) = changes.next().await {
        if let Ok(object) = change {
            seen.lock().unwrap().insert(object.name_any());
        }
    }
}

async fn count(server: &TestServer) -> u64 {
    counted(&until(&server.raw(), &format!("{FLUNDERS}?limit=1"), |list| list["kind"] == "FlunderList").await)
}

/// The number of objects, from a chunk with one object.
fn counted(list: &Value) -> u64 {
    let items = list["items"].as_array().map_or(0, Vec::len) as u64;
    items + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0)
}
