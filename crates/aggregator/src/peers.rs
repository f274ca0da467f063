//! The other servers on the store: which built-in resources they have, and which one gets a request that this server
//! can't serve.
//!
//! Each server's discovery is fetched in the background, on every change of its identity lease and every few seconds;
//! no request waits for it. A server stays known while its lease may be valid, even if it does not answer: reporting
//! its resources as missing would be wrong. Custom and aggregated resources are left out, since every server gets them
//! from the store. Requests to peers are in `peers/asked.rs`; requests are forwarded elsewhere.

mod asked;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_controllers::{
    Backoff, Client, IDENTITY_LABEL, IDENTITY_VALUE, Outcome, Queue, RegisteredServer, RegisteredServers,
    SERVER_MANAGER, ServerState, follow,
};
use keelson_discovery::{DiscoveredResource, PeerDocuments, ServedVersion};
use keelson_meta::field_selector::FieldSelector;
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ClientConfig, Destination, Upstream};
use keelson_supervision::{RepeatLog, warn_repeated};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::asked::{OpenApi, PeerDocument, PeerRequest, paths_of};
use crate::aggregator::Aggregator;

/// The server name in the certificates of servers, as upstream.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// The most peers. If there are more, the first by name are used.
const PEERS: usize = 64;
/// The number of concurrent requests. Each takes a few seconds at the most.
const AT_ONCE: usize = 8;
/// The most bytes of all kept documents.
const KEPT_BYTES: usize = 64 << 20;
/// The interval between requests to an unchanged server.
const INTERVAL: Duration = Duration::from_secs(10);
/// The backoff of a server that did not answer.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: INTERVAL };
/// The interval between reads of the leases. A change of a lease causes a read too.
const LOOK: Duration = Duration::from_secs(2);
/// The shortest time between two reads, so that a burst of changes causes one.
const REST: Duration = Duration::from_millis(50);
/// The other servers on the store.
pub struct PeerServers {
    aggregator: Arc<Aggregator>,
    servers: Arc<RegisteredServers>,
    /// The name of this server.
    own: String,
    /// The authorities for the certificates of other servers (PEM).
    ca_bundle: ArcSwap<Vec<u8>>,
    current: ArcSwap<ServedElsewhere>,
    known: Mutex<BTreeMap<String, KnownPeer>>,
    queue: Queue<String>,
    changed: Notify,
    kept: ByteBudget,
    turn: AtomicUsize,
    failures: AtomicU64,
    /// Failed discovery requests to peers.
    silent: RepeatLog,
    rerouted: Mutex<BTreeMap<PeerForwarding, u64>>,
}

/// A resource and a status code, to count the requests that were forwarded to peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerForwarding {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The status code of the responses.
    pub code: u16,
}

/// A resource of a peer.
pub(crate) struct PeerResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: DiscoveredResource,
    /// The peer.
    pub(crate) server: ClientConfig,
}

/// A resource in a version: group, version and plural name.
type ResourceName = (String, String, String);

/// The documents of all peers.
#[derive(Clone, Default)]
pub struct PeerDescriptions {
    /// The generation, which increases with each change.
    pub generation: u64,
    /// The discovery of their built-in resources.
    pub discovery: Arc<PeerDocuments>,
    /// OpenAPI 3 documents of versions that this server does not serve, one for each.
    pub openapi: Vec<Arc<ForeignDocument>>,
    /// OpenAPI 2 parts of versions that this server does not serve.
    pub paths: Vec<Arc<ForeignPaths>>,
}

/// The resources of all peers at one moment.
#[derive(Default)]
struct ServedElsewhere {
    /// The generations of this server's own resources that the value was computed with.
    here: (u64, u64),
    described: PeerDescriptions,
    /// The peers with each resource. Silent peers are included only for resources that no answering peer has.
    ways: HashMap<ResourceName, Vec<Arc<Upstream>>>,
}

/// A server that may be running.
#[derive(Clone)]
struct KnownPeer {
    holder: String,
    address: SocketAddr,
    /// The authorities for its certificate.
    ca_bundle: Arc<Vec<u8>>,
    upstream: Arc<Upstream>,
    /// True if it answered the last request.
    answers: bool,
    /// The discovery documents of the peer: the core group, and the other groups.
    documents: [PeerDocument; 2],
    /// The OpenAPI documents of the peer for versions that this server does not serve.
    openapi: OpenApi,
}

