//! Servers without HTTP: registries with caches of their own over one store, and clients of them.
//!
//! Actions are values, so that histories of them can be generated and shrunk.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_cache::{Cache, CacheConfig, CollectionSpec, Packing};
use keelson_meta::clock::ManualClock;
use keelson_meta::json::json;
use keelson_meta::options::{
    CreateOptions, DeleteOptions, GetOptions, ListOptions, PatchOptions, Query, UpdateOptions,
};
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, GroupVersionKind, Object, Random, Revision};
use keelson_registry::{
    Caller, ListItems, PartialRights, Patch, PatchKind, Registry, RegistryConfig, ResourceRegistration, Target,
};
use keelson_resources::{Resource, SelectableField, ServedVersion};
use keelson_schema::Schema;
use keelson_storage::Store;
use keelson_storage::faulty::{Fault, FaultyStore};
use proptest::prelude::*;

use crate::model::{Model, NAMESPACES, Pod, RequestPath, Stored, any_key, any_pod, read_entry};
pub(crate) use crate::stores::Engine;
use crate::stores::Home;

/// The longest time that a cache may take to follow, and a store to be closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The number of servers that share the store.
    pub(crate) servers: usize,
    /// The number of entries that a selected chunk scans.
    pub(crate) scan: usize,
    /// The history of a cache in bytes; with 0 it keeps as little as it can, so that the store is read.
    pub(crate) history_bytes: u64,
    /// The form of objects in a cache.
    pub(crate) packing: Packing,
    /// True if the pods are a custom resource of that name.
    pub(crate) custom: bool,
    /// True if the operator configures an index of pods.
    pub(crate) indexed: bool,
    /// The least number of objects to scan for which searches have an index.
    pub(crate) search_from: usize,
    /// The treatment of lists by callers without the right to all of their range.
    pub(crate) partial_rights: PartialRights,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            servers: 1,
            scan: 100_000,
            history_bytes: 256 << 20,
            packing: Packing::AT_ONCE,
            custom: false,
            indexed: false,
            search_from: 1000,
            partial_rights: PartialRights::AsOthers,
        }
    }
}

pub(crate) fn any_settings() -> impl Strategy<Value = Settings> {
    let scan = prop_oneof![1..6usize, Just(100_000)];
    let history_bytes = prop_oneof![Just(0), Just(256u64 << 20)];
    let packing = prop::sample::select(vec![Packing::OFF, Packing::AT_ONCE, Packing::SWITCHING]);
    let all = (1..4usize, scan, history_bytes, packing, any::<bool>(), any::<bool>());
    all.prop_map(|(servers, scan, history_bytes, packing, custom, indexed)| Settings {
        servers,
        scan,
        history_bytes,
        packing,
        custom,
        indexed,
        ..Settings::default()
    })
}

pub(crate) struct Cluster {
    store: Option<Arc<dyn Store>>,
    home: Home,
    servers: Vec<Arc<Registry>>,
    /// The connections of the servers to the store, which can be slow.
    ways: Vec<FaultyStore>,
    settings: Settings,
    random: Arc<dyn Random>,
}

impl Cluster {
    pub(crate) async fn start(engine: Engine, settings: Settings) -> Self {
        Self::start_with(engine, settings, Arc::new(SeededRandom::new(1))).await
    }

    /// Servers over an empty store, with the namespaces of the tests.
    pub(crate) async fn start_with(engine: Engine, settings: Settings, random: Arc<dyn Random>) -> Self {
        let home = Home::new(engine);
        let store = Some(home.open().await);
        let mut cluster = Self { store, home, servers: Vec::new(), ways: Vec::new(), settings, random };
        cluster.start_servers().await;
        for namespace in NAMESPACES {
            cluster.create_namespace(namespace).await;
        }
        cluster
    }

    async fn create_namespace(&self, name: &str) {
        let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        let object = Object::from_value(object).unwrap();
        self.server(0)
            .create(&target("namespaces", None), object, &Caller::server(), &CreateOptions::default())
            .await
            .unwrap();
    }

