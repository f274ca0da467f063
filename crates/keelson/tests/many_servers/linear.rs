//! Tests that reads and writes through any server are linearizable: invariants 15 and 19.
//!
//! Clients of three servers create, change, delete, read and list a few objects, while the servers' connections to the
//! store are slowed, cut and repaired. Some order of the calls must explain each object's recorded history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keelson_meta::Random as _;
use keelson_meta::random::SeededRandom;
use keelson_storage::faulty::Fault;
use keelson_testkit::Raw;
use keelson_testkit::linear::{Content, Recorder, Step};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SERVERS};
use crate::engines::{Engine, on_every_engine};
use crate::{CONFIG_MAPS, STORED, items, name, revision};

const CLIENTS: usize = 9;
const CALLS: usize = 120;
const KEYS: u64 = 5;

on_every_engine!(inv15_inv19_concurrent_calls_through_three_servers_are_linearizable);

struct Shared {
    recorder: Recorder,
    contents: AtomicU64,
    /// The newest revision acknowledged to a client.
    acknowledged: AtomicU64,
}

struct Client {
    raw: Raw,
    shared: Arc<Shared>,
    random: SeededRandom,
    /// The last state of each object that the client read.
    known: BTreeMap<String, Value>,
}

fn content(object: &Value) -> Content {
    object["data"]["content"].as_str().unwrap().parse().unwrap()
}

impl Client {
    async fn run(mut self) {
        for _ in 0..CALLS {
            let key = format!("object-{}", self.random.u64() % KEYS);
            match self.random.u64() % 10 {
                0..2 => self.create(&key).await,
                2..5 => self.update(&key).await,
                5 => self.delete(&key).await,
                6 => self.list().await,
                _ => self.read(&key).await,
            }
        }
    }

    fn fresh(&self) -> Content {
        self.shared.contents.fetch_add(1, Ordering::SeqCst)
    }

    fn begin(&self) -> u64 {
        self.shared.recorder.now()
    }

    fn end(&self, key: &str, begun: u64, step: Step) {
        self.shared.recorder.record(key, begun, step);
    }

    fn acknowledge(&mut self, key: &str, object: Value) {
        self.shared.acknowledged.fetch_max(revision(&object), Ordering::SeqCst);
        self.known.insert(key.to_owned(), object);
    }

    async fn create(&mut self, key: &str) {
        let content = self.fresh();
        let object = json!({"metadata": {"name": key}, "data": {"content": content.to_string()}});
        let begun = self.begin();
        let answer = self.raw.post(CONFIG_MAPS, &object).await;
        let step = match answer.status {
            201 => Step::Created(content),
            409 => Step::Exists,
            _ => Step::MaybeCreated(content),
        };
        self.end(key, begun, step);
        if answer.status == 201 {
            self.acknowledge(key, answer.json());
        }
    }

    /// Replaces the object with a change of its last read state, if the client has read it.
    async fn update(&mut self, key: &str) {
        let Some(known) = self.known.get(key) else { return self.read(key).await };
        let (expected, fresh) = (content(known), self.fresh());
        let mut object = known.clone();
        object["data"]["content"] = json!(fresh.to_string());
        let begun = self.begin();
        let answer = self.raw.put(format!("{CONFIG_MAPS}/{key}"), &object).await;
        let step = match answer.status {
            200 => Step::Updated { expected, content: fresh },
            409 => Step::Conflict { expected },
            404 => Step::Missing,
            _ => Step::MaybeUpdated { expected, content: fresh },
        };
        self.end(key, begun, step);
        match answer.status {
            200 => self.acknowledge(key, answer.json()),
            _ => drop(self.known.remove(key)),
        }
    }

    async fn delete(&mut self, key: &str) {
        let begun = self.begin();
        let answer = self.raw.delete(format!("{CONFIG_MAPS}/{key}")).await;
        let step = match answer.status {
            200 => Step::Deleted,
            404 => Step::Missing,
            _ => Step::MaybeDeleted,
        };
        self.end(key, begun, step);
    }

