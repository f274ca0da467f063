//! Tests servers that share a store and allocate addresses and node ports of services at the same time.
//!
//! Ranges are small, so that allocations often collide and ranges run out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::join_all;
use keelson_builtin::collection_specs;
use keelson_cache::{Cache, CacheConfig};
use keelson_meta::clock::ManualClock;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, DeleteOptions, FieldValidation, ListOptions, Query, UpdateOptions};
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, Object, Random};
use keelson_registry::{Caller, Registry, RegistryConfig, ServiceRanges, Target, Warnings, accept};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{RangeRequest, Store, StoreKey};

/// This range has 61 usable addresses: the network and broadcast addresses cannot be allocated, and one is taken.
const ADDRESSES: &str = "10.0.0.0/26";
const PORTS: &str = "30000-30023";

async fn server(store: &Arc<dyn Store>, seed: u64) -> Arc<Registry> {
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let config = CacheConfig::new(clock.clone());
    let cache = Cache::start(store.clone(), collection_specs(), config).await.unwrap();
    let service_ranges = ServiceRanges::new(vec![ADDRESSES.parse().unwrap()], PORTS.parse().unwrap()).unwrap();
    let config = RegistryConfig { service_ranges, ..RegistryConfig::default() };
    Arc::new(keelson_builtin::registry(store.clone(), cache, clock, Arc::new(SeededRandom::new(seed)), config))
}

async fn servers() -> (Arc<dyn Store>, [Arc<Registry>; 2]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let servers = [server(&store, 1).await, server(&store, 2).await];
    servers[0].ensure_system_namespaces().await.unwrap();
    (store, servers)
}

fn services() -> Target {
    keelson_builtin::surface().target("", "services").unwrap().in_namespace(Some("default"))
}

fn service(name: &str, spec: &Value) -> Object {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"port": 80}]);
    let sent = json!({"metadata": {"name": name}, "spec": spec});
    accept(&services(), sent, &[], FieldValidation::Strict, &Warnings::default()).unwrap()
}

async fn create(server: &Registry, name: &str, spec: Value) -> Result<Value, ApiError> {
    let created =
        server.create(&services(), service(name, &spec), &Caller::server(), &CreateOptions::default()).await?;
    Ok(serde_json::from_str(created.object.text().as_ref()).unwrap())
}

async fn update(server: &Registry, name: &str, spec: Value) -> Result<(), ApiError> {
    let (object, options) = (service(name, &spec), UpdateOptions::default());
    server.update(&services(), name, object, &Caller::server(), &options).await.map(|_| ())
}

async fn delete(server: &Registry, name: &str) -> Result<(), ApiError> {
    server.delete(&services(), name, &Caller::server(), &DeleteOptions::default()).await.map(|_| ())
}

async fn keys(store: &Arc<dyn Store>, prefix: &str) -> BTreeSet<String> {
    let end = format!("{}0", prefix.strip_suffix('/').unwrap());
    let all = RangeRequest { from: StoreKey::new(prefix), to: StoreKey::new(end), revision: None, limit: None };
    let page = store.range(all).await.unwrap();
    page.entries.iter().map(|entry| entry.key.as_str().strip_prefix(prefix).unwrap().to_owned()).collect()
}

