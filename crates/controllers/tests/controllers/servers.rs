//! Tests of servers on one store whose clocks are hours apart. Each derives the state of the others from changes that
//! it observes.
//!
//! Clocks are never compared, so no difference between them may matter.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_controllers::{
    IdentityCollection, IdentityConfig, IdentityLease, KubernetesService, RegisteredServers, ServerState, identity_key,
};
use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{GetOptions, UpdateOptions};
use keelson_meta::random::SystemRandom;
use keelson_registry::{Caller, Registry, ServiceRanges};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Fence, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::setup::{RunningClock, registry_at, target};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

/// A server that keeps its identity lease and the service of all servers.
struct Server {
    registry: Arc<Registry>,
    servers: Arc<RegisteredServers>,
    fence: Arc<Fence>,
    /// The tasks that must end first when the server stops.
    tasks: Vec<JoinHandle<()>>,
    stopping: CancellationToken,
    keeper: JoinHandle<()>,
    leaving: CancellationToken,
}

impl Server {
    /// Starts a server whose clock is at `now`.
    async fn start(store: &MemoryStore, id: &str, address: &str, now: SystemTime) -> Self {
        Self::start_for(store, id, address, now, HOUR).await
    }

    /// Starts a server whose lease has this duration.
    async fn start_for(store: &MemoryStore, id: &str, address: &str, now: SystemTime, duration: Duration) -> Self {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        let clock = RunningClock::set_to(now);
        let registry = registry_at(store, clock.clone()).await;
        let own: SocketAddr = address.parse().unwrap();
        let config = IdentityConfig {
            server_id: id.to_owned(),
            host: "host".to_owned(),
            address: own,
            peer_address: own,
            annotations: watch::Sender::new(BTreeMap::new()).subscribe(),
            duration,
            interval: IdentityConfig::INTERVAL,
        };
        let fence = Arc::new(Fence::new(identity_key(id), clock));
        let lease = IdentityLease::register(registry.clone(), fence.clone(), &SystemRandom, config).await.unwrap();
        let servers = Arc::new(RegisteredServers::new(registry.clone(), Some(own), IdentityConfig::INTERVAL));
        let lease = lease.announcing(servers.leaving().clone());
        let ranges = ServiceRanges::default();
        let service = Arc::new(KubernetesService::new(registry.clone(), ranges, servers.clone(), own.port()));
        let collection = IdentityCollection::new(registry.clone(), servers.clone(), duration);
        let (stopping, leaving) = (CancellationToken::new(), CancellationToken::new());
        let keep = leaving.clone();
        let keeper = tokio::spawn(async move { lease.run(keep).await.release().await });
        let tasks = vec![tokio::spawn(service.run(stopping.clone())), tokio::spawn(collection.run(stopping.clone()))];
        Self { registry, servers, fence, tasks, stopping, keeper, leaving }
    }

    /// Aborts all tasks, as kill -9 would.
    fn kill(&self) {
        self.tasks.iter().chain([&self.keeper]).for_each(JoinHandle::abort);
    }

    async fn stop(self) {
        self.stopping.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        self.leaving.cancel();
        self.keeper.await.unwrap();
    }

    async fn get(&self, group: &str, plural: &str, name: &str) -> Option<(u64, Value)> {
        let target = target(group, plural, Some("default"));
        let found = self.registry.get(&target, name, &Caller::server(), &GetOptions::default()).await.ok()?;
        Some((found.revision.get(), serde_json::from_str(found.object().text().as_ref()).unwrap()))
    }

    /// The addresses of the endpoints by port, and the revision of their last write.
    async fn endpoints(&self) -> (BTreeMap<u64, Vec<String>>, u64) {
        let (revision, endpoints) = self.get("", "endpoints", "kubernetes").await.unwrap_or_default();
        let of = |subset: &Value| {
            let addresses = subset["addresses"].as_array().unwrap().iter();
            let addresses = addresses.map(|address| address["ip"].as_str().unwrap().to_owned()).collect();
            assert_eq!(subset["ports"].as_array().unwrap().len(), 1, "{subset}");
            (subset["ports"][0]["port"].as_u64().unwrap(), addresses)
        };
        let subsets = endpoints["subsets"].as_array();
        (subsets.into_iter().flatten().map(of).collect(), revision)
    }