impl PeerServers {
    /// Creates the peers of the server named `own`. The certificates of all servers must be signed by these authorities
    /// (PEM).
    pub fn new(
        aggregator: Arc<Aggregator>,
        servers: Arc<RegisteredServers>,
        own: &str,
        ca_bundle: Vec<u8>,
    ) -> Arc<Self> {
        Arc::new(Self {
            aggregator,
            servers,
            own: own.to_owned(),
            ca_bundle: ArcSwap::from_pointee(ca_bundle),
            current: ArcSwap::default(),
            known: Mutex::default(),
            queue: Queue::new("peer_discovery", BACKOFF),
            changed: Notify::new(),
            kept: ByteBudget::new(KEPT_BYTES),
            turn: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
            silent: RepeatLog::new(),
            rerouted: Mutex::default(),
        })
    }

    /// Replaces the authorities (PEM). All peers are requested again.
    pub fn change_authorities(&self, ca_bundle: Vec<u8>) {
        self.ca_bundle.store(Arc::new(ca_bundle));
        self.changed.notify_one();
    }

    /// The generation of the peers' documents, which increases with each change.
    pub fn generation(&self) -> u64 {
        self.current.load().described.generation
    }

    /// The documents of all peers.
    pub fn described(&self) -> PeerDescriptions {
        self.current.load().described.clone()
    }

