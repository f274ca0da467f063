//! Tests of lost responses of the store: a client gets the real outcome, or an error that it does not retry
//! automatically.
//!
//! A retry of a write that has happened would execute it twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use keelson_server::Switches;
use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_testkit::{Answer, LossyWay, Raw, TestServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::engines::{Engine, on_engine};
use crate::{CONFIG_MAPS, config_map, until};

on_engine!(
    postgres,
    mortal_postgres: one_create_makes_one_job_whatever_answer_is_lost,
    an_outcome_that_can_not_be_known_is_told_so,
    what_another_server_wrote_is_not_taken_for_a_lost_write,
    an_answer_comes_in_time_whatever_is_lost,
    a_server_that_is_stopped_while_it_registers_leaves_no_lease
);
on_engine!(
    etcd,
    etcd: one_create_makes_one_job_whatever_answer_is_lost,
    an_outcome_that_can_not_be_known_is_told_so,
    what_another_server_wrote_is_not_taken_for_a_lost_write,
    an_answer_comes_in_time_whatever_is_lost,
    a_server_that_is_stopped_while_it_registers_leaves_no_lease
);

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const STORED_JOBS: &str = "/registry/jobs/default/";
/// The wait from which on a 503 for an unavailable store has no Retry-After.
const LONG_WAIT: Duration = Duration::from_secs(8);
/// The image of the jobs. Only the transaction that creates a job contains it; reads of its key contain its name.
const IMAGE: &str = "lost-on-its-way";

/// A server whose connection to the store loses responses, and the store itself.
struct Setting {
    store: Arc<dyn Store>,
    way: LossyWay,
    server: TestServer,
}

impl Setting {
    async fn new(engine: &Engine) -> Self {
        let store = engine.open().await;
        let way = LossyWay::to(engine.port().await);
        let builder = TestServer::builder().shared_store(engine.open_by(way.port()).await);
        // The first server on a store runs the controllers.
        let controllers = Switches::parse(["resourcequota-controller"]).unwrap();
        let server = builder.configure(|config| config.controllers = controllers).start().await;
        Self { store, way, server }
    }

    async fn stored(&self, prefix: &str) -> Vec<String> {
        let (from, to) = (StoreKey::new(prefix), StoreKey::prefix_end(prefix));
        let page = self.store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
        page.entries.iter().map(|entry| entry.key.as_str()[prefix.len()..].to_owned()).collect()
    }
}

/// The body of a job with this image.
fn job(metadata: &serde_json::Value, image: &str) -> serde_json::Value {
    let container = json!({"name": "c", "image": image});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"metadata": metadata, "spec": {"template": template}})
}

/// Creates a job as client-go does: after a response with Retry-After it repeats the request, at most ten times.
async fn create(raw: Raw) -> Answer {
    let job = job(&json!({"generateName": "once-"}), IMAGE);
    let mut answer = raw.post(JOBS, &job).await;
    for _ in 0..10 {
        if answer.header("retry-after").is_empty() {
            break;
        }
        answer = raw.post(JOBS, &job).await;
    }
    answer
}

/// Starts the create of a job whose response from the store is lost, and waits until the job is stored.
async fn stored_without_an_answer(setting: &Setting, jobs: usize) -> JoinHandle<Answer> {
    setting.way.eat_answer_to(IMAGE);
    let creating = tokio::spawn(create(setting.server.raw()));
    until("the job is stored", || async { setting.stored(STORED_JOBS).await.len() >= jobs }).await;
    creating
}

async fn one_create_makes_one_job_whatever_answer_is_lost(engine: Engine) {
    let setting = Setting::new(&engine).await;
    for jobs in 1..=3 {
        let creating = stored_without_an_answer(&setting, jobs).await;
        setting.way.mend();
        let created = creating.await.unwrap().expect(201).json();
        let stored = setting.stored(STORED_JOBS).await;
        assert_eq!(stored.len(), jobs, "{stored:?}");
        let name = created["metadata"]["name"].as_str().unwrap();
        assert!(stored.iter().any(|stored| stored == name), "{name} of {stored:?}");
        // The response has the revision of the write.
        let found = setting.server.raw().get(format!("{JOBS}/{name}")).await.expect(200).json();
        assert_eq!(found["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    }
    // The outcome of an update is determined too. Of two updates with one resourceVersion, one succeeds.
    let raw = setting.server.raw();
    let path = format!("{CONFIG_MAPS}/lost");
    let mut map = raw.post(CONFIG_MAPS, &config_map("lost", 1)).await.expect(201).json();
    map["data"]["number"] = "the change".into();
    setting.way.eat_answer_to("the change");
    let changing = tokio::spawn({
        let (raw, path, map) = (setting.server.raw(), path.clone(), map.clone());
        async move { raw.put(path, &map).await }
    });
    let key = StoreKey::new("/registry/configmaps/default/lost");
    let before = map["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let revision = || async { setting.store.get(&key).await.unwrap().unwrap().revision.to_string() };
    until("the change is stored", || async { revision().await != before }).await;
    setting.way.mend();
    let changed = changing.await.unwrap().expect(200).json();
    assert_eq!(changed["metadata"]["resourceVersion"], revision().await.as_str());
    raw.put(&path, &map).await.expect(409);
    // A patch that would take effect twice if repeated: it adds to a list.
    let before = revision().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "lost-owner", "uid": "a"});
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner]}]);
    setting.way.eat_answer_to("lost-owner");
    let patching = tokio::spawn({
        let (raw, path) = (setting.server.raw(), path.clone());
        async move { raw.patch(path, "application/json-patch+json", &patch).await }
    });
    until("the patch is stored", || async { revision().await != before }).await;
    setting.way.mend();
    let patched = patching.await.unwrap().expect(200).json();
    assert_eq!(patched["metadata"]["resourceVersion"], revision().await.as_str());
}

