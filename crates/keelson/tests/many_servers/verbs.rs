//! Tests of the responses of every verb while the store is unavailable. The cache answers the reads that it can, the
//! others fail before their timeout, and nothing is partially done.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::engines::Engine;
use crate::{CONFIG_MAPS, STORED, config_map, items, name, next_of, revision, until};

/// A server without its store, its state before the outage, and its client.
struct Outage {
    cluster: Cluster,
    raw: Raw,
    /// The revision of a list before the outage.
    known: u64,
    /// The token after the first chunk of a list before the outage.
    token: String,
}

const OBJECTS: u64 = 8;

impl Outage {
    async fn begin(fault: Fault) -> Self {
        let cluster = Cluster::start(Engine::memory()).await;
        let raw = cluster.raw(0);
        for number in 0..OBJECTS {
            raw.post(CONFIG_MAPS, &config_map(&format!("known-{number}"), number)).await.expect(201);
        }
        let chunk = raw.get(format!("{CONFIG_MAPS}?limit=3")).await.expect(200).json();
        let token = chunk["metadata"]["continue"].as_str().unwrap().to_owned();
        cluster.servers[0].way.set(fault);
        Self { raw, known: revision(&chunk), token, cluster }
    }

    async fn get(&self, query: &str) -> Answer {
        self.raw.get(format!("{CONFIG_MAPS}{query}")).await
    }
}

#[track_caller]
fn check_away(answer: &Answer) {
    let status = answer.json();
    assert_eq!((answer.status, status["reason"].as_str()), (503, Some("ServiceUnavailable")), "{status}");
    assert_eq!(answer.header("retry-after"), "1");
    let text = status["message"].as_str().unwrap();
    assert!(text.contains("please try again later"), "{text}");
    assert!(!text.contains("broken on purpose"), "what the engine says is the operator's");
}

/// The error has no Retry-After: a client would repeat the request automatically, and could write twice.
#[track_caller]
fn check_unknown(answer: &Answer) {
    let status = answer.json();
    assert_eq!((answer.status, status["reason"].as_str()), (504, Some("Timeout")), "{status}");
    assert_eq!((answer.header("retry-after"), &status["details"]["retryAfterSeconds"]), ("", &Value::Null), "{status}");
}

/// Checks that the cache answers reads that allow stale data, in every form.
async fn check_known_reads(outage: &Outage) {
    let Outage { known, token, .. } = outage;
    let exact = format!("resourceVersion={known}&resourceVersionMatch=Exact");
    for query in [
        "?resourceVersion=0".to_owned(),
        format!("?resourceVersion={known}"),
        format!("?resourceVersion={known}&resourceVersionMatch=NotOlderThan"),
        format!("?{exact}"),
        "?resourceVersion=0&labelSelector=a%21%3Db".to_owned(),
    ] {
        let list = outage.get(&query).await.expect(200).json();
        let ours = items(&list).iter().filter(|object| name(object).starts_with("known-")).count();
        assert_eq!(ours as u64, OBJECTS, "{query}");
    }
    let rest = outage.get(&format!("?limit=500&continue={token}")).await.expect(200).json();
    assert_eq!(revision(&rest), *known);
    assert_eq!(outage.get(&format!("?{exact}&limit=3")).await.expect(200).json()["items"].as_array().unwrap().len(), 3);
    let one = outage.get("/known-0?resourceVersion=0").await.expect(200).json();
    assert_eq!(outage.get(&format!("/known-0?resourceVersion={known}")).await.expect(200).json(), one);
    outage.get("/missing?resourceVersion=0").await.expect(404);
    for path in ["/api", "/apis", "/api/v1", "/version", "/openapi/v3", "/livez", "/metrics"] {
        outage.raw.get(path).await.expect(200);
    }
}

/// Checks that consistent reads and writes get 503.
async fn check_others_are_sent_away(outage: &Outage) {
    let raw = &outage.raw;
    for query in [
        "",
        "/known-0",
        "?limit=3",
        "?labelSelector=a",
        "?watch=1",
        "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    ] {
        check_away(&outage.get(query).await);
    }
    let changed = config_map("known-0", 99);
    let path = format!("{CONFIG_MAPS}/known-0");
    check_away(&raw.post(CONFIG_MAPS, &config_map("new", 0)).await);
    check_away(&raw.put(&path, &changed).await);
    check_away(&raw.patch(&path, "application/merge-patch+json", &changed).await);
    check_away(&raw.delete(&path).await);
    check_away(&raw.delete(CONFIG_MAPS).await);
}

async fn check_unready(outage: &Outage, check: &str) {
    let broken = async || {
        let answer = outage.raw.get("/readyz?verbose").await;
        answer.status == 500 && answer.text().contains(&format!("[-]{check} failed"))
    };
    until(check, broken).await;
}

