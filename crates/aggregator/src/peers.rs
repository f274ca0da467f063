//! The other servers on the store: what each of them has built in, and who of them answers a request that this one can't.
//!
//! Their discovery is fetched in the background, each server's on its own, whenever its identity lease changes hands, and again every few
//! seconds: no request waits for that. A server is known as long as its lease tells that it may live, also while it does not answer: to
//! say meanwhile that what it serves is not there would be a lie. What every server has from the store, custom resources and aggregated
//! servers, is left out of what a peer serves. What is asked of one is `peers/asked.rs`; how requests are passed on is not here.

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
    Backoff, Client, IDENTITY_LABEL, IDENTITY_VALUE, Life, Outcome, Queue, RegisteredServer, RegisteredServers,
    SERVER_MANAGER, follow,
};
use keelson_discovery::{DiscoveredResource, PeerDocuments, ServedVersion};
use keelson_meta::field_selector::FieldSelector;
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ClientConfig, Destination, Upstream};
use keelson_supervision::{RepeatLog, warn_repeated};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::asked::{Asked, OpenApi, PeerDocument, paths_of};
use crate::aggregator::Aggregator;

/// The name that the certificates of servers have, as upstream has it.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// How many servers are asked and shown at the most, those first by name.
const PEERS: usize = 64;
/// How many are asked at once. Each takes a few seconds at the most.
const AT_ONCE: usize = 8;
/// How many bytes the documents of all servers may have that are kept.
const KEPT_BYTES: usize = 64 << 20;
/// How often servers are asked again of which nothing has changed.
const INTERVAL: Duration = Duration::from_secs(10);
/// How soon one is asked again that did not answer.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: INTERVAL };
/// How often it is looked who lives, beside each change of a lease.
const LOOK: Duration = Duration::from_secs(2);
/// How long that rests at the least, so that a burst of changes is taken in at once.
const REST: Duration = Duration::from_millis(50);
/// The other servers on the store.
pub struct PeerServers {
    aggregator: Arc<Aggregator>,
    servers: Arc<RegisteredServers>,
    /// The name of this server.
    own: String,
    /// The authorities that may have signed the certificates of others (PEM).
    ca_bundle: ArcSwap<Vec<u8>>,
    current: ArcSwap<ServedElsewhere>,
    known: Mutex<BTreeMap<String, KnownPeer>>,
    queue: Queue<String>,
    changed: Notify,
    kept: ByteBudget,
    turn: AtomicUsize,
    failures: AtomicU64,
    /// The failures of peers to say what they serve.
    silent: RepeatLog,
    rerouted: Mutex<BTreeMap<Rerouted, u64>>,
}

/// Requests for a resource that were passed on to peers, and answered so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rerouted {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The code of the answers.
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

/// What all peers serve, as documents show it.
#[derive(Clone, Default)]
pub struct PeerDescriptions {
    /// Which state of it this is: the number goes up with each change.
    pub generation: u64,
    /// What each of them has built in.
    pub discovery: Arc<PeerDocuments>,
    /// What they publish of the versions that this server does not serve, each as one of them has it.
    pub openapi: Vec<Arc<ForeignDocument>>,
    /// The same in version 2.
    pub paths: Vec<Arc<ForeignPaths>>,
}

/// What all peers serve at one moment.
#[derive(Default)]
struct ServedElsewhere {
    /// What this server had itself, as of these generations.
    here: (u64, u64),
    described: PeerDescriptions,
    /// By resource: the peers that have it, those that answered last if any did.
    ways: HashMap<ResourceName, Vec<Arc<Upstream>>>,
}

/// A server that may live.
#[derive(Clone)]
struct KnownPeer {
    holder: String,
    address: SocketAddr,
    /// The authorities by which it is known.
    ca_bundle: Arc<Vec<u8>>,
    upstream: Arc<Upstream>,
    /// Whether it did when it was asked last.
    answers: bool,
    /// What it said that it serves: of the core group, and of the others.
    documents: [PeerDocument; 2],
    /// What it publishes of the versions that this server does not serve.
    openapi: OpenApi,
}

impl PeerServers {
    /// Those beside the server of this name, whose certificates these authorities have signed (PEM).
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

    /// Knows them by other authorities from now on (PEM). All are asked again.
    pub fn change_authorities(&self, ca_bundle: Vec<u8>) {
        self.ca_bundle.store(Arc::new(ca_bundle));
        self.changed.notify_one();
    }

    /// Which state of what they serve is the newest: the number goes up with each change.
    pub fn generation(&self) -> u64 {
        self.current.load().described.generation
    }

    /// What they serve, as documents show it.
    pub fn described(&self) -> PeerDescriptions {
        self.current.load().described.clone()
    }