    async fn start_servers(&mut self) {
        for _ in 0..self.settings.servers {
            self.add_server(&self.settings.clone()).await;
        }
    }

    /// Starts one more server. Returns its connection to the store, and the server.
    pub(crate) async fn add_server(&mut self, settings: &Settings) -> (FaultyStore, Arc<Registry>) {
        let way = FaultyStore::new(self.store().clone());
        let registry = self.new_server(settings, Arc::new(way.clone())).await;
        self.servers.push(registry.clone());
        self.ways.push(way.clone());
        (way, registry)
    }

    async fn new_server(&self, settings: &Settings, store: Arc<dyn Store>) -> Arc<Registry> {
        // Time does not pass, so that the same history gives the same bytes.
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let (history_bytes, packing) = (settings.history_bytes, settings.packing);
        let cache_config = CacheConfig { history_bytes, packing, ..CacheConfig::new(clock.clone()) };
        let cache = Cache::start(store.clone(), specs(), cache_config).await.unwrap();
        let mut config = RegistryConfig { revision_wait: PATIENCE, skip_unreadable: true, ..RegistryConfig::default() };
        config.bounds.scan = settings.scan;
        config.search_from = settings.search_from;
        if settings.indexed {
            for resource in ["pods".to_owned(), format!("pods.{CUSTOM_GROUP}")] {
                config.index(&format!("{resource}=metadata.annotations.number")).unwrap();
            }
        }
        config.partial_rights = settings.partial_rights;
        let registry = Arc::new(keelson_builtin::registry(store, cache, clock, self.random.clone(), config));
        if settings.custom {
            registry.surfaces().put(vec![custom_pods()]).await.unwrap();
        }
        registry
    }

    /// Stops all servers, opens the store again, and starts the same number of servers. No test may hold a registry.
    pub(crate) async fn restart(&mut self) {
        self.servers.clear();
        self.ways.clear();
        let old = self.store.take().unwrap();
        let freed = async {
            while Arc::strong_count(&old) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, freed).await.expect("stopped servers let the store go");
        drop(old);
        self.store = Some(self.home.open().await);
        self.start_servers().await;
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().expect("the store is open between restarts")
    }

    /// One of the servers, for any number.
    pub(crate) fn server(&self, number: usize) -> &Arc<Registry> {
        &self.servers[number % self.servers.len()]
    }

    /// Delays every write that a server receives.
    pub(crate) fn delay(&self, number: usize, delay: Duration) {
        let fault = if delay.is_zero() { Fault::None } else { Fault::Slow(delay) };
        self.ways[number % self.ways.len()].set_tails(fault);
    }

    pub(crate) async fn revision(&self) -> u64 {
        self.store().current_revision().await.unwrap().get()
    }

    pub(crate) async fn oldest(&self) -> u64 {
        self.store().oldest_revision().await.unwrap().get()
    }

    /// Compacts all but the newest `back` revisions. The caches may receive this later or never.
    pub(crate) async fn compact(&self, back: u64, tell_caches: bool) {
        // A server's history is far longer than its cache is behind.
        self.caught_up().await;
        let newest = self.store().current_revision().await.unwrap();
        let oldest = Revision::new(newest.get().saturating_sub(back));
        self.store().compact(oldest).await.unwrap();
        if tell_caches {
            self.servers.iter().for_each(|server| server.cache().compacted(oldest));
        }
    }

    /// Waits until every cache shows everything.
    pub(crate) async fn caught_up(&self) {
        let newest = self.store().current_revision().await.unwrap();
        for server in &self.servers {
            server.cache().wait_for(newest, PATIENCE).await.unwrap();
        }
    }

    /// Compacts everything before the newest revision at once, including revisions that the caches have not received.
    /// They must then load everything again.
    pub(crate) async fn compact_unheard(&self) {
        let newest = self.store().current_revision().await.unwrap();
        self.store().compact(newest).await.unwrap();
    }