    async fn check(&self, expect: &[(u64, &[&str])]) {
        let expect: BTreeMap<u64, Vec<String>> =
            expect.iter().map(|(port, of)| (*port, of.iter().map(|of| (*of).to_owned()).collect())).collect();
        assert_eq!(self.endpoints().await.0, expect);
    }

    /// Removes an address. Returns the revision of the write.
    async fn take_away(&self, address: &str) -> u64 {
        let mut endpoints = self.get("", "endpoints", "kubernetes").await.unwrap().1;
        for subset in endpoints["subsets"].as_array_mut().unwrap() {
            subset["addresses"].as_array_mut().unwrap().retain(|stated| stated["ip"] != address);
        }
        let (target, object) = (target("", "endpoints", Some("default")), Object::from_value(endpoints).unwrap());
        let options = UpdateOptions::default();
        let written = self.registry.update(&target, "kubernetes", object, &Caller::server(), &options).await.unwrap();
        written.revision.unwrap().get()
    }

    async fn lives(&self) -> Vec<(String, ServerState)> {
        self.servers.all().await.unwrap().into_iter().map(|server| (server.id, server.life)).collect()
    }
}

/// Lets this much time pass by the servers' monotonic clocks.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + HOUR * 1000
}

#[tokio::test(start_paused = true)]
async fn clock_skew_does_not_remove_a_live_server() {
    for there in [now() - HOUR * 5, now() + HOUR * 5] {
        let store = MemoryStore::new();
        let here = Server::start(&store, "here", "192.0.2.1:6443", now()).await;
        let off = Server::start(&store, "off", "192.0.2.2:6443", there).await;
        pass(SECOND * 25).await;
        let both: &[&str] = &["192.0.2.1", "192.0.2.2"];
        here.check(&[(6443, both)]).await;
        let written = here.endpoints().await.1;
        pass(HOUR * 2).await;
        assert_eq!(here.endpoints().await.1, written, "no server writes when nothing changes");
        let lived = [("here".to_owned(), ServerState::Live), ("off".to_owned(), ServerState::Live)];
        assert_eq!((here.lives().await, off.lives().await), (lived.to_vec(), lived.to_vec()));
        off.kill();
        pass(SECOND * 20).await;
        here.check(&[(6443, both)]).await;
        pass(SECOND * 25).await;
        here.check(&[(6443, &["192.0.2.1"])]).await;
        assert_eq!(here.lives().await[1], ("off".to_owned(), ServerState::Dead));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_collected_after_its_duration_without_renewal() {
    let store = MemoryStore::new();
    let off = Server::start_for(&store, "off", "192.0.2.2:6443", now() - HOUR * 5, HOUR / 2).await;
    off.kill();
    // The lease of the other server states only a time that is long ago.
    let here = Server::start(&store, "here", "192.0.2.1:6443", now()).await;
    let late = Server::start(&store, "late", "192.0.2.3:6443", now() - HOUR * 5).await;
    pass(HOUR / 2 - SECOND * 60).await;
    assert_eq!(here.lives().await.len(), 3, "half an hour has not passed yet");
    pass(SECOND * 180).await;
    let live = |id: &str| (id.to_owned(), ServerState::Live);
    assert_eq!(here.lives().await, [live("here"), live("late")]);
    late.stop().await;
    assert_eq!(here.lives().await, [live("here")], "a server that stops deletes its lease");
}

#[tokio::test(start_paused = true)]
async fn a_starting_server_keeps_the_endpoints_of_unobserved_servers() {
    let store = MemoryStore::new();
    let first = Server::start(&store, "first", "192.0.2.1:6443", now()).await;
    pass(SECOND * 15).await;
    first.kill();
    let second = Server::start(&store, "second", "192.0.2.2:6443", now()).await;
    pass(SECOND * 15).await;
    second.check(&[(6443, &["192.0.2.1", "192.0.2.2"])]).await;
    pass(SECOND * 30).await;
    second.check(&[(6443, &["192.0.2.2"])]).await;
    // A new server does not bring removed addresses back.
    let third = Server::start(&store, "third", "192.0.2.3:6443", now()).await;
    pass(SECOND * 15).await;
    third.check(&[(6443, &["192.0.2.2", "192.0.2.3"])]).await;
}

/// This server's own lease is one of those that it has not yet seen to change.
#[tokio::test(start_paused = true)]
async fn a_server_stopped_soon_after_its_start_removes_its_endpoint() {
    let store = MemoryStore::new();
    let other = Server::start(&store, "other", "192.0.2.1:6443", now()).await;
    let killed = Server::start(&store, "one", "192.0.2.2:6443", now()).await;
    pass(SECOND * 15).await;
    killed.kill();
    let again = Server::start(&store, "one", "192.0.2.2:6443", now()).await;
    pass(SECOND).await;
    other.check(&[(6443, &["192.0.2.1", "192.0.2.2"])]).await;
    again.stop().await;
    other.check(&[(6443, &["192.0.2.1"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_late_server_is_not_restored() {
    let store = MemoryStore::new();
    let here = Server::start(&store, "here", "192.0.2.1:6443", now()).await;
    pass(SECOND * 2).await;
    let late = Server::start(&store, "late", "192.0.2.2:6443", now()).await;
    pass(SECOND * 25).await;
    late.kill();
    pass(SECOND * 20).await;
    here.check(&[(6443, &["192.0.2.1", "192.0.2.2"])]).await;
    assert_eq!(here.lives().await[1], ("late".to_owned(), ServerState::Late));
    // As another server with an older observation does.
    let written = here.take_away("192.0.2.2").await;
    pass(SECOND * 60).await;
    assert_eq!(here.lives().await[1], ("late".to_owned(), ServerState::Dead));
    here.check(&[(6443, &["192.0.2.1"])]).await;
    assert_eq!(here.endpoints().await.1, written, "no server has written them since");
}

/// It still answers for the time of `--shutdown-delay-duration`, in which clients go elsewhere.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_about_to_stop_is_no_endpoint() {
    let store = MemoryStore::new();
    let first = Server::start(&store, "a", "192.0.2.1:6443", now()).await;
    let second = Server::start(&store, "b", "192.0.2.2:6443", now() + HOUR).await;
    pass(SECOND * 25).await;
    first.check(&[(6443, &["192.0.2.1", "192.0.2.2"])]).await;
    second.servers.leave();
    pass(SECOND).await;
    first.check(&[(6443, &["192.0.2.1"])]).await;
    let written = first.endpoints().await.1;
    pass(SECOND * 120).await;
    assert_eq!(first.endpoints().await, ([(6443, vec!["192.0.2.1".to_owned()])].into(), written), "it is not put back");
    assert_eq!(first.lives().await, [("a".to_owned(), ServerState::Live), ("b".to_owned(), ServerState::Live)]);
    second.stop().await;
    // A server with the same name and address that starts afterwards is an endpoint again.
    let second = Server::start(&store, "b", "192.0.2.2:6443", now()).await;
    pass(SECOND * 25).await;
    first.check(&[(6443, &["192.0.2.1", "192.0.2.2"])]).await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn servers_on_different_ports_are_all_endpoints() {
    let store = MemoryStore::new();
    let mut servers = Vec::new();
    for (id, address) in
        [("a", "192.0.2.1:6443"), ("b", "192.0.2.2:6444"), ("c", "192.0.2.3:6443"), ("d", "[2001:db8::1]:6444")]
    {
        servers.push(Server::start(&store, id, address, now()).await);
    }
    pass(SECOND * 25).await;
    servers[0].check(&[(6443, &["192.0.2.1", "192.0.2.3"]), (6444, &["192.0.2.2", "2001:db8::1"])]).await;
    let slices = ["kubernetes", "kubernetes-ipv4-6444", "kubernetes-ipv6-6444"];
    let mut found = Vec::new();
    for name in slices {
        let (revision, slice) = servers[1].get("discovery.k8s.io", "endpointslices", name).await.unwrap();
        assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
        let endpoints = slice["endpoints"].as_array().unwrap().iter();
        let addresses: Vec<Value> = endpoints.map(|endpoint| endpoint["addresses"][0].clone()).collect();
        found.push((revision, json!([slice["addressType"], slice["ports"][0]["port"], addresses])));
    }
    let stated: Vec<&Value> = found.iter().map(|(_, stated)| stated).collect();
    assert_eq!(
        stated,
        [
            &json!(["IPv4", 6443, ["192.0.2.1", "192.0.2.3"]]),
            &json!(["IPv4", 6444, ["192.0.2.2"]]),
            &json!(["IPv6", 6444, ["2001:db8::1"]]),
        ]
    );
    let before = servers[0].endpoints().await.1;
    pass(HOUR).await;
    assert_eq!(servers[0].endpoints().await.1, before);
    for (name, (revision, _)) in slices.into_iter().zip(&found) {
        let now = servers[2].get("discovery.k8s.io", "endpointslices", name).await.unwrap().0;
        assert_eq!(now, *revision, "no server writes when nothing changes");
    }
    let [first, second, third, fourth] = <[Server; 4]>::try_from(servers).ok().unwrap();
    second.stop().await;
    pass(SECOND * 25).await;
    assert!(third.get("discovery.k8s.io", "endpointslices", slices[1]).await.is_none(), "it has no server left");
    for server in [first, third] {
        server.stop().await;
    }
    pass(SECOND * 25).await;
    fourth.check(&[(6444, &["2001:db8::1"])]).await;
    let slice = fourth.get("discovery.k8s.io", "endpointslices", slices[0]).await.unwrap().1;
    assert_eq!(
        (&slice["addressType"], &slice["endpoints"][0]["addresses"][0]),
        (&json!("IPv6"), &json!("2001:db8::1"))
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_of_one_name_the_later_one_stays() {
    let store = MemoryStore::new();
    let earlier = Server::start(&store, "one", "192.0.2.1:6443", now()).await;
    pass(SECOND * 15).await;
    let later = Server::start(&store, "one", "192.0.2.2:6443", now() - HOUR).await;
    let why = tokio::time::timeout(SECOND * 15, earlier.fence.closed()).await.unwrap();
    assert!(why.contains("server one ") && why.contains("--server-id"), "{why}");
    pass(HOUR * 2).await;
    assert!(later.fence.check().is_ok() && earlier.fence.check().is_err());
    assert_eq!(later.lives().await, [("one".to_owned(), ServerState::Live)]);
    assert_eq!(later.servers.all().await.unwrap()[0].address, Some("192.0.2.2:6443".parse().unwrap()));
    // The process that gave way must not change the lease of the other process.
    earlier.stop().await;
    assert_eq!(later.lives().await, [("one".to_owned(), ServerState::Live)]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_or_written_by_hand_is_put_right() {
    let store = MemoryStore::new();
    let server = Server::start(&store, "one", "192.0.2.1:6443", now()).await;
    let key = identity_key("one");
    let lease = async || serde_json::from_slice::<Value>(&store.get(&key).await.unwrap().unwrap().value).unwrap();
    let holder = lease().await["spec"]["holderIdentity"].clone();
    store.commit(keelson_storage::Transaction::default().delete(key.clone())).await.unwrap();
    pass(SECOND * 15).await;
    assert_eq!(lease().await["spec"]["holderIdentity"], holder);
    let mut edited = lease().await;
    edited["spec"]["holderIdentity"] = json!("somebody");
    store.commit(keelson_storage::Transaction::default().put(key.clone(), edited.to_string())).await.unwrap();
    pass(SECOND * 15).await;
    assert_eq!(lease().await["spec"]["holderIdentity"], holder);
    assert!(server.fence.check().is_ok());
}
