//! The task that follows the APIServices, and what it knows of them now.
//!
//! Events only say that something has changed: what is there is read from the cache, so a burst of changes makes one new value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keelson_controllers::{Backoff, Client, Outcome, Queue, follow};
use keelson_meta::ApiError;
use keelson_meta::field_selector::FieldSelector;
use keelson_registry::{Registry, Target};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::aggregated::Aggregated;
use crate::api_service::ApiService;

/// Who owns the fields that the server writes: upstream's name, by which its tools know them.
const MANAGER: &str = "kube-apiserver";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// Follows the APIServices of one server.
pub struct Aggregator {
    registry: Arc<Registry>,
    client: Client,
    services: Target,
    current: ArcSwap<Aggregated>,
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
    pub fn start(registry: Arc<Registry>) -> Result<Arc<Self>, ApiError> {
        let client = Client::of_server(registry.clone(), MANAGER);
        let services = client.collection("apiregistration.k8s.io", "v1", "apiservices", None)?;
        let aggregator = Arc::new(Self {
            registry,
            client,
            services,
            current: ArcSwap::default(),
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
        }
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
        let generation = self.current.load().generation() + 1;
        self.current.store(Arc::new(Aggregated::new(generation, known.values().cloned())));
        Ok(())
    }
}