    /// Runs one write on one server, compares its result with the model, and records it there.
    pub(crate) async fn write(&self, model: &mut Model, number: usize, write: &Write) {
        let server = self.server(number);
        let before = self.revision().await;
        let known = model.newest().get(&write.key).cloned();
        let write = &write.settled(model);
        let outcome = write.apply(server, false).await;
        let after = self.revision().await;
        match (&known, &write.action, outcome) {
            (None, Action::Create(pod), Ok(Some(revision))) => {
                assert_eq!(after, revision);
                model.record(revision, &write.key, Some(pod.clone()));
            }
            (Some(known), Action::Update(pod) | Action::Merge(pod), Ok(Some(revision))) if known.pod == *pod => {
                assert_eq!((revision, after), (known.revision, before), "a change of nothing writes nothing");
            }
            (Some(_), Action::Update(pod) | Action::Merge(pod), Ok(Some(revision))) => {
                assert_eq!(after, revision);
                model.record(revision, &write.key, Some(pod.clone()));
            }
            (Some(_), Action::Delete, Ok(_)) => model.record(after, &write.key, None),
            (Some(_), Action::Create(_), Err(409)) => assert_eq!(before, after),
            (None, Action::Update(_) | Action::Merge(_) | Action::Delete, Err(404)) => assert_eq!(before, after),
            (known, _, outcome) => panic!("{write:?} of {known:?} gave {outcome:?}"),
        }
    }
}

/// The collections in the cache of a server: every stored one of the catalogue.
pub(crate) fn specs() -> Vec<CollectionSpec> {
    // Nothing here was stored before today's defaults existed.
    keelson_builtin::collection_specs().into_iter().map(|spec| CollectionSpec { complete: None, ..spec }).collect()
}

/// One write of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create(Pod),
    Update(Pod),
    Merge(Pod),
    Delete,
}

impl Write {
    /// The write in a valid form: a pod stays on its node.
    pub(crate) fn settled(&self, model: &Model) -> Self {
        let mut settled = self.clone();
        if let (Action::Update(pod) | Action::Merge(pod), Some(known)) =
            (&mut settled.action, model.newest().get(&self.key))
        {
            pod.node = known.pod.node;
        }
        settled
    }

    /// Runs the write. Returns the object's revision (none for a deletion), or the status code of the error.
    pub(crate) async fn apply(&self, server: &Registry, dry_run: bool) -> Result<Option<u64>, u16> {
        let (namespace, name) = self.key.split_once('/').unwrap();
        let target = pods(server, Some(namespace));
        let named = Target { name: Some(name.to_owned()), ..target.clone() };
        let caller = &Caller::server().rehearsing_if(dry_run);
        let written = match &self.action {
            Action::Create(pod) => {
                server.create(&target, fitted(&target, pod.object(&self.key)), caller, &CreateOptions::default()).await
            }
            Action::Update(pod) => {
                let mut sent = fitted(&named, pod.object(&self.key));
                // A custom resource is not replaced without a resourceVersion.
                if named.kind().group == CUSTOM_GROUP
                    && let Ok(current) = server.get(&named, name, &Caller::server(), &GetOptions::default()).await
                {
                    sent.set_meta("resourceVersion", current.revision.to_string());
                }
                server.update(&named, name, sent, caller, &UpdateOptions::default()).await
            }
            Action::Merge(pod) => {
                let patch = Patch { kind: PatchKind::Merge, document: pod.merge_patch(), faults: Vec::new() };
                server.patch(&named, name, &patch, caller, &PatchOptions::default()).await
            }
            Action::Delete => {
                let deleted = server.delete(&named, name, caller, &at_once()).await;
                return deleted.map(|_| None).map_err(|error| error.code());
            }
        };
        written.map(|written| written.revision.map(Revision::get)).map_err(|error| error.code())
    }
}

/// The object as decoded from a client, which sends it in the version of the target.
pub(crate) fn fitted(target: &Target, mut object: Object) -> Object {
    object.0.insert("apiVersion", target.version.api_version());
    keelson_registry::fit(target, &mut object).unwrap();
    object
}

