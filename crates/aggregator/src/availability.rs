//! Checks whether aggregated servers answer, and writes the condition `Available` of their APIServices.
//!
//! A check first reads the service from the store, then requests the version from an endpoint; only the status code
//! counts. One server on a store runs the checks, the others read the condition. Each APIService has its own check, so
//! a check that hangs delays no other. Reasons and texts are upstream's, since people and scripts read them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use keelson_cache::Entry;
use keelson_controllers::{Backoff, Outcome, Queue, follow};
use keelson_meta::clock::rfc3339;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::json;
use keelson_meta::{ApiError, Object};
use keelson_outbound::{RemoteService, RestClient};
use keelson_registry::{SERVICE_NAME_LABEL, Target};
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::aggregator::Aggregator;
use crate::api_service::{ApiService, Backend, Condition};
use crate::endpoints::Endpoints;
use crate::requester::AGGREGATOR;

/// The interval between checks of an unchanged server.
const INTERVAL: Duration = Duration::from_secs(30);
/// The backoff of an unavailable server.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: INTERVAL };
/// The number of concurrent checks. Each takes a few seconds at the most.
const AT_ONCE: usize = 64;
/// The most bytes read of a response, in total. Its content is ignored.
const ANSWER_BYTES: usize = 4 << 20;
/// The reason of a condition after a wrong or missing response.
pub(crate) const FAILED_CHECK: &str = "FailedDiscoveryCheck";

/// The checks of all APIServices.
pub struct Availability {
    aggregator: Arc<Aggregator>,
    services: Target,
    slices: Target,
    /// The names of APIServices to check.
    queue: Queue<String>,
    last_checks: Mutex<HashMap<String, LastCheck>>,
}

/// The inputs and result of the last check. While none of them changes, no check is needed.
#[derive(Clone, PartialEq, Eq)]
struct LastCheck {
    uid: String,
    backend: Backend,
    written: u64,
    condition: Condition,
}

impl Availability {
    /// Creates the checks for the registered APIServices.
    ///
    /// # Errors
    /// 500 when services or their endpoints are not served.
    pub fn new(aggregator: Arc<Aggregator>) -> Result<Self, ApiError> {
        let services = aggregator.client().collection("", "v1", "services", None)?;
        let slices = aggregator.client().collection("discovery.k8s.io", "v1", "endpointslices", None)?;
        Ok(Self {
            aggregator,
            services,
            slices,
            queue: Queue::new("AvailableConditionController", BACKOFF),
            last_checks: Mutex::default(),
        })
    }

