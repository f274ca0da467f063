//! Checks whether aggregated servers are there, and says so in the condition `Available` of their APIServices.
//!
//! First what the store knows of the service is looked at, then its endpoints are asked for the version. The code of the answer is all
//! that counts. One server of those on a store does this, the others read the condition; each APIService is checked on its own, so
//! one that hangs delays no other. Reasons and texts are upstream's, since people and scripts read them.

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

/// How often a server is checked of which nothing has changed.
const INTERVAL: Duration = Duration::from_secs(30);
/// How soon one is checked again that is not available.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: INTERVAL };
/// How many are checked at once. Each takes a few seconds at the most.
const AT_ONCE: usize = 64;
/// How many bytes of an answer are read. What they say does not matter.
const ANSWER_BYTES: usize = 4 << 20;
/// The reason of a condition where the server does not answer for its version as it should.
pub(crate) const FAILED_CHECK: &str = "FailedDiscoveryCheck";

/// The checks of all APIServices.
pub struct Availability {
    aggregator: Arc<Aggregator>,
    services: Target,
    slices: Target,
    /// The names of APIServices to look at.
    queue: Queue<String>,
    last_checks: Mutex<HashMap<String, LastCheck>>,
}

/// What was checked last, and what was said of it: when nothing of this has changed, there is nothing to look at.
#[derive(Clone, PartialEq, Eq)]
struct LastCheck {
    uid: String,
    backend: Backend,
    written: u64,
    condition: Condition,
}

impl Availability {
    /// Checks what this server knows of.
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

    /// Checks until told to stop.
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

    /// Has an APIService looked at, unless it is as it was left. Whoever touches one has its server asked, as upstream does.
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

    /// Has those looked at that are behind a service, of which it or its endpoints have changed.
    fn look_at_those_behind(&self, entry: &Entry) {
        // A service, or a slice of one.
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
                warn_repeated!(&name; name, %error, "whether an API service is available could not be written; trying again");
                Outcome::Again
            }
        }
    }

    /// Checks an APIService and says what was found; whether it is available, or gone.
    async fn check(&self, name: &str) -> Result<bool, ApiError> {
        let Some(entry) = self.aggregator.services().collection()?.get(name) else { return Ok(true) };
        let service = ApiService::read(&entry);
        let condition = match &service.backend {
            Backend::Local => Condition::new(true, "Local", "Local APIServices are always available".to_owned()),
            Backend::Remote(remote) => self.condition(&service, remote).await,
        };
        let is_told = service.condition.as_ref() == Some(&condition);
        let was_available = service.is_available();
        // Before it is written: what was written comes back as a change.
        let ApiService { uid, backend, written, .. } = service;
        let check = LastCheck { uid, backend, written, condition: condition.clone() };
        self.last_checks.lock().insert(service.name, check);
        if !is_told {
            let mut next = entry.object.decode(entry.revision);
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

/// Whether a server has the version.
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
    /// Writes the condition. Its time is that of its last change from one status to the other.
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