    async fn read(&mut self, key: &str) {
        let begun = self.begin();
        let answer = self.raw.get(format!("{CONFIG_MAPS}/{key}")).await;
        match answer.status {
            200 => {
                let object = answer.json();
                self.end(key, begun, Step::Found(content(&object)));
                self.known.insert(key.to_owned(), object);
            }
            404 => self.end(key, begun, Step::Missing),
            _ => drop(answer.expect(503)),
        }
    }

    async fn list(&mut self) {
        let acknowledged = self.shared.acknowledged.load(Ordering::SeqCst);
        let begun = self.begin();
        let answer = self.raw.get(CONFIG_MAPS).await;
        let ended = self.begin();
        if answer.status == 503 {
            return;
        }
        let list = answer.expect(200).json();
        assert!(revision(&list) >= acknowledged, "a list sees what was acknowledged before it");
        let found: BTreeMap<&str, Content> = items(&list)
            .iter()
            .filter(|object| name(object).starts_with("object-"))
            .map(|o| (name(o), content(o)))
            .collect();
        for key in (0..KEYS).map(|number| format!("object-{number}")) {
            let step = found.get(key.as_str()).map_or(Step::Missing, |content| Step::Found(*content));
            self.shared.recorder.record_at(&key, begun, ended, step);
        }
    }
}

/// The checker detects a read of an old state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_may_be_old_are_not_linearizable() {
    let cluster = Cluster::start(Engine::memory()).await;
    cluster.servers[1].way.set_tails(Fault::Hang);
    let (recorder, key) = (Recorder::default(), "object-0");
    let begun = recorder.now();
    let object = json!({"metadata": {"name": key}, "data": {"content": "1"}});
    cluster.raw(0).post(CONFIG_MAPS, &object).await.expect(201);
    recorder.record(key, begun, Step::Created(1));
    assert_eq!(recorder.check(), Ok(()));
    let begun = recorder.now();
    cluster.raw(1).get(format!("{CONFIG_MAPS}/{key}?resourceVersion=0")).await.expect(404);
    recorder.record(key, begun, Step::Missing);
    assert_eq!(recorder.check().unwrap_err().explained, 1);
}

/// Slows, cuts and repairs the servers' connections to the store, one at a time.
async fn disturb(cluster: &Cluster, random: SeededRandom, done: &AtomicBool) {
    let short = || Duration::from_millis(1 + random.u64() % 60);
    while !done.load(Ordering::SeqCst) {
        let way = &cluster.servers[random.u64() as usize % SERVERS].way;
        match random.u64() % 6 {
            0 => way.set_tails(Fault::Slow(short())),
            1 => way.set_tails(Fault::Error),
            2 => way.set_tails(Fault::Hang),
            3 => way.set_calls(Fault::Slow(short() / 4)),
            4 => way.lose_answers(STORED, 1),
            _ => way.set_calls(Fault::Error),
        }
        tokio::time::sleep(short()).await;
        way.set(Fault::None);
        tokio::time::sleep(short()).await;
    }
}

async fn inv15_inv19_concurrent_calls_through_three_servers_are_linearizable(engine: Engine) {
    let cluster = Arc::new(Cluster::start(engine).await);
    let shared = Arc::new(Shared {
        recorder: Recorder::default(),
        contents: AtomicU64::new(1),
        acknowledged: AtomicU64::new(0),
    });
    let done = Arc::new(AtomicBool::new(false));
    let disturbed = tokio::spawn({
        let (cluster, done) = (cluster.clone(), done.clone());
        async move { disturb(&cluster, SeededRandom::new(11), &done).await }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (raw, shared) = (cluster.raw(number), shared.clone());
            let random = SeededRandom::new(number as u64 + 1);
            tokio::spawn(Client { raw, shared, random, known: BTreeMap::new() }.run())
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    disturbed.await.unwrap();
    assert!(shared.recorder.len() > CLIENTS * CALLS / 2, "{} calls were recorded", shared.recorder.len());
    if let Err(broken) = shared.recorder.check() {
        panic!("no order explains the life of {}: {:#?}", broken.key, broken);
    }
}
