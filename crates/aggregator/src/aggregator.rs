//! Follows the stored APIServices and keeps their current state for requests.
//!
//! An event only names the changed object; its state is then read from the cache. So a burst of changes causes one new
//! state, and unchanged objects are not read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use keelson_controllers::{Backoff, Client, Outcome, Queue, SERVER_MANAGER, follow};
use keelson_meta::ApiError;
use keelson_meta::field_selector::FieldSelector;
use keelson_outbound::Outbound;
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api_service::ApiService;
use crate::api_services::ApiServices;
use crate::discovery::{AggregatedDiscovery, DiscoveryFetcher};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// Follows the APIServices of one server.
pub struct Aggregator {
    registry: Arc<Registry>,
    outbound: Arc<Outbound>,
    client: Client,
    services: Target,
    current: ArcSwap<ApiServices>,
    /// Held while a new state is built, so that states appear in order.
    showing: Mutex<()>,
    discovery: DiscoveryFetcher,
    /// The number of times that each APIService became unavailable, by name and reason.
    losses: Mutex<BTreeMap<(String, String), u64>>,
    /// The names of APIServices that changed since they were read. A set, so at most one entry for each.
    changed: Mutex<HashSet<String>>,
    /// A queue with a single key, whose turn reads the changed APIServices.
    reading: Queue<()>,
}

impl Aggregator {
    /// Creates the aggregator with the APIServices stored now.
    ///
    /// # Errors
    /// 500 when APIServices are not served.
    pub fn start(registry: Arc<Registry>, outbound: Arc<Outbound>) -> Result<Arc<Self>, ApiError> {
        let client = Client::of_server(registry.clone(), SERVER_MANAGER);
        let services = client.collection("apiregistration.k8s.io", "v1", "apiservices", None)?;
        let aggregator = Arc::new(Self {
            registry,
            outbound,
            client,
            services,
            current: ArcSwap::default(),
            showing: Mutex::default(),
            discovery: DiscoveryFetcher::default(),
            losses: Mutex::default(),
            changed: Mutex::default(),
            reading: Queue::new("APIServiceRegistrationController", BACKOFF),
        });
        aggregator.read_all()?;
        Ok(aggregator)
    }

    /// The registered APIServices. A request reads this once.
    ///
    /// Cost: one atomic increment.
    pub fn current(&self) -> Arc<ApiServices> {
        self.current.load_full()
    }

    /// The registered APIServices, after this APIService was read again from the cache. A client that has seen this
    /// version as available can therefore send requests for it.
    ///
    /// Cost: a lookup in the cache, and the pending changes.
    pub fn current_about(&self, group: &str, version: &str) -> Arc<ApiServices> {
        let name = format!("{version}.{group}");
        if let Err(error) = self.read(&HashSet::from([name])) {
            warn_repeated!(&group; %error, "reading an API service failed; its last known state is used");
        }
        self.current()
    }

    /// The registered APIServices, including every write to this APIService that any server committed before the call.
    /// Without a response from the store, returns the cached state.
    pub async fn newest_about(&self, group: &str, version: &str) -> Arc<ApiServices> {
        if let Err(error) = self.registry.catch_up_with_store().await {
            tracing::debug!(%error, "reading the newest state failed; the cached API services are used");
        }
        self.current_about(group, version)
    }

    /// The discovery documents of the aggregated servers that have answered.
    ///
    /// Cost: one atomic increment.
    pub fn discovery(&self) -> Arc<AggregatedDiscovery> {
        self.discovery.current()
    }

    /// Follows the APIServices until the server stops.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let caller = self.client.caller();
        let following = follow(&self.registry, caller, &self.services, FieldSelector::default(), |service| {
            self.changed.lock().insert(service.name().to_owned());
            self.reading.add(());
        });
        let reading = self.reading.run(1, |()| std::future::ready(self.read_again()));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = reading => match never {},
            never = self.discovery.run(&self.outbound, || self.current()) => match never {},
        }
    }

    /// The number of times that each registered APIService became unavailable, as seen by this server, by name and
    /// reason.
    pub fn losses(&self) -> Vec<((String, String), u64)> {
        self.losses.lock().iter().map(|(what, times)| (what.clone(), *times)).collect()
    }

    pub(crate) fn note_loss(&self, name: &str, reason: &str) {
        *self.losses.lock().entry((name.to_owned(), reason.to_owned())).or_default() += 1;
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(crate) fn outbound(&self) -> &Arc<Outbound> {
        &self.outbound
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The collection of the APIServices.
    pub(crate) fn services(&self) -> &Target {
        &self.services
    }

    fn read_again(&self) -> Outcome {
        let changed = std::mem::take(&mut *self.changed.lock());
        match self.read(&changed).and_then(|()| self.read_what_went()) {
            Ok(()) => Outcome::Done,
            Err(error) => {
                self.changed.lock().extend(changed);
                warn_repeated!(""; %error, "reading the API services failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Reads these APIServices from the cache.
    fn read(&self, changed: &HashSet<String>) -> Result<(), ApiError> {
        let collection = self.services.collection()?;
        let showing = self.showing.lock();
        let before = self.current();
        let read = |name: &String| {
            let entry = collection.get(&self.services.relative_key(name));
            let known = before.named(name).map(|service| service.revision);
            let is_known = entry.as_ref().map(|entry| entry.revision) == known;
            (!is_known).then(|| (name.clone(), entry.map(|entry| Arc::new(ApiService::read(&entry)))))
        };
        let changes: Vec<_> = changed.iter().filter_map(read).collect();
        if !changes.is_empty() {
            self.show(&before, before.with(changes));
        }
        drop(showing);
        Ok(())
    }

    /// Reads all APIServices again if a known one is not in the cache: an APIService deleted while no watch was open
    /// sent no event.
    fn read_what_went(&self) -> Result<(), ApiError> {
        if self.services.collection()?.len() == self.current().len() { Ok(()) } else { self.read_all() }
    }

    /// Reads all APIServices from the cache.
    fn read_all(&self) -> Result<(), ApiError> {
        let collection = self.services.collection()?;
        let _showing = self.showing.lock();
        let snapshot = collection.snapshot();
        let before = self.current();
        let all = snapshot.range("", None).map(|entry| Arc::new(ApiService::read(entry)));
        self.show(&before, ApiServices::new(before.generation() + 1, all));
        Ok(())
    }

    fn show(&self, before: &ApiServices, now: ApiServices) {
        let now = Arc::new(now);
        self.current.store(now.clone());
        self.losses.lock().retain(|(name, _), _| now.named(name).is_some());
        self.discovery.update(before, &now);
    }
}