    /// Runs until cancelled.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let (registry, client) = (self.aggregator.registry(), self.aggregator.client());
        let follow = |target, seen| follow(registry, client.caller(), target, FieldSelector::default(), seen);
        let changed = |entry: &Entry| self.note(&ApiService::read(entry));
        let moved = |entry: &Entry| self.look_at_those_behind(entry);
        let every: &(dyn Fn(&Entry) + Send + Sync) = &changed;
        let moves: &(dyn Fn(&Entry) + Send + Sync) = &moved;
        tokio::select! {
            () = stopping.cancelled() => {}
            never = follow(self.aggregator.services(), every) => match never {},
            never = follow(&self.services, moves) => match never {},
            never = follow(&self.slices, moves) => match never {},
            never = self.queue.run(AT_ONCE, |name| self.turn(name)) => match never {},
            () = self.look_again() => {}
        }
    }

    /// Enqueues an APIService unless it is in the state that the last check left. As upstream, a user can trigger a
    /// check by changing the object.
    fn note(&self, service: &ApiService) {
        let is_as_left = self.last_checks.lock().get(&service.name).is_some_and(|check| {
            check.uid == service.uid
                && check.backend == service.backend
                && check.written == service.written
                && service.condition.as_ref() == Some(&check.condition)
        });
        if !is_as_left {
            self.queue.add(service.name.clone());
        }
    }

    /// Enqueues the APIServices of a service after a change of the service or of one of its slices.
    fn look_at_those_behind(&self, entry: &Entry) {
        // The entry is a service, or a slice with the service's name in a label.
        let (current, namespace) = (self.aggregator.current(), entry.namespace().unwrap_or_default());
        let names = [Some(entry.name()), entry.labels.get(SERVICE_NAME_LABEL)];
        for service in names.into_iter().flatten().flat_map(|name| current.behind(namespace, name)) {
            self.queue.add(service.name.clone());
        }
    }

    async fn look_again(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let current = self.aggregator.current();
            for (service, _) in current.remotes() {
                self.queue.add(service.name.clone());
            }
            self.last_checks.lock().retain(|name, _| current.named(name).is_some());
        }
    }

    async fn turn(&self, name: String) -> Outcome {
        match self.check(&name).await {
            Ok(true) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Ok(false) | Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; name, %error, "writing the availability of an API service failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Checks an APIService and writes its condition. Returns true if the server is available, or the APIService no
    /// longer exists.
    async fn check(&self, name: &str) -> Result<bool, ApiError> {
        let Some(entry) = self.aggregator.services().collection()?.get(name) else { return Ok(true) };
        let service = ApiService::read(&entry);
        let condition = match &service.backend {
            Backend::Local => Condition::new(true, "Local", "Local APIServices are always available".to_owned()),
            Backend::Remote(remote) => self.condition(&service, remote).await,
        };
        let is_told = service.condition.as_ref() == Some(&condition);
        let was_available = service.is_available();
        // Recorded before the write: the write causes an event, which must not trigger another check.
        let ApiService { uid, backend, written, .. } = service;
        let check = LastCheck { uid, backend, written, condition: condition.clone() };
        self.last_checks.lock().insert(service.name, check);
        if !is_told {
            let mut next = entry.object().decode(entry.revision);
            condition.tell(&mut next, &rfc3339(self.aggregator.client().now()));
            self.say(next).await?;
            if was_available && !condition.holds() {
                self.aggregator.note_loss(name, &condition.reason);
            }
        }
        Ok(condition.holds())
    }

    async fn say(&self, next: Object) -> Result<(), ApiError> {
        let status = self.aggregator.services().clone().below("status").named(next.name());
        self.aggregator.client().update(&status, next).await.map(|_| ())
    }

    async fn condition(&self, service: &ApiService, remote: &RemoteService) -> Condition {
        let outbound = self.aggregator.outbound();
        if !outbound.is_routed(&remote.namespace, &remote.name) {
            let endpoints = Endpoints { services: &self.services, slices: &self.slices };
            match endpoints.check(remote) {
                Ok(Some(condition)) => return condition,
                Ok(None) => {}
                Err(error) => return Condition::unknown("ServiceAccessError", error.status().message),
            }
        }
        let failed = |message| Condition::new(false, FAILED_CHECK, message);
        let clients = match remote.clients(outbound) {
            Ok(clients) => clients,
            Err(why) => return failed(why),
        };
        let path = service.path();
        let mut asked: FuturesUnordered<_> = clients.iter().map(|client| ask(client, &path)).collect();
        let mut last = String::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(()) => return Condition::new(true, "Passed", "all checks passed".to_owned()),
                Err(why) => last = why,
            }
        }
        failed(last)
    }
}

/// Requests the version from a server.
async fn ask(client: &RestClient, path: &str) -> Result<(), String> {
    let at = client.at(path);
    let failed = |why: String| format!("failing or missing response from {at}: {why}");
    let answer = AGGREGATOR.get(client, path, None, http::HeaderMap::new(), ANSWER_BYTES).await;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    if !(200..300).contains(&answer.status) {
        return Err(failed(format!("bad status from {at}: {}", answer.status)));
    }
    Ok(())
}

impl Condition {
    /// Writes the condition. Its transition time changes only with its status.
    fn tell(&self, object: &mut Object, now: &str) {
        let status = object.0.entry("status").or_insert_with(|| json!({}));
        let Some(status) = status.as_object_mut() else { return };
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        let Some(conditions) = conditions.as_array_mut() else { return };
        let known = conditions.iter_mut().find(|condition| condition["type"] == "Available");
        let since = known.as_ref().filter(|known| known["status"] == self.status.as_str());
        let since = since.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
        let told = json!({
            "type": "Available",
            "status": self.status,
            "lastTransitionTime": since,
            "reason": self.reason,
            "message": self.message,
        });
        match known {
            Some(known) => *known = told,
            None => conditions.push(told),
        }
    }
}
