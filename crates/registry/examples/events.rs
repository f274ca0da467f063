//! Measures the CPU time of an event in a server's cache: `cargo run --release -p keelson-registry --example events
//! [PODS [ROUNDS]]`.
//!
//! Pods of 4.9 KB in a collection of 100,000 are written to a store in memory. The cache follows it in batches of
//! several sizes, as a store with several writers delivers them. Prints microseconds an event, the least of some
//! rounds: decoding one of another server and one of its own, and inserting it into trees, index and history. Runs on
//! Linux, whose thread clock it reads.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement that ends at the first surprise")]

#[path = "../../bench/src/pods.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses the rest")]
mod pods;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keelson_cache::{Cache, CacheConfig, CollectionSpec};
use keelson_codec::{ParsedObject, json};
use keelson_meta::clock::SystemClock;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{Object, Revision};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{KeyValue, Store, StoreKey, Transaction, Write};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of events for each batch size in a round.
const EVENTS: usize = 6_400;
/// The default number of rounds.
const ROUNDS: usize = 5;
/// The number of objects decoded between two readings of the clock.
const READ_AT_ONCE: usize = 640;
const BATCHES: [usize; 3] = [1, 16, 64];
const PREFIX: &str = "/registry/pods/";

fn main() {
    let argument = |place| std::env::args().nth(place).and_then(|text| text.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(argument(1).unwrap_or(100_000), argument(2).unwrap_or(ROUNDS)));
}

async fn run(count: usize, rounds: usize) {
    let pods = StoredPods::new();
    // The cache follows `store`. No cache follows `idle`, so the time of its commits is not the time of the cache.
    let (store, idle) = (MemoryStore::new(), MemoryStore::new());
    for number in 0..count {
        let put = pods.put(number, "Running");
        commit(&idle, vec![put.clone()]).await;
        commit(&store, vec![put]).await;
    }
    // Writes before the start of the cache are not events.
    store.compact(store.current_revision().await.unwrap()).await.unwrap();
    let config = CacheConfig::new(Arc::new(SystemClock));
    let cache = Cache::start(Arc::new(store.clone()), vec![spec()], config).await.unwrap();
    assert_eq!(cache.collections()[0].len(), count);
    println!("{} bytes a pod, {count} pods", pods.value(0, "Running").len());
    println!("{:8}{:>12}{:>12}{:>12}{:>12}{:>12}", "batch", "read", "own", "create", "update", "delete");
    let mut next = count;
    for batch in BATCHES {
        let mut least = [f64::INFINITY; 5];
        for _ in 0..rounds {
            let round = measure(&store, &idle, &cache, &pods, next, count, batch).await;
            least.iter_mut().zip(round).for_each(|(least, cost)| *least = least.min(cost));
            next += EVENTS;
        }
        let [read, own, create, update, delete] = least;
        println!("{batch:<8}{read:>12.1}{own:>12.1}{create:>12.1}{update:>12.1}{delete:>12.1}");
    }
}

/// The costs of an event: decoding one of another server, decoding an own one, creating, updating and deleting. The
/// last three do not include decoding.
async fn measure(
    store: &MemoryStore,
    idle: &MemoryStore,
    cache: &Cache,
    pods: &StoredPods,
    next: usize,
    count: usize,
    batch: usize,
) -> [f64; 5] {
    let added: Vec<usize> = (next..next + EVENTS).collect();
    let there: Vec<usize> = (0..EVENTS).map(|n| (next + n * 7919) % count).collect();
    let [read, own] = [false, true].map(|own| read(cache, pods, &added, own));
    let mut row = [read, own, -read, -read, 0.0];
    let writes: [Vec<Write>; 3] = [
        added.iter().map(|number| pods.put(*number, "Running")).collect(),
        there.iter().map(|number| pods.put(*number, "Failed")).collect(),
        added.iter().map(|number| Write::Delete { key: pods.key(*number) }).collect(),
    ];
    for (cost, writes) in row[2..].iter_mut().zip(&writes) {
        let commits = follow(idle, None, writes, batch).await;
        *cost += follow(store, Some(cache), writes, batch).await - commits;
    }
    row
}