/// Checks that everything works as before the outage, and that nothing was written.
async fn check_recovered(outage: &Outage) {
    outage.cluster.set(Fault::None);
    outage.cluster.ready().await;
    let list = outage.get("").await.expect(200).json();
    assert_eq!(items(&list).iter().filter(|object| name(object).starts_with("known-")).count() as u64, OBJECTS);
    assert!(items(&list).iter().all(|object| name(object) != "new" && object["data"]["number"] != json!("99")));
    outage.raw.post(CONFIG_MAPS, &config_map("after", 0)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_reads_continue_while_the_store_refuses_requests() {
    let outage = Outage::begin(Fault::Error).await;
    let mut watch = outage.raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", outage.known)).stream().await;
    assert_eq!(watch.status, 200);
    check_known_reads(&outage).await;
    check_others_are_sent_away(&outage).await;
    check_unready(&outage, "etcd").await;
    check_unready(&outage, "informer-sync").await;
    // A load balancer that excludes the store's check keeps sending requests, which the cache answers.
    let without_store = outage.raw.get("/readyz?exclude=store").await;
    assert_eq!((without_store.status, without_store.text().as_str()), (200, "ok"));
    let why = outage.raw.get("/readyz/store").await.expect(500).text();
    assert!(why.contains("broken on purpose"), "who may ask for one check reads what is wrong: {why}");
    check_recovered(&outage).await;
    assert_eq!(next_of(&mut watch, "after").await["type"], "ADDED", "the watch has waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_reads_continue_while_the_store_hangs() {
    let outage = Outage::begin(Fault::Hang).await;
    check_known_reads(&outage).await;
    for query in ["", "/known-0", "?limit=3", "?watch=1"] {
        check_away(&outage.get(query).await);
    }
    // If the store has received a write, its outcome is unknown until the store answers.
    let created = outage.raw.post(format!("{CONFIG_MAPS}?timeout=1s"), &config_map("hung", 0)).await.expect(504).json();
    assert_eq!(created["reason"], "Timeout");
    let changed = outage.raw.put(format!("{CONFIG_MAPS}/known-0"), &config_map("known-0", 99)).await;
    check_away(&changed);
    check_unready(&outage, "etcd").await;
    check_recovered(&outage).await;
}

/// Kubernetes clients repeat a request automatically if the error has Retry-After, up to ten times. With a wait of ten
/// seconds each, that would take minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waited_long_gets_no_retry_after() {
    let way = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::builder().shared_store(Arc::new(way.clone()));
    let server = server.configure(|config| config.registry.store_wait = Duration::from_millis(8100)).start().await;
    let raw = server.raw();
    way.set(Fault::Hang);
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/none")] {
        let answer = raw.get(path).await;
        let status = answer.json();
        assert_eq!((answer.status, status["reason"].as_str()), (503, Some("ServiceUnavailable")), "{status}");
        assert_eq!((answer.header("retry-after"), &status["details"]["retryAfterSeconds"]), ("", &Value::Null));
    }
    way.set(Fault::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_tail_makes_fresh_reads_fail_and_readiness_report_it() {
    let outage = Outage::begin(Fault::None).await;
    outage.cluster.servers[0].way.set_tails(Fault::Hang);
    outage.cluster.raw(1).post(CONFIG_MAPS, &config_map("unseen", 0)).await.expect(201);
    check_known_reads(&outage).await;
    check_away(&outage.get("").await);
    check_away(&outage.get("/known-0").await);
    let newest = outage.cluster.store.current_revision().await.unwrap().get();
    let late = outage.get(&format!("?resourceVersion={newest}")).await.expect(504).json();
    let text = late["message"].as_str().unwrap();
    assert!(text.starts_with(&format!("Timeout: Too large resource version: {newest}, current: ")), "{text}");
    let fresh = outage.cluster.raw(1).get(CONFIG_MAPS).await.expect(200).json();
    assert!(items(&fresh).iter().any(|object| name(object) == "unseen"));
    check_unready(&outage, "informer-sync").await;
    let answer = outage.raw.get("/readyz?verbose").await.text();
    assert!(answer.contains("[+]etcd ok"), "{answer}");
    outage.raw.delete(format!("{CONFIG_MAPS}/unseen")).await.expect(503);
    check_recovered(&outage).await;
}

/// The connection to the store breaks after the write. The client must not get an error that says that the write
/// failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_a_lost_store_response_is_complete() {
    let cluster = Cluster::start(Engine::memory()).await;
    let (raw, other) = (cluster.raw(0), cluster.raw(1));
    cluster.servers[0].way.lose_answers(STORED, 1);
    check_unknown(&raw.post(CONFIG_MAPS, &config_map("a", 1)).await);
    let created = other.get(format!("{CONFIG_MAPS}/a")).await.expect(200).json();
    assert_eq!(created["data"]["number"], "1");
    raw.post(CONFIG_MAPS, &config_map("a", 1)).await.expect(409);
    cluster.servers[0].way.lose_answers(STORED, 1);
    let path = format!("{CONFIG_MAPS}/a");
    check_unknown(&raw.put(&path, &config_map("a", 2)).await);
    assert_eq!(other.get(&path).await.expect(200).json()["data"]["number"], "2");
    cluster.servers[0].way.lose_answers(STORED, 1);
    check_unknown(&raw.delete(&path).await);
    other.get(&path).await.expect(404);
    raw.get(&path).await.expect(404);
}

/// The cache of the other server is behind. A miss there is no proof that a class does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_priority_class_that_another_server_has_just_made_is_known() {
    let cluster = Cluster::start(Engine::memory()).await;
    let (here, there) = (cluster.raw(0), cluster.raw(1));
    cluster.servers[1].way.set_tails(Fault::Slow(Duration::from_millis(200)));
    for number in 1..=5 {
        let name = format!("class-{number}");
        let class = json!({"metadata": {"name": name}, "value": number});
        here.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
        let spec = json!({"priorityClassName": name, "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let made = there.post("/api/v1/namespaces/default/pods", &pod).await.expect(201).json();
        assert_eq!(made["spec"]["priority"], number);
    }
    let spec = json!({"priorityClassName": "none", "containers": [{"name": "c", "image": "i"}]});
    let refused =
        there.post("/api/v1/namespaces/default/pods", &json!({"metadata": {"name": "x"}, "spec": spec})).await;
    let message = refused.expect(403).json()["message"].clone();
    assert!(message.as_str().unwrap().ends_with("no PriorityClass with name none was found"), "{message}");
}
