//! A test with three thousand resources that a contributor adds to a running server, changes and removes.
//!
//! Clients use all of them, and some with every verb. Meanwhile others list, watch and write the built-in objects. In
//! the end the memory is as before. The memory is that of the whole process, so the test runs in a separate one.
#![allow(clippy::print_stdout, reason = "what is measured is printed and not asserted: a machine may be busy")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keelson_meta::{GroupResource, GroupVersionKind, Revision};
use keelson_registry::ResourceRegistration;
use keelson_resources::{Resource, SelectableField, ServedVersion, Subresource};
use keelson_schema::Schema;
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_tables::{CellType, CustomColumn, Printer};
use keelson_testkit::{Answer, Call, Raw, TestServer};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::AGGREGATED;

/// The number of resources that the contributor adds.
const RESOURCES: usize = 3_000;
/// Every verb is used with one resource of this number, and some verbs with each resource.
const ALL_VERBS: usize = 13;
/// The number of concurrent clients of the resources.
const CLIENTS: usize = 4;
/// The number of objects that the other clients keep, which their lists show.
const KEPT: usize = 20;
/// The pause of the other clients between two rounds, so that they do not use the whole machine.
const ROUND: Duration = Duration::from_millis(10);
/// The longest time for which a first write gets Retry-After: a server writes only versions that it has published, and
/// has thousands to publish.
const PUBLISHED: Duration = Duration::from_secs(300);
/// The environment variable that marks the separate process of the test.
const ALONE: &str = "KEELSON_TEST_ALONE";
/// The part of the resources' memory that may remain, as a divisor. Tables keep their capacity, and events of removed
/// storage versions are dropped by age.
const LEFT: usize = 5;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Plural names of built-in resources, and another name. Verbs once had special cases for the former.
fn plural(number: usize) -> &'static str {
    ["pods", "bindings", "services", "namespaces", "things"][number % 5]
}

fn group(number: usize) -> String {
    format!("g{number}.example.org")
}

/// Returns true if an update of a missing object of this resource creates it.
fn makes_on_update(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// Returns true if every verb is used with this resource: some of all names, from the first to the last.
fn is_used_fully(number: usize) -> bool {
    number.is_multiple_of(ALL_VERBS)
}

/// The path of a resource's collection in one of its versions.
fn objects(number: usize, version: &str) -> String {
    format!("/apis/{}/{version}/namespaces/default/{}", group(number), plural(number))
}

/// A resource with these versions and selectable fields. The first version is the storage version. Each version has a
/// column.
fn contribution(number: usize, versions: &[&str], fields: &[&str]) -> ResourceRegistration {
    let field = |path: &&str| SelectableField {
        name: (*path).to_owned().into(),
        paths: vec![(*path).to_owned().into()],
        absent: "".into(),
        versions: None,
    };
    let served = versions.iter().map(|name| ServedVersion::custom((*name).to_owned(), [Subresource::status()]));
    let resource = Resource {
        selectable_fields: fields.iter().map(field).collect(),
        create_on_update: makes_on_update(number),
        ..Resource::custom(&group(number), plural(number), "Thing", served.collect())
    };
    let mut contribution = ResourceRegistration::new(resource);
    for version in versions {
        let (name, path) = if *version == "v1" { ("Colour", ".spec.colour") } else { ("Phase", ".status.phase") };
        contribution =
            contribution.with_schema(version, &schema(number, version)).with_printer(version, &printer(name, path));
    }
    contribution
}

fn schema(number: usize, version: &str) -> Schema {
    let kind = GroupVersionKind { group: group(number), version: version.to_owned(), kind: "Thing".to_owned() };
    let text = json!({ "type": "string" });
    let document = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": { "colour": text } },
        "status": { "type": "object", "properties": { "phase": text } },
    } });
    Schema::structural(&kind, &serde_json::from_value(document).unwrap()).unwrap()
}

fn printer(name: &str, path: &str) -> Printer {
    let (name, path) = (name.to_owned(), path.to_owned());
    let (kind, format, description) = (CellType::String, String::new(), String::new());
    Printer::custom(vec![CustomColumn { name, kind, format, description, priority: 0, path }]).unwrap()
}