    /// A peer that serves a resource. If several do, they take turns.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Upstream>> {
        let current = self.current.load();
        if current.ways.is_empty() {
            return None;
        }
        let ways = current.ways.get(&(group.to_owned(), version.to_owned(), resource.to_owned()))?;
        ways.get(self.turn.fetch_add(1, Ordering::Relaxed) % ways.len()).cloned()
    }

    /// The resources that this server does not know, each in the first version that a peer reports.
    pub(crate) fn unknown_here(&self) -> Vec<PeerResource> {
        let surface = self.aggregator.registry().surface();
        let known = self.known.lock();
        let mut found: BTreeMap<(&str, &str), PeerResource> = BTreeMap::new();
        // Silent peers come last: their entry is used only for a resource that no answering peer has.
        let (answering, silent): (Vec<_>, Vec<_>) = known.values().partition(|peer| peer.answers);
        for peer in answering.into_iter().chain(silent) {
            for version in peer.documents.iter().flat_map(|document| &document.versions) {
                let unknown =
                    |resource: &&DiscoveredResource| surface.resource(&version.group, &resource.plural).is_none();
                for resource in version.resources.iter().filter(unknown) {
                    found.entry((&version.group, &resource.plural)).or_insert_with(|| PeerResource {
                        group: version.group.clone(),
                        version: version.version.clone(),
                        resource: resource.clone(),
                        server: self.config(peer),
                    });
                }
            }
        }
        found.into_values().collect()
    }

    /// The client configuration for a peer.
    fn config(&self, peer: &KnownPeer) -> ClientConfig {
        let (host, port) = (peer.address.ip().to_string(), peer.address.port());
        let destination = Destination::Server { host, port, server_name: SERVER_NAME.to_owned() };
        ClientConfig::new(destination, peer.ca_bundle.to_vec())
    }

    /// Counts a forwarded request with its status code.
    pub fn note_rerouted(&self, rerouted: PeerForwarding) {
        *self.rerouted.lock().entry(rerouted).or_default() += 1;
    }

    /// The number of forwarded requests by resource and code, for resources that a peer still serves.
    pub fn rerouted(&self) -> Vec<(PeerForwarding, u64)> {
        self.rerouted.lock().iter().map(|(what, times)| (what.clone(), *times)).collect()
    }

    /// The number of failed discovery requests.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Follows the peers until the server stops.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let client = Client::of_server(self.aggregator.registry().clone(), SERVER_MANAGER);
        let leases = client.collection("coordination.k8s.io", "v1", "leases", Some("kube-system"));
        let Ok(leases) = leases.inspect_err(|error| tracing::error!(%error, "peers can't be found")) else { return };
        let seen = |entry: &Entry| {
            if is_identity(entry) {
                self.changed.notify_one();
            }
        };
        let registry = self.aggregator.registry();
        tokio::select! {
            () = stopping.cancelled() => {}
            never = follow(registry, client.caller(), &leases, FieldSelector::default(), seen) => match never {},
            never = self.look() => match never {},
            never = self.queue.run(AT_ONCE, |id| self.fetch(id)) => match never {},
            never = self.ask_again() => match never {},
        }
    }

    async fn ask_again(&self) -> Infallible {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.known.lock().keys().for_each(|id| self.queue.add(id.clone()));
        }
    }

    /// Updates the peers after changes of the leases or of the served resources.
    async fn look(&self) -> Infallible {
        let mut surfaces = self.aggregator.registry().surfaces().changes();
        loop {
            let has_changed = match self.servers.all().await {
                Ok(servers) => self.take_in(servers),
                Err(error) => {
                    warn_repeated!(""; %error, "reading the leases of the other servers failed; retrying");
                    false
                }
            };
            if has_changed || self.here() != self.current.load().here {
                self.publish();
            }
            tokio::time::sleep(REST).await;
            tokio::select! {
                () = self.changed.notified() => {}
                Ok(()) = surfaces.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// The generations of this server's own resources, which are subtracted from a peer's.
    fn here(&self) -> (u64, u64) {
        (self.aggregator.registry().surface().generation(), self.aggregator.current().generation())
    }

    /// Records the live peers and enqueues requests to new ones. Returns true if a peer was added or removed.
    fn take_in(&self, servers: Vec<RegisteredServer>) -> bool {
        let others = servers.into_iter().filter(|server| server.id != self.own && server.life != ServerState::Dead);
        let mut living: BTreeMap<String, (String, SocketAddr)> =
            others.filter_map(|server| Some((server.id, (server.holder, server.peer_address?)))).collect();
        while living.len() > PEERS {
            living.pop_last();
        }
        let ca_bundle = self.ca_bundle.load_full();
        let mut known = self.known.lock();
        let count = known.len();
        known.retain(|id, _| living.contains_key(id));
        let mut has_changed = known.len() != count;
        for (id, (holder, address)) in living {
            let before = known.get(&id);
            let is_same = |before: &KnownPeer| {
                (&before.holder, before.address) == (&holder, address) && Arc::ptr_eq(&before.ca_bundle, &ca_bundle)
            };
            if before.is_some_and(is_same) {
                continue;
            }
            // A new process with the name of an earlier one keeps the documents of that process until it answers.
            let (documents, openapi) =
                before.map(|before| (before.documents.clone(), before.openapi.clone())).unwrap_or_default();
            let upstream = self.aggregator.outbound().upstream_at(address, SERVER_NAME, &ca_bundle);
            let ca_bundle = ca_bundle.clone();
            let peer = KnownPeer { holder, address, ca_bundle, upstream, answers: false, documents, openapi };
            known.insert(id.clone(), peer);
            self.queue.add(id);
            has_changed = true;
        }
        has_changed
    }

    async fn fetch(&self, id: String) -> Outcome {
        let Some(known) = self.known.lock().get(&id).cloned() else { return Outcome::Done };
        let asked = async {
            let peer = self.aggregator.outbound().client(&self.config(&known))?;
            let asked = PeerRequest { peer: &peer, aggregator: &self.aggregator, kept: &self.kept };
            let documents = asked.documents(&known.documents).await?;
            self.take(&id, &known.holder, |peer| (peer.answers, peer.documents) = (true, documents.clone()));
            Ok(asked.openapi(&documents, &known.openapi).await)
        };
        match asked.await {
            Ok(openapi) => {
                self.take(&id, &known.holder, |peer| peer.openapi = openapi);
                if let Some(due) = self.silent.worked(&id) {
                    tracing::info!(
                        server_id = id,
                        repeats = due.repeats,
                        "a peer responds to discovery requests again"
                    );
                }
                Outcome::Done
            }
            Err::<_, String>(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if let Some(due) = self.silent.failed(&id) {
                    tracing::warn!(
                        server_id = id,
                        repeats = due.repeats,
                        why,
                        "a peer does not answer discovery requests"
                    );
                }
                self.take(&id, &known.holder, |peer| peer.answers = false);
                Outcome::Again
            }
        }
    }

    /// Records a peer's response and publishes it, unless another process has taken its name meanwhile.
    fn take(&self, id: &str, holder: &str, note: impl FnOnce(&mut KnownPeer)) {
        match self.known.lock().get_mut(id).filter(|peer| peer.holder == holder) {
            Some(peer) => note(peer),
            None => return,
        }
        self.publish();
    }

    /// Publishes the current state.
    fn publish(&self) {
        // Held until the value is published, so that a newer value is never replaced by an older one.
        let mut known = self.known.lock();
        let here = self.here();
        known
            .values_mut()
            .flat_map(|peer| &mut peer.documents)
            .for_each(|document| document.leave_out_stored(&self.aggregator));
        let shown = &self.current.load().described;
        let discovery = self.discovery(&known, &shown.discovery);
        let openapi = first_of_each(&known, KnownPeer::openapi, |document| document.path());
        let paths = first_of_each(&known, KnownPeer::paths, |paths| paths.path());
        let ways = ways(&known);
        let is_same = discovery == *shown.discovery && alike(&openapi, &shown.openapi) && alike(&paths, &shown.paths);
        let described = if is_same {
            shown.clone()
        } else {
            PeerDescriptions { generation: shown.generation + 1, discovery: Arc::new(discovery), openapi, paths }
        };
        self.rerouted
            .lock()
            .retain(|what, _| ways.contains_key(&(what.group.clone(), what.version.clone(), what.resource.clone())));
        self.current.store(Arc::new(ServedElsewhere { here, described, ways }));
    }

    fn discovery(&self, known: &BTreeMap<String, KnownPeer>, shown: &PeerDocuments) -> PeerDocuments {
        let services = self.aggregator.current();
        let mut described = PeerDocuments { own: self.own.clone(), ..PeerDocuments::default() };
        for (id, peer) in known {
            let versions = || peer.documents.iter().flat_map(|document| &document.versions);
            for version in versions() {
                if let Some(service) = services.get(&version.group, &version.version) {
                    let name = (version.group.clone(), version.version.clone());
                    described.priorities.insert(name, (service.group_priority, service.version_priority));
                }
            }
            let before = shown.versions.get(id).filter(|before| before.iter().eq(versions().map(|version| &**version)));
            let now = before.cloned();
            let now =
                now.unwrap_or_else(|| Arc::new(versions().map(|version| ServedVersion::clone(version)).collect()));
            described.versions.insert(id.clone(), now);
        }
        described
    }
}

/// Returns true for the lease of an API server.
fn is_identity(lease: &Entry) -> bool {
    lease.labels.get(IDENTITY_LABEL) == Some(IDENTITY_VALUE)
}

/// The documents of peers: for each version, the document of the first peer that has it, so that all servers publish
/// the same.
fn first_of_each<'k, T: 'k, I: Iterator<Item = &'k Arc<T>>>(
    known: &'k BTreeMap<String, KnownPeer>,
    of_peer: impl Fn(&'k KnownPeer) -> I,
    path: impl Fn(&'k T) -> &'k str,
) -> Vec<Arc<T>> {
    let mut found: BTreeMap<&str, &Arc<T>> = BTreeMap::new();
    for one in known.values().flat_map(of_peer) {
        found.entry(path(one)).or_insert(one);
    }
    found.into_values().cloned().collect()
}

fn alike<T>(some: &[Arc<T>], others: &[Arc<T>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| Arc::ptr_eq(one, other))
}

impl KnownPeer {
    /// The peer's OpenAPI 3 documents of versions that it still serves and this server does not.
    fn openapi(&self) -> impl Iterator<Item = &Arc<ForeignDocument>> {
        let served = self.served();
        self.openapi.documents().filter(move |document| served.contains(document.path()))
    }

    /// The peer's OpenAPI 2 parts of versions that it still serves and this server does not.
    fn paths(&self) -> impl Iterator<Item = &Arc<ForeignPaths>> {
        let served = self.served();
        self.openapi.parts().filter(move |paths| served.contains(paths.path()))
    }

    /// The paths of the versions that it serves, and of their groups.
    fn served(&self) -> BTreeSet<String> {
        let versions = self.documents.iter().flat_map(|document| &document.versions);
        versions.flat_map(|version| paths_of(version)).collect()
    }
}

/// The peers with each resource. Silent peers are left out where another peer has the resource.
fn ways(known: &BTreeMap<String, KnownPeer>) -> HashMap<ResourceName, Vec<Arc<Upstream>>> {
    let mut ways: HashMap<ResourceName, Vec<Arc<Upstream>>> = HashMap::new();
    for answers in [true, false] {
        let mut more: HashMap<ResourceName, Vec<Arc<Upstream>>> = HashMap::new();
        for peer in known.values().filter(|peer| peer.answers == answers) {
            for version in peer.documents.iter().flat_map(|document| &document.versions) {
                for resource in &version.resources {
                    let name = (version.group.clone(), version.version.clone(), resource.plural.to_string());
                    more.entry(name).or_default().push(peer.upstream.clone());
                }
            }
        }
        for (name, peers) in more {
            ways.entry(name).or_insert(peers);
        }
    }
    ways
}
