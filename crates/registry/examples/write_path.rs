//! Measures the CPU of a write, stage by stage and without HTTP: `cargo run --release -p keelson-registry --example
//! write_path`.
//!
//! Pods of 4.9 KB over a store in memory, one at a time on one thread. Prints the median of a write.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement that ends at the first surprise")]

#[path = "../../bench/src/pods.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses the rest")]
mod pods;

use std::sync::Arc;
use std::time::Instant;

use keelson_cache::{Cache, CacheConfig};
use keelson_codec::json;
use keelson_meta::Object;
use keelson_meta::clock::SystemClock;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, FieldValidation, PatchOptions, UpdateOptions};
use keelson_meta::random::SeededRandom;
use keelson_registry::{Caller, Patch, PatchKind, Registry, RegistryConfig, Target, Warnings, accept};
use keelson_storage::memory::MemoryStore;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of pods written in a round.
const PODS: usize = 2_000;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let only = std::env::args().nth(2).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(rounds, &only));
}

async fn run(rounds: usize, only: &str) {
    let registry = registry().await;
    let mut pods = pods::Pods::new(PODS, vec!["7c1b2a5e-4b1f-4f57-9c7d-3f1e5f0f6a21".to_owned()]);
    pods.pad(3_800);
    let writer = Caller::server().managing("bench");
    for namespace in pods::Pods::namespaces() {
        let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}});
        let object = Object::from_value(object).unwrap();
        registry
            .create(
                &keelson_builtin::surface().target("", "namespaces").unwrap(),
                object,
                &writer,
                &CreateOptions::default(),
            )
            .await
            .unwrap();
    }
    let target = |number: usize| target(&pods.path(number));
    let taken_in = |number: usize| {
        let parsed = json::parse(&pods.body(number)).unwrap();
        accept(&target(number), parsed.value, &parsed.duplicates, FieldValidation::Warn, &Warnings::default()).unwrap()
    };

    time("body", |number| drop(pods.body(number)));
    time("parse", |number| drop(json::parse(&pods.body(number)).unwrap()));
    time("take in", |number| drop(taken_in(number)));
    let mut clock = Clock::new();
    for number in 0..PODS {
        registry.create(&target(number), taken_in(number), &writer, &CreateOptions::default()).await.unwrap();
        clock.lap();
    }
    clock.print("create");
    for round in 0..rounds {
        if only.is_empty() || only == "update" {
            let mut clock = Clock::new();
            for number in 0..PODS {
                let target = target(number);
                let name = target.name.clone().unwrap();
                let options = UpdateOptions::default();
                registry.update(&target, &name, taken_in(number), &writer, &options).await.unwrap();
                clock.lap();
            }
            clock.print("update");
        }
        if only.is_empty() || only == "patch" {
            let mut clock = Clock::new();
            for number in 0..PODS {
                let document = json!({"metadata": {"labels": {"write": format!("p{round}")}}});
                patch(&registry, &target(number), PatchKind::Merge, document, &writer).await;
                clock.lap();
            }
            clock.print("patch");
        }
        if only.is_empty() || only == "apply" {
            let mut clock = Clock::new();
            for number in 0..PODS {
                apply(&registry, &target(number), json::parse(&pods.labelled(number, round)).unwrap().value).await;
                clock.lap();
            }
            clock.print("apply");
        }
    }
}

async fn patch(registry: &Registry, target: &Target, kind: PatchKind, document: Value, caller: &Caller) {
    let patch = Patch { kind, document, faults: Vec::new() };
    let name = target.name.clone().unwrap();
    registry.patch(target, &name, &patch, caller, &PatchOptions::default()).await.unwrap();
}

async fn apply(registry: &Registry, target: &Target, document: Value) {
    let applied = Patch { kind: PatchKind::Apply, document, faults: Vec::new() };
    let options = PatchOptions { force: Some(true), ..PatchOptions::default() };
    let name = target.name.clone().unwrap();
    let caller = Caller::server().managing("applier");
    registry.apply(target, &name, &applied, &caller, &options).await.unwrap();
}

fn time(what: &str, work: impl Fn(usize)) {
    let mut clock = Clock::new();
    for number in 0..PODS {
        work(number);
        clock.lap();
    }
    clock.print(what);
}

/// Times of single writes. Their median says what one costs also while others use the machine.
struct Clock {
    last: Instant,
    laps: Vec<u128>,
}

impl Clock {
    fn new() -> Self {
        Self { last: Instant::now(), laps: Vec::with_capacity(PODS) }
    }

    fn lap(&mut self) {
        let now = Instant::now();
        self.laps.push((now - self.last).as_nanos());
        self.last = now;
    }

    fn print(mut self, what: &str) {
        self.laps.sort_unstable();
        let at = |percent: usize| self.laps[self.laps.len() * percent / 100] as f64 / 1e3;
        println!("{what:10}{:8.1} us  (fastest tenth {:.1})", at(50), at(10));
    }
}

fn target(path: &str) -> Target {
    let parts: Vec<_> = path.split('/').collect();
    keelson_builtin::surface().target("", "pods").unwrap().in_namespace(Some(parts[4])).named(parts[6])
}

async fn registry() -> Arc<Registry> {
    let clock = Arc::new(SystemClock);
    let store = Arc::new(MemoryStore::new());
    let cache = Cache::start(store.clone(), keelson_builtin::collection_specs(), CacheConfig::new(clock.clone()))
        .await
        .unwrap();
    Arc::new(keelson_builtin::registry(store, cache, clock, Arc::new(SeededRandom::new(1)), RegistryConfig::default()))
}