fn thing(number: usize, version: &str, name: &str, colour: &str) -> Value {
    json!({ "apiVersion": format!("{}/{version}", group(number)), "kind": "Thing",
        "metadata": { "name": name, "labels": { "later": (name != "a").to_string() } },
        "spec": { "colour": colour }, "status": { "phase": "mine" } })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Runs the function for every resource, with a few concurrent clients.
async fn with_each<F: Future<Output = ()> + Send + 'static>(server: &TestServer, work: fn(Arc<Raw>, usize) -> F) {
    let clients: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|client| {
            let raw = Arc::new(server.raw());
            tokio::spawn(async move {
                for number in (client..RESOURCES).step_by(CLIENTS) {
                    work(raw.clone(), number).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

/// The response to the first write in a version. It is repeated until the version is published.
async fn first_write(call: impl Fn() -> Call) -> Answer {
    let written = async {
        loop {
            let answer = call().await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PUBLISHED, written).await.expect("what is written is published in time")
}

async fn use_what_is_new(raw: Arc<Raw>, number: usize) {
    if is_used_fully(number) { use_every_verb(raw, number).await } else { use_a_little(raw, number).await }
}

/// Uses some verbs on a new resource. It leaves the same object as [`use_every_verb`].
async fn use_a_little(raw: Arc<Raw>, number: usize) {
    let all = objects(number, "v1");
    let one = format!("{all}/a");
    let made = first_write(|| raw.post(&*all, &thing(number, "v1", "a", "green"))).await.expect(201).json();
    match number % 4 {
        0 => {
            let mut next = made.clone();
            next["metadata"]["labels"]["size"] = json!("big");
            raw.put(&*one, &next).await.expect(200);
        }
        1 => {
            let labels = json!({ "metadata": { "labels": { "size": "big" } } });
            raw.patch(&*one, MERGE, &labels).await.expect(200);
        }
        2 => {
            let mut intent = thing(number, "v1", "a", "green");
            intent.as_object_mut().unwrap().remove("status");
            raw.patch(format!("{one}?fieldManager=one"), "application/apply-patch+yaml", &intent).await.expect(200);
        }
        _ => {
            raw.delete(&*one).await.expect(200);
            raw.post(&*all, &thing(number, "v1", "a", "green")).await.expect(201);
        }
    }
    raw.patch(format!("{one}/status"), MERGE, &json!({ "status": { "phase": "Ready" } })).await.expect(200);
    assert_eq!(names(&raw.get(all).await.expect(200).json()), ["a"]);
}

/// Uses every verb on a new resource. A watch gets each change, and the rules of the built-in kind with its name do not
/// apply.
async fn use_every_verb(raw: Arc<Raw>, number: usize) {
    let all = objects(number, "v1");
    let one = format!("{all}/a");
    let made = first_write(|| raw.post(&*all, &thing(number, "v1", "a", "red"))).await.expect(201).json();
    assert_eq!(made["status"], Value::Null, "a client does not state the status of a new object");
    assert_eq!((&made["metadata"]["generation"], &made["metadata"]["finalizers"]), (&json!(1), &Value::Null));
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw.get(format!("{all}?watch=1&resourceVersion={revision}")).stream().await;
    raw.post(&*all, &thing(number, "v1", "b", "blue")).await.expect(201);
    let mut next = raw.get(&*one).await.expect(200).json();
    assert_eq!(next, made);

    next["spec"]["colour"] = json!("green");
    let updated = raw.put(&*one, &next).await.expect(200).json();
    assert_eq!(updated["metadata"]["generation"], 2);
    raw.put(&*one, &next).await.expect(409);
    let labels = json!({ "metadata": { "labels": { "size": "big" } } });
    raw.patch(&*one, MERGE, &labels).await.expect(200);
    raw.patch(&*one, "application/strategic-merge-patch+json", &labels).await.expect(415);

    let applied = |colour: &str, query: &str| {
        let mut intent = thing(number, "v1", "d", colour);
        intent.as_object_mut().unwrap().remove("status");
        raw.patch(format!("{all}/d?{query}"), "application/apply-patch+yaml", &intent)
    };
    applied("white", "fieldManager=one").await.expect(201);
    applied("black", "fieldManager=two").await.expect(409);
    let taken = applied("black", "fieldManager=two&force=true").await.expect(200).json();
    assert_eq!((&taken["spec"]["colour"], &taken["metadata"]["generation"]), (&json!("black"), &json!(2)));

    let phase = json!({ "spec": { "colour": "no" }, "status": { "phase": "Ready" } });
    raw.patch(format!("{one}/status"), MERGE, &phase).await.expect(200);
    let shown = raw.get(format!("{one}/status")).await.expect(200).json();
    assert_eq!((&shown["spec"]["colour"], &shown["status"]["phase"]), (&json!("green"), &json!("Ready")));

    assert_eq!(names(&raw.get(&*all).await.expect(200).json()), ["a", "b", "d"]);
    assert_eq!(names(&raw.get(format!("{all}?labelSelector=size%3Dbig")).await.expect(200).json()), ["a"]);
    let chunk = raw.get(format!("{all}?limit=2")).await.expect(200).json();
    let token = chunk["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&raw.get(format!("{all}?limit=2&continue={token}")).await.expect(200).json()), ["d"]);
    raw.get(format!("{all}?fieldSelector=spec.colour%3Dgreen")).await.expect(400);

    let is_made = makes_on_update(number);
    raw.put(format!("{all}/e"), &thing(number, "v1", "e", "pink")).await.expect(if is_made { 201 } else { 404 });
    raw.delete(format!("{all}/b")).await.expect(200);
    let deleted = raw.delete(format!("{all}?labelSelector=later%3Dtrue")).await.expect(200).json();
    assert_eq!(names(&deleted), if is_made { &["d", "e"][..] } else { &["d"] });

    let before =
        [("ADDED", "b"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("ADDED", "d"), ("MODIFIED", "d"), ("MODIFIED", "a")];
    let upserted = is_made.then_some(("ADDED", "e"));
    for (kind, name) in before.into_iter().chain(upserted).chain([("DELETED", "b")]) {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!(kind), &json!(name)), "{event}");
    }
    // A deletion of a collection deletes in any order.
    let mut gone = Vec::new();
    for _ in names(&deleted) {
        let event = watch.next_json().await.unwrap();
        assert_eq!(event["type"], "DELETED", "{event}");
        gone.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
    }
    gone.sort_unstable();
    assert_eq!(gone, names(&deleted));
}

/// The names of the columns, and the cells of the only row.
fn columns_and_cells(table: &Value) -> (Vec<&Value>, &Value) {
    let heads = table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    (heads, &table["rows"][0]["cells"])
}

/// Checks a resource after its change: another version, which is now the storage version, with columns and a selectable
/// field.
async fn use_what_changed(raw: Arc<Raw>, number: usize) {
    let shows = async |version: &str, head: &str, cell: &str| {
        let selected = format!("{}?fieldSelector=spec.colour%3Dgreen", objects(number, version));
        let table = raw.get(selected).header("accept", TABLE).await.expect(200).json();
        assert_eq!(columns_and_cells(&table), (vec![&json!("Name"), &json!(head)], &json!(["a", cell])));
    };
    shows("v2", "Phase", "Ready").await;
    if is_used_fully(number) {
        shows("v1", "Colour", "green").await;
        let none = raw.get(format!("{}?fieldSelector=spec.colour%3Dred", objects(number, "v2"))).await.expect(200);
        assert_eq!(names(&none.json()), Vec::<&str>::new());
        first_write(|| raw.post(objects(number, "v1"), &thing(number, "v1", "c", "red"))).await.expect(201);
    }
    let written = json!({ "spec": { "colour": "grey" } });
    first_write(|| raw.patch(format!("{}/a", objects(number, "v2")), MERGE, &written)).await.expect(200);
}

/// Checks that the earlier version is no longer served, and that later writes use the served one. Then deletes all
/// objects.
async fn use_what_is_left(raw: Arc<Raw>, number: usize) {
    let all = objects(number, "v2");
    let mut there = vec!["a"];
    if is_used_fully(number) {
        raw.get(objects(number, "v1")).await.expect(404);
        there.push("c");
    }
    let gone = raw.delete(all).await.expect(200).json();
    assert_eq!(names(&gone), there);
    for item in gone["items"].as_array().unwrap() {
        assert_eq!(item["apiVersion"], format!("{}/v2", group(number)));
    }
}

async fn find_nothing(raw: Arc<Raw>, number: usize) {
    if is_used_fully(number) {
        raw.get(objects(number, "v2")).await.expect(404);
    }
}

/// Creates, changes, lists and deletes objects of a built-in kind meanwhile, and checks that every list is exact.
/// Returns the number of creates, and the duration of each request.
async fn write_and_list(raw: Raw, stop: Arc<AtomicBool>) -> (usize, Vec<Duration>) {
    let named = |number: usize| format!("m{number:09}");
    let mut taken = Vec::new();
    for number in 0.. {
        let made = json!({ "metadata": { "name": named(number) } });
        let change = json!({ "data": { "number": number.to_string() } });
        let mut calls = vec![(raw.post(MAPS, &made), 201)];
        calls.push((raw.patch(format!("{MAPS}/{}", named(number)), MERGE, &change), 200));
        calls.extend(number.checked_sub(KEPT).map(|oldest| (raw.delete(format!("{MAPS}/{}", named(oldest))), 200)));
        for (call, code) in calls {
            let began = Instant::now();
            call.await.expect(code);
            taken.push(began.elapsed());
        }
        let began = Instant::now();
        let list = raw.get(MAPS).await.expect(200).json();
        taken.push(began.elapsed());
        let there: Vec<String> = (number.saturating_sub(KEPT - 1)..=number).map(named).collect();
        assert_eq!(names(&list), there, "no write of others is lost");
        if stop.load(Ordering::Relaxed) {
            return (number + 1, taken);
        }
        tokio::time::sleep(ROUND).await;
    }
    unreachable!("numbers do not end")
}

/// Watches these objects all the time, and checks that each change comes once and in order. The total is known only at
/// the end, so it receives the number then and compares it with the seen events.
async fn follow(raw: Raw, from: String, seen: Arc<AtomicU64>, done: tokio::sync::oneshot::Receiver<usize>) {
    let mut watch = raw.get(format!("{MAPS}?watch=1&resourceVersion={from}")).stream().await;
    let (mut added, mut changed, mut deleted, mut last) = (0, 0, 0, 0);
    let (mut done, mut expected) = (Some(done), None);
    while expected.is_none_or(|made| changed < made || deleted + KEPT < made) {
        let event = tokio::select! {
            event = watch.next_json() => event.expect("a watch of others goes on"),
            made = async { done.as_mut().expect("it is asked once").await }, if done.is_some() => {
                (done, expected) = (None, Some(made.unwrap()));
                continue;
            }
        };
        let metadata = &event["object"]["metadata"];
        let revision: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(revision > last, "in order, and none twice: {event}");
        last = revision;
        seen.store(last, Ordering::Relaxed);
        let count = match event["type"].as_str().unwrap() {
            "ADDED" => &mut added,
            "MODIFIED" => &mut changed,
            _ => &mut deleted,
        };
        assert_eq!(metadata["name"], format!("m{count:09}"), "none is left out: {event}");
        *count += 1;
    }
}

/// The number of the resources in the discovery document.
async fn discovered(raw: &Raw) -> usize {
    let document = raw.get("/apis").header("accept", AGGREGATED).await.expect(200).json();
    let ours = |group: &&Value| group["metadata"]["name"].as_str().unwrap().ends_with(".example.org");
    document["items"].as_array().unwrap().iter().filter(ours).count()
}

/// The allocated memory of the process without the history of events. Compacts the store.
async fn allocated(server: &TestServer, store: &MemoryStore, compacted: Revision) -> usize {
    store.compact(compacted).await.unwrap();
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    let history = usize::try_from(server.running().registry().cache().stats().history_bytes).unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap().saturating_sub(history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_resources_change_while_others_are_served() {
    if std::env::var_os(ALONE).is_some() {
        return come_change_and_go().await;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args([&name, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    let output = tokio::task::spawn_blocking(move || alone.output().unwrap()).await.unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn come_change_and_go() {
    let store = MemoryStore::new();
    let server = TestServer::builder().shared_store(Arc::new(store.clone())).start().await;
    let (raw, surfaces) = (server.raw(), server.running().registry().surfaces());
    let from = raw.get(MAPS).await.expect(200).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert_eq!(discovered(&raw).await, 0);
    let before = allocated(&server, &store, store.current_revision().await.unwrap()).await;
    let seen = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (made, of_made) = tokio::sync::oneshot::channel();
    let follower = tokio::spawn(follow(raw.clone(), from, seen.clone(), of_made));
    let writer = tokio::spawn(write_and_list(raw.clone(), stop.clone()));

    let put = async |what: &str, versions: &[&str], fields: &[&str]| {
        let all: Vec<ResourceRegistration> =
            (0..RESOURCES).map(|number| contribution(number, versions, fields)).collect();
        let began = Instant::now();
        surfaces.put(all).await.expect("they can be served");
        let served = began.elapsed();
        assert_eq!(discovered(&raw).await, RESOURCES);
        println!("{RESOURCES} resources {what} in {served:?}, discovered after {:?}", began.elapsed());
    };
    put("added", &["v1"], &[]).await;
    with_each(&server, use_what_is_new).await;

    let mut ending = raw.get(format!("{}?watch=1", objects(1, "v1"))).stream().await;
    assert_eq!(ending.next_json().await.unwrap()["object"]["metadata"]["name"], "a");
    put("changed", &["v2", "v1"], &["spec.colour"]).await;
    assert_eq!(ending.next_json().await, None, "a watch of what has changed ends");
    with_each(&server, use_what_changed).await;
    // A watch ends if events that it has not sent yet are compacted.
    let with_all = allocated(&server, &store, Revision::new(seen.load(Ordering::Relaxed))).await;

    put("without their first version", &["v2"], &["spec.colour"]).await;
    with_each(&server, use_what_is_left).await;
    let mut ending = raw.get(format!("{}?watch=1", objects(1, "v2"))).stream().await;
    let all: Vec<GroupResource> =
        (0..RESOURCES).map(|number| contribution(number, &["v2"], &[]).resource().group_resource()).collect();
    let began = Instant::now();
    surfaces.remove(&all).await;
    println!("{RESOURCES} resources removed in {:?}", began.elapsed());
    assert_eq!(ending.next_json().await, None, "a watch of what is removed ends");
    drop(ending);
    assert_eq!(discovered(&raw).await, 0);
    with_each(&server, find_nothing).await;

    stop.store(true, Ordering::Relaxed);
    let (number, mut taken) = writer.await.unwrap();
    made.send(number).unwrap();
    follower.await.unwrap();
    assert!(number > KEPT, "others went on meanwhile");
    taken.sort_unstable();
    let at = |percent: usize| taken[(taken.len() - 1) * percent / 100];
    println!("{} requests of others meanwhile: p50 {:?}, p99 {:?}, longest {:?}", taken.len(), at(50), at(99), at(100));
    memory_is_back(&server, &store, before, with_all).await;
}

/// Waits until the memory of the removed resources is freed. Connections of clients end a little later.
async fn memory_is_back(server: &TestServer, store: &MemoryStore, before: usize, with_all: usize) {
    let added = with_all - before;
    let began = Instant::now();
    loop {
        let newest = store.current_revision().await.unwrap();
        let left = allocated(server, store, newest).await.saturating_sub(before);
        println!("{} KB of {} KB are left", left >> 10, added >> 10);
        if left <= added / LEFT {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{left} bytes of {added} are not given back");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
