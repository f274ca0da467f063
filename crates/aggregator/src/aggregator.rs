//! The task that follows the APIServices, and what it knows of them now.
//!
//! Events only say that something has changed: what is there is read from the cache, so a burst of changes makes one new value.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keelson_controllers::{Backoff, Client, Outcome, Queue, follow};
use keelson_meta::ApiError;
use keelson_meta::field_selector::FieldSelector;
use keelson_outbound::Outbound;
use keelson_registry::{Registry, Target};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::aggregated::Aggregated;
use crate::api_service::ApiService;
use crate::discovering::{Discovered, Discovering};

/// Who owns the fields that the server writes: upstream's name, by which its tools know them.
const MANAGER: &str = "kube-apiserver";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// Follows the APIServices of one server.
pub struct Aggregator {
    registry: Arc<Registry>,
    outbound: Arc<Outbound>,
    client: Client,
    services: Target,
    current: ArcSwap<Aggregated>,
    discovering: Discovering,
    /// How often each APIService became unavailable, by its name and the reason.
    losses: Mutex<BTreeMap<(String, String), u64>>,
    /// What was read, by name, so that only what has changed is read again.
    known: Mutex<HashMap<String, Arc<ApiService>>>,
    /// Whether the value is to be made anew: there is one thing to look at, all of them.
    changed: Queue<()>,
}

impl Aggregator {
    /// Knows what is stored now.
    ///
    /// # Errors
    /// 500 when APIServices are not served.
    pub fn start(registry: Arc<Registry>, outbound: Arc<Outbound>) -> Result<Arc<Self>, ApiError> {
        let client = Client::of_server(registry.clone(), MANAGER);
        let services = client.collection("apiregistration.k8s.io", "v1", "apiservices", None)?;
        let aggregator = Arc::new(Self {
            registry,
            outbound,
            client,
            services,
            current: ArcSwap::default(),
            discovering: Discovering::default(),
            losses: Mutex::default(),
            known: Mutex::default(),
            changed: Queue::new(BACKOFF),
        });
        aggregator.read()?;
        Ok(aggregator)
    }

    /// What is registered now. A request takes it once.
    ///
    /// Cost: one atomic increment.
    pub fn current(&self) -> Arc<Aggregated> {
        self.current.load_full()
    }

    /// What aggregated servers serve, as far as they said so.
    ///
    /// Cost: one atomic increment.
    pub fn discovered(&self) -> Arc<Discovered> {
        self.discovering.current()
    }

    /// Follows the APIServices until the server stops.
    pub async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let caller = self.client.caller();
        let following =
            follow(&self.registry, caller, &self.services, FieldSelector::default(), |_| self.changed.add(()));
        let reading = self.changed.run(1, |()| std::future::ready(self.read_again()));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = reading => match never {},
            never = self.discovering.run(&self.outbound, || self.current()) => match never {},
        }
    }

    /// How often each APIService that is registered became unavailable as far as this server noticed, by its name and the reason.
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
        match self.read() {
            Ok(()) => Outcome::Done,
            Err(error) => {
                tracing::warn!(%error, "the API services could not be read; trying again");
                Outcome::Again
            }
        }
    }

    /// Makes the current value out of what the cache has.
    fn read(&self) -> Result<(), ApiError> {
        let snapshot = self.services.collection()?.snapshot();
        let mut known = self.known.lock();
        let mut next = HashMap::with_capacity(known.len());
        for entry in snapshot.range("", None) {
            let kept = known.remove(entry.name()).filter(|kept| kept.revision == entry.revision);
            let service = kept.unwrap_or_else(|| Arc::new(ApiService::read(entry)));
            next.insert(entry.name().to_owned(), service);
        }
        *known = next;
        let before = self.current.load_full();
        let now = Arc::new(Aggregated::new(before.generation() + 1, known.values().cloned()));
        self.current.store(now.clone());
        self.losses.lock().retain(|(name, _), _| now.named(name).is_some());
        self.discovering.take_in(&before, &now);
        Ok(())
    }
}