/// Both servers charge the same quota, and give it the same state.
async fn what_another_server_wrote_is_not_taken_for_a_lost_write(engine: Engine) {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/q";
    let setting = Setting::new(&engine).await;
    let second = TestServer::builder().shared_store(engine.open().await).configure(|config| {
        config.server_id = "second".to_owned();
        config.allow_other_keys = true;
    });
    let second = second.start().await;
    let (raw, other) = (setting.server.raw(), second.raw());
    let secret = |name: &str| json!({ "metadata": { "name": name } });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/secrets": "100" } } });
    other.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    let used =
        |raw: &Raw| raw.get(QUOTA).into_future().map(|answer| answer.json()["status"]["used"]["count/secrets"].clone());
    until("the quota is counted", || async { used(&other).await == "0" }).await;
    other.post(SECRETS, &secret("first")).await.expect(201);
    until("the first one is charged", || async { used(&raw).await == "1" }).await;
    setting.way.eat("second-one");
    let creating = tokio::spawn(raw.post(SECRETS, &secret("second-one")).into_future());
    until("the question is lost", || async { setting.way.has_eaten() }).await;
    other.post(SECRETS, &secret("third")).await.expect(201);
    let told = creating.await.unwrap().status;
    setting.way.mend();
    let is_there = other.get(format!("{SECRETS}/second-one")).await.status;
    assert!(matches!((told, is_there), (201, 200) | (504, 200 | 404)), "told {told}, then {is_there}");
}

async fn an_outcome_that_can_not_be_known_is_told_so(engine: Engine) {
    let setting = Setting::new(&engine).await;
    let creating = stored_without_an_answer(&setting, 1).await;
    setting.way.close();
    let answer = creating.await.unwrap().expect(504);
    let status = answer.json();
    assert_eq!(status["reason"], "Timeout", "{status}");
    assert_eq!(status["details"]["retryAfterSeconds"], serde_json::Value::Null, "{status}");
    // The next write cannot have happened, since even the connection failed.
    let other = job(&json!({"name": "other"}), "another");
    let sent = Instant::now();
    let refused = setting.server.raw().post(JOBS, &other).await;
    let waited = sent.elapsed();
    match (refused.status, refused.header("retry-after")) {
        (503, "1") | (504, "") => {}
        // A response to a request that has waited long has no Retry-After, so that clients do not wait again
        // automatically.
        (503, "") if waited >= LONG_WAIT => {}
        told => panic!("{told:?} after {waited:?}: {}", refused.text()),
    }
    setting.way.mend();
    assert_eq!(setting.stored(STORED_JOBS).await.len(), 1);
}

/// Determining the outcome of a write takes time. It may not exceed the timeout of the request.
async fn an_answer_comes_in_time_whatever_is_lost(engine: Engine) {
    let setting = Setting::new(&engine).await;
    setting.way.eat_answer_to("in-time");
    let started = Instant::now();
    let status = setting.server.raw().post(format!("{CONFIG_MAPS}?timeout=2s"), &config_map("in-time", 1)).await;
    let (took, status) = (started.elapsed(), status.expect(504).json());
    assert_eq!(status["reason"], "Timeout", "{status}");
    assert!(Duration::from_secs(2) <= took && took < Duration::from_secs(5), "{took:?}");
    setting.way.mend();
}

/// A server stops while the response to its registration is lost. It removes the stored lease, which would otherwise
/// remain for an hour.
async fn a_server_that_is_stopped_while_it_registers_leaves_no_lease(engine: Engine) {
    let store = engine.open().await;
    let way = LossyWay::to(engine.port().await);
    let data = TempDir::new().unwrap();
    let lease = StoreKey::new("/registry/leases/kube-system/late");
    let is_stored = async || store.get(&lease).await.unwrap().is_some();
    way.eat_answer_to("kube-system/late");
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
    command.args([
        "serve",
        "--bind",
        "127.0.0.1:0",
        "--server-id",
        "late",
        "--store",
        &engine.url_by(way.port()).await,
    ]);
    let mut server = command.arg("--data-dir").arg(data.path()).kill_on_drop(true).spawn().unwrap();
    until("the lease is stored", async || is_stored().await).await;
    let pid = server.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    way.mend();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.wait()).await.expect("it ends").unwrap();
    assert!(ended.success(), "it ends in order: {ended}");
    assert!(!is_stored().await, "its lease goes with it");
}