    /// A peer that serves a resource; of several each in turn.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Upstream>> {
        let current = self.current.load();
        if current.ways.is_empty() {
            return None;
        }
        let ways = current.ways.get(&(group.to_owned(), version.to_owned(), resource.to_owned()))?;
        ways.get(self.turn.fetch_add(1, Ordering::Relaxed) % ways.len()).cloned()
    }

    /// The resources whose objects this server does not know, each in the first of its versions.
    pub(crate) fn unknown_here(&self) -> Vec<PeerResource> {
        let surface = self.aggregator.registry().surface();
        let known = self.known.lock();
        let mut found: BTreeMap<(&str, &str), PeerResource> = BTreeMap::new();
        // Of one that does not answer only what no other has.
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

    /// How a peer is called.
    fn config(&self, peer: &KnownPeer) -> ClientConfig {
        let (host, port) = (peer.address.ip().to_string(), peer.address.port());
        let destination = Destination::Server { host, port, server_name: SERVER_NAME.to_owned() };
        ClientConfig::new(destination, peer.ca_bundle.to_vec())
    }

    /// Notes that a request was passed on, and how it was answered.
    pub fn note_rerouted(&self, rerouted: Rerouted) {
        *self.rerouted.lock().entry(rerouted).or_default() += 1;
    }

    /// How often requests were passed on for what a peer still serves.
    pub fn rerouted(&self) -> Vec<(Rerouted, u64)> {
        self.rerouted.lock().iter().map(|(what, times)| (what.clone(), *times)).collect()
    }

    /// How often a peer did not say what it serves.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Follows them until the server stops.
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

    /// Looks who lives, and what is served here, whenever either may have changed.
    async fn look(&self) -> Infallible {
        let mut surfaces = self.aggregator.registry().surfaces().changes();
        loop {
            let has_changed = match self.servers.all().await {
                Ok(servers) => self.take_in(servers),
                Err(error) => {
                    warn_repeated!(""; %error, "which servers live is not known; it is looked again");
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

    /// The states of what this server has itself, by which it is judged what is not a peer's.
    fn here(&self) -> (u64, u64) {
        (self.aggregator.registry().surface().generation(), self.aggregator.current().generation())
    }

    /// Knows those that may live, and asks those that are new. Whether any came or went.
    fn take_in(&self, servers: Vec<RegisteredServer>) -> bool {
        let others = servers.into_iter().filter(|server| server.id != self.own && server.life != Life::Dead);
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
            // Until a process that has taken another's place was asked, it is taken to serve the same.
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
            let asked = Asked { peer: &peer, aggregator: &self.aggregator, kept: &self.kept };
            let documents = asked.documents(&known.documents).await?;
            self.take(&id, &known.holder, |peer| (peer.answers, peer.documents) = (true, documents.clone()));
            Ok(asked.openapi(&documents, &known.openapi).await)
        };
        match asked.await {
            Ok(openapi) => {
                self.take(&id, &known.holder, |peer| peer.openapi = openapi);
                if let Some(due) = self.silent.worked(&id) {
                    tracing::info!(server_id = id, repeats = due.repeats, "a peer says again what it serves");
                }
                Outcome::Done
            }
            Err::<_, String>(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if let Some(due) = self.silent.failed(&id) {
                    tracing::warn!(server_id = id, repeats = due.repeats, why, "a peer does not say what it serves");
                }
                self.take(&id, &known.holder, |peer| peer.answers = false);
                Outcome::Again
            }
        }
    }

    /// Notes what a peer has said, and shows it, unless another process has taken its place.
    fn take(&self, id: &str, holder: &str, note: impl FnOnce(&mut KnownPeer)) {
        match self.known.lock().get_mut(id).filter(|peer| peer.holder == holder) {
            Some(peer) => note(peer),
            None => return,
        }
        self.publish();
    }

    /// Shows what is known now.
    fn publish(&self) {
        // Held to the end, so that what is shown never goes back.
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
                if let Some(service) = services.of(&version.group, &version.version) {
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

/// Whether a lease is that of a server.
fn is_identity(lease: &Entry) -> bool {
    lease.labels.get(IDENTITY_LABEL) == Some(IDENTITY_VALUE)
}

/// What peers publish, of each version what the first says that has it, so that all servers show the same.
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
    /// What it publishes of versions that it still serves, and this server does not.
    fn openapi(&self) -> impl Iterator<Item = &Arc<ForeignDocument>> {
        let served = self.served();
        self.openapi.documents().filter(move |document| served.contains(document.path()))
    }

    /// The same in version 2.
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

/// Who has each resource. Those that do not answer are left out where another does.
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
