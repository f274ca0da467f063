//! Measures adding, changing and removing resources while a server runs, and the effect on requests.
//!
//! `cargo run --release -p keelson-registry --example surface [RESOURCES]` adds them (3,000 by default) at once and one
//! by one, while another task reads an object repeatedly, and prints time and memory of each.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it prints figures, and is of no use where something fails"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keelson_builtin::collection_specs;
use keelson_cache::{Cache, CacheConfig};
use keelson_meta::SystemClock;
use keelson_meta::options::GetOptions;
use keelson_meta::random::SeededRandom;
use keelson_registry::{Caller, Registry, RegistryConfig, ResourceRegistration};
use keelson_resources::{Resource, ServedVersion};
use keelson_storage::memory::MemoryStore;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of resources added one by one.
const SINGLE: usize = 200;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let resources = std::env::args().nth(1).map_or(3_000, |number| number.parse().unwrap());
    let server = server().await;
    println!("{} collections, {:.1} MB", server.cache().collections().len(), resident());
    let stop = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn(others(server.clone(), stop.clone()));

    let started = Instant::now();
    server.surfaces().put((0..resources).map(contribution).collect()).await.unwrap();
    print("added in one go", started.elapsed(), resources);
    println!("{} collections, {:.1} MB", server.cache().collections().len(), resident());

    let mut laps = Vec::new();
    for number in resources..resources + SINGLE {
        let started = Instant::now();
        server.surfaces().put(vec![contribution(number)]).await.unwrap();
        assert!(server.surface().lookup(&group(number), "v1", "things").is_some());
        laps.push(started.elapsed());
    }
    laps.sort_unstable();
    println!("added one by one: p50 {:?}, p99 {:?}", laps[SINGLE / 2], laps[SINGLE * 99 / 100]);

    let started = Instant::now();
    let all: Vec<_> = (0..resources + SINGLE).map(|number| resource(number).group_resource()).collect();
    server.surfaces().remove(&all).await;
    print("removed in one go", started.elapsed(), resources + SINGLE);
    println!("{} collections, {:.1} MB", server.cache().collections().len(), resident());

    stop.store(true, Ordering::Relaxed);
    let mut others = others.await.unwrap();
    others.sort_unstable();
    let at = |share: usize| others[(others.len() - 1) * share / 1000];
    println!("{} gets of others meanwhile: p50 {:?}, p99 {:?}, longest {:?}", others.len(), at(500), at(990), at(1000));
}

fn print(what: &str, taken: Duration, resources: usize) {
    println!("{what}: {taken:?}, {:?} each", taken / u32::try_from(resources).unwrap());
}

async fn others(server: Arc<Registry>, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut taken = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let target = server.surface().target("", "namespaces").unwrap();
        server.get(&target, "default", &Caller::server(), &GetOptions::default()).await.unwrap();
        taken.push(started.elapsed());
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    taken
}

async fn server() -> Arc<Registry> {
    let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SystemClock));
    let cache = Cache::start(store.clone(), collection_specs(), CacheConfig::new(clock.clone())).await.unwrap();
    let registry =
        keelson_builtin::registry(store, cache, clock, Arc::new(SeededRandom::new(1)), RegistryConfig::default());
    registry.ensure_system_namespaces().await.unwrap();
    Arc::new(registry)
}

fn group(number: usize) -> String {
    format!("g{number}.example.org")
}

fn contribution(number: usize) -> ResourceRegistration {
    ResourceRegistration::new(resource(number))
}

fn resource(number: usize) -> Resource {
    Resource::custom(&group(number), "things", "Thing", vec![ServedVersion::custom("v1", [])])
}

/// The memory of this process, in MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}