/// The delay with which a server receives writes, often none.
pub(crate) fn any_delay() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), 1..20u64].prop_map(Duration::from_millis)
}

/// A deletion without a grace period.
pub(crate) fn at_once() -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() }
}

/// A write that mostly succeeds on a store with many of the keys.
pub(crate) fn any_write() -> impl Strategy<Value = Write> {
    let action = prop_oneof![
        4 => any_pod().prop_map(Action::Create),
        3 => any_pod().prop_map(Action::Update),
        3 => any_pod().prop_map(Action::Merge),
        2 => Just(Action::Delete),
    ];
    (any_key(), action).prop_map(|(key, action)| Write { key, action })
}

/// The pods of a namespace, or of all namespaces. Custom pods if the server has them.
pub(crate) fn pods(server: &Registry, namespace: Option<&str>) -> Target {
    match server.surface().target(CUSTOM_GROUP, "pods") {
        Ok(custom) => custom.in_namespace(namespace),
        Err(_) => target("pods", namespace),
    }
}

const CUSTOM_GROUP: &str = "models.example.com";

/// A custom resource that accepts pods, with the same selectable node name.
fn custom_pods() -> ResourceRegistration {
    let kind = GroupVersionKind { group: CUSTOM_GROUP.into(), version: "v1".into(), kind: "Pod".into() };
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let document = json!({ "type": "object", "properties": { "spec": open } });
    let node = SelectableField {
        name: "spec.nodeName".into(),
        paths: vec!["spec.nodeName".into()],
        absent: "".into(),
        versions: None,
    };
    let resource = Resource::custom(CUSTOM_GROUP, "pods", "Pod", vec![ServedVersion::custom("v1".to_owned(), [])]);
    let schema = Schema::structural(&kind, &document).unwrap();
    ResourceRegistration::new(Resource { selectable_fields: vec![node], ..resource }).with_schema("v1", &schema)
}

/// A resource of the core group.
pub(crate) fn target(plural: &str, namespace: Option<&str>) -> Target {
    keelson_builtin::surface().target("", plural).unwrap().in_namespace(namespace)
}

/// One chunk, as a client understands it.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<u64>,
    pub(crate) items: Vec<(String, Stored)>,
}

pub(crate) fn options(query: &str) -> ListOptions {
    ListOptions::parse(&Query::parse(query), false).unwrap()
}

pub(crate) fn watch_options(query: &str) -> ListOptions {
    ListOptions::parse(&Query::parse(&format!("watch=1{query}")), false).unwrap()
}

/// Lists as a client would, with these query parameters.
pub(crate) async fn list(server: &Registry, place: RequestPath, query: &str) -> Result<Page, ApiError> {
    list_as(server, &Caller::server(), place, query).await
}

/// A list by another caller.
pub(crate) async fn list_as(
    server: &Registry,
    caller: &Caller,
    place: RequestPath,
    query: &str,
) -> Result<Page, ApiError> {
    let page = server.list(&pods(server, place.namespace()), caller, &options(query)).await?;
    let items = match page.items {
        ListItems::Range { cursor, bytes } => {
            let entries: Vec<_> = cursor.flat_map(|leaf| leaf.entries().to_vec()).collect();
            assert_eq!(entries.iter().map(|entry| entry.list_bytes()).sum::<u64>(), bytes);
            entries.iter().map(|entry| read_entry(entry)).collect()
        }
        others => others.into_entries().await?.iter().map(|entry| read_entry(entry)).collect(),
    };
    Ok(Page { revision: page.revision.get(), token: page.continue_token, remaining: page.remaining, items })
}

/// Runs a test's future on one thread.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs a future with paused time, which passes only while all tasks wait.
pub(crate) fn run_paused<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// The number of cases of a property, or that of `PROPTEST_CASES`. Nothing is written on failure: the smallest input is
/// in the output.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}