/// The time to decode a pod, which the server may have written itself, in microseconds.
fn read(cache: &Cache, pods: &StoredPods, numbers: &[usize], own: bool) -> f64 {
    let collection = &cache.collections()[0];
    let mut took = 0.0;
    // As many as may be announced at a time.
    for numbers in numbers.chunks(READ_AT_ONCE) {
        let objects: Vec<(StoreKey, ParsedObject)> =
            numbers.iter().map(|number| (pods.key(*number), pods.object(*number, "Running"))).collect();
        if own {
            objects.iter().for_each(|(key, object)| collection.announce(key.clone(), object.clone()));
        }
        let stored: Vec<KeyValue> = objects
            .into_iter()
            .map(|(key, object)| KeyValue::new(key, object.object().bytes(), Revision::new(1)))
            .collect();
        let began = cpu();
        for stored in &stored {
            black_box(collection.decode(stored).unwrap());
        }
        took += cpu() - began;
    }
    took / numbers.len() as f64
}

/// The time from the commit of a write until the cache has it, in microseconds.
async fn follow(store: &MemoryStore, cache: Option<&Cache>, writes: &[Write], batch: usize) -> f64 {
    let began = cpu();
    for writes in writes.chunks(batch) {
        let revision = commit(store, writes.to_vec()).await;
        if let Some(cache) = cache {
            cache.wait_for(revision, Duration::from_mins(1)).await.unwrap();
        }
    }
    (cpu() - began) / writes.len() as f64
}

/// The CPU time of the thread so far, in microseconds, without other users of the machine.
fn cpu() -> f64 {
    let run = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    run.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e3
}

async fn commit(store: &MemoryStore, writes: Vec<Write>) -> Revision {
    let committed = store.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
    *committed.revisions.last().unwrap()
}

/// Pods as the server declares them.
fn spec() -> CollectionSpec {
    keelson_builtin::collection_specs().into_iter().find(|spec| spec.prefix == PREFIX).unwrap()
}

/// The benchmark's pods as a store holds them.
struct StoredPods {
    pods: pods::Pods,
}

impl StoredPods {
    fn new() -> Self {
        let mut stored =
            Self { pods: pods::Pods::new(100_000, vec!["7c1b2a5e-4b1f-4f57-9c7d-3f1e5f0f6a21".to_owned()]) };
        let bare = stored.value(0, "Running").len();
        stored.pods.pad(bare);
        stored
    }

    fn key(&self, number: usize) -> StoreKey {
        let path = self.pods.path(number);
        let parts: Vec<&str> = path.split('/').collect();
        StoreKey::new(format!("{PREFIX}{}/{}", parts[4], parts[6]))
    }

    fn put(&self, number: usize, phase: &str) -> Write {
        Write::Put { key: self.key(number), value: self.value(number, phase), expires: None }
    }

    fn value(&self, number: usize, phase: &str) -> Bytes {
        self.object(number, phase).object().bytes()
    }

    fn object(&self, number: usize, phase: &str) -> ParsedObject {
        let mut pod = json::parse(&self.pods.body(number)).unwrap().value;
        let fields = ["metadata", "spec"].map(|part| (format!("f:{part}"), fields(&pod[part])));
        // As it is created.
        pod["status"] = json!({"phase": phase, "qosClass": "Burstable"});
        pod["spec"]["serviceAccount"] = json!("default");
        pod["metadata"]["uid"] = json!("0b5a3c0e-7d3c-4e56-8f0a-6f2b1c9d8e7f");
        pod["metadata"]["generation"] = json!(1);
        pod["metadata"]["creationTimestamp"] = json!("2026-01-02T03:04:05Z");
        pod["metadata"]["managedFields"] = json!([{
            "manager": "bench", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields.into_iter().collect::<Map>(),
        }]);
        ParsedObject::encode_with(&Object::from_value(pod).unwrap(), None)
    }
}

/// An owner of all fields of a value, about as the server records it.
fn fields(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(key, value)| (format!("f:{key}"), fields(value))).collect(),
        Value::Array(items) => items
            .iter()
            .filter_map(|item| Some((json!({"name": item.get("name")?}), item)))
            .map(|(key, item)| (format!("k:{key}"), fields(item)))
            .collect::<Map>()
            .into(),
        _ => json!({}),
    }
}