/// Checks that the allocated keys are those that services have, and that each belongs to one service.
async fn check_held(store: &Arc<dyn Store>, server: &Registry) {
    let everything = ListOptions::parse(&Query::parse(""), false).unwrap();
    let listed =
        server.list(&services(), &Caller::server(), &everything).await.unwrap().items.into_entries().await.unwrap();
    let (mut addresses, mut ports) = (BTreeMap::new(), BTreeMap::new());
    for entry in listed {
        let service: Value = serde_json::from_str(entry.object().text().as_ref()).unwrap();
        let name = entry.name().to_owned();
        for address in
            service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter(|address| *address != "None")
        {
            let other = addresses.insert(address.as_str().unwrap().to_owned(), name.clone());
            assert_eq!(other, None, "{address} is also {name}'s");
        }
        let node_ports = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
        for port in node_ports.chain([&service["spec"]["healthCheckNodePort"]]).filter_map(Value::as_u64) {
            assert_eq!(ports.insert(port.to_string(), name.clone()), None, "{port} is also {name}'s");
        }
    }
    let taken: BTreeSet<String> = addresses.into_keys().collect();
    assert_eq!(keys(store, "/registry/ipaddresses/").await, taken);
    let taken: BTreeSet<String> = ports.into_keys().collect();
    assert_eq!(keys(store, "/registry/ranges/nodeports/").await, taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_give_out_every_address_and_port_and_none_twice() {
    let (store, servers) = servers().await;
    let make = |number: usize| {
        let server = servers[number % 2].clone();
        async move { create(&server, &format!("s{number}"), json!({"type": "NodePort"})).await }
    };
    let made = join_all((0..40).map(make)).await;
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 24, "as many as there are ports");
    for error in refused {
        let message = error.unwrap_err().status().message;
        assert!(message.ends_with("failed to allocate a nodePort: range is full"), "{message}");
    }
    check_held(&store, &servers[0]).await;
    let more = join_all((0..60).map(|number| create_plain(&servers[number % 2], number))).await;
    assert_eq!(more.iter().filter(|made| made.is_ok()).count(), 62 - 24, "as many as there are addresses");
    check_held(&store, &servers[1]).await;
}

async fn create_plain(server: &Registry, number: usize) -> Result<Value, ApiError> {
    create(server, &format!("plain-{number}"), json!({})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_requests_gets_an_address() {
    let (store, servers) = servers().await;
    let wish = |number: usize| {
        let server = servers[number % 2].clone();
        let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.7"});
        async move { create(&server, &format!("s{number}"), spec).await }
    };
    let made = join_all((0..16).map(wish)).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    let expect = "spec.clusterIPs: Invalid value: [\"10.0.0.7\"]: failed to allocate IP 10.0.0.7: provided IP is already allocated";
    for error in made.into_iter().filter_map(Result::err) {
        let message = error.status().message;
        assert!(message.ends_with(expect), "{message}");
    }
    check_held(&store, &servers[0]).await;
}

/// Services are created, changed and deleted on both servers at once. A failed request must leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocations_equal_the_addresses_and_ports_of_all_services() {
    const WORKERS: usize = 6;
    const STEPS: usize = 60;
    let (store, servers) = servers().await;
    let specs = [
        json!({}),
        json!({"type": "NodePort"}),
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
        json!({"type": "ExternalName", "externalName": "example.org"}),
        json!({"clusterIP": "None"}),
        json!({"clusterIP": "10.0.0.9"}),
    ];
    let work = |worker: usize| {
        let (servers, specs) = (&servers, &specs);
        async move {
            let random = SeededRandom::new(worker as u64);
            for _ in 0..STEPS {
                let draw = |below: usize| usize::try_from(random.u64() % below as u64).unwrap();
                let (server, name) = (&servers[draw(2)], format!("s{}", draw(8)));
                let spec = specs[draw(specs.len())].clone();
                let outcome = match draw(3) {
                    0 => create(server, &name, spec).await.map(|_| ()),
                    1 => update(server, &name, spec).await,
                    _ => delete(server, &name).await,
                };
                if let Err(error) = outcome {
                    let code = error.status().code;
                    assert!(matches!(code, 404 | 409 | 422 | 500), "{error}");
                }
            }
        }
    };
    join_all((0..WORKERS).map(work)).await;
    check_held(&store, &servers[0]).await;
    for number in 0..8 {
        let _ = delete(&servers[1], &format!("s{number}")).await;
    }
    check_held(&store, &servers[1]).await;
    assert!(keys(&store, "/registry/ipaddresses/").await.is_empty());
}
