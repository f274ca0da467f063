//! Automatic APIServices: one for each version of a built-in or custom group.
//!
//! A label marks automatic APIServices. For built-in groups they are created when the server starts, and changes by
//! users last until the next start. For custom groups they follow the definitions and are restored after every change.
//! APIServices without the label belong to users and are not changed. Of the servers on one store, only one runs this
//! controller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_controllers::{Backoff, Outcome, Queue, RegisteredServers, RevisedObject, follow};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::ServedApis;
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::aggregator::Aggregator;

/// The label of automatic APIServices. Its value says when the controller restores the object.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };
/// The number of concurrent writes: enough to share commits.
const AT_ONCE: usize = 32;

/// Keeps the automatic APIServices.
pub struct AutomaticServices {
    aggregator: Arc<Aggregator>,
    /// The servers on the store.
    servers: Arc<RegisteredServers>,
    /// The names of APIServices to create, restore or delete.
    queue: Queue<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last processed surface.
    surface: Arc<ServedApis>,
    /// The desired APIServices by group, then name.
    wanted: HashMap<String, BTreeMap<String, WantedService>>,
    /// The APIServices that existed at start and have not been processed yet.
    at_start: BTreeSet<String>,
    /// Desired APIServices that have been found or made correct once since the start.
    settled: BTreeSet<String>,
}

impl State {
    /// The desired APIService with this name, such as `v1.apps`.
    fn wanted(&self, name: &str) -> Option<&WantedService> {
        let (_, group) = name.split_once('.')?;
        self.wanted.get(group)?.get(name)
    }
}

/// The times at which an APIService is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Automanaged {
    OnStart,
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedService {
    kept: Automanaged,
    spec: Value,
}

impl Automanaged {
    const fn as_str(self) -> &'static str {
        match self {
            Self::OnStart => "onstart",
            Self::Always => "true",
        }
    }

    /// Parses the label; `None` for an APIService of a user.
    fn from_object(object: &Object) -> Option<Self> {
        let label = object.labels().find(|(key, _)| *key == LABEL).map(|(_, value)| value)?;
        [Self::OnStart, Self::Always].into_iter().find(|kept| kept.as_str() == label)
    }
}

impl AutomaticServices {
    /// Creates the controller for this server's groups.
    pub fn new(aggregator: Arc<Aggregator>, servers: Arc<RegisteredServers>) -> Self {
        Self { aggregator, servers, queue: Queue::new("autoregister", BACKOFF), state: Mutex::default() }
    }

    /// Runs until cancelled.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let registry = self.aggregator.registry();
        let mut changes = registry.surfaces().changes();
        changes.mark_unchanged();
        let at_start = self.aggregator.current();
        self.state.lock().at_start = at_start.services().map(|service| service.name.clone()).collect();
        self.want(&registry.surface());
        let surfaces = async {
            while changes.changed().await.is_ok() {
                self.want(&registry.surface());
            }
        };
        let caller = self.aggregator.client().caller();
        let seen = |entry: &Entry| self.queue.add(entry.name().to_owned());
        tokio::select! {
            () = stopping.cancelled() => {}
            () = surfaces => {}
            never = follow(registry, caller, self.aggregator.services(), FieldSelector::default(), seen) => match never {},
            never = self.queue.run(AT_ONCE, |name| self.turn(name)) => match never {},
        }
    }

    /// Records the served groups and enqueues the APIServices that differ from the last surface.
    fn want(&self, surface: &Arc<ServedApis>) {
        let mut state = self.state.lock();
        let last = std::mem::replace(&mut state.surface, surface.clone());
        for group in surface.changed_groups(&last) {
            let wanted = wanted(surface, group);
            let before = state.wanted.remove(group).unwrap_or_default();
            for gone in before.keys().filter(|name| !wanted.contains_key(*name)) {
                state.settled.remove(gone);
                self.queue.add(gone.clone());
            }
            let new = wanted.iter().filter(|(name, wanted)| before.get(*name) != Some(wanted)).map(|(name, _)| name);
            new.for_each(|name| self.queue.add(name.clone()));
            if !wanted.is_empty() {
                state.wanted.insert(group.to_owned(), wanted);
            }
        }
    }

    async fn turn(&self, name: String) -> Outcome {
        match self.keep(&name).await {
            Ok(()) => {
                let mut state = self.state.lock();
                state.at_start.remove(&name);
                if state.wanted(&name).is_some() {
                    state.settled.insert(name);
                }
                Outcome::Done
            }
            Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; name, %error, "writing an automatic API service failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Creates, restores or deletes an APIService, unless it belongs to a user.
    async fn keep(&self, name: &str) -> Result<(), ApiError> {
        let (wanted, was_there, is_settled) = {
            let state = self.state.lock();
            (state.wanted(name).cloned(), state.at_start.contains(name), state.settled.contains(name))
        };
        if wanted.as_ref().is_some_and(|wanted| wanted.kept == Automanaged::OnStart) && is_settled {
            return Ok(());
        }
        let (client, services) = (self.aggregator.client(), self.aggregator.services());
        let Some(stored) = client.get(services, name).await? else {
            return match wanted {
                Some(wanted) => client.create(services, object(name, &wanted)).await.map(|_| ()),
                None => Ok(()),
            };
        };
        let Some(kept) = Automanaged::from_object(&stored.object) else { return Ok(()) };
        if kept == Automanaged::OnStart && !was_there {
            return Ok(());
        }
        match wanted {
            Some(wanted) if stored.object.get(&["spec"]) == Some(&wanted.spec) => Ok(()),
            Some(wanted) => {
                let mut next = stored.object;
                next.0.insert("spec", wanted.spec);
                client.update(services, next).await.map(|_| ())
            }
            None => self.delete(kept, &stored).await,
        }
    }

    /// Deletes an APIService that is no longer desired, unless another server on the store may run a release with this
    /// built-in group.
    async fn delete(&self, kept: Automanaged, stored: &RevisedObject) -> Result<(), ApiError> {
        let (client, services) = (self.aggregator.client(), self.aggregator.services());
        if kept == Automanaged::Always {
            return client.delete(services, stored).await;
        }
        if self.is_one_of_several().await? {
            return Ok(());
        }
        client.delete(services, stored).await?;
        // ORDER: a server registers before it creates missing APIServices. If another server is registered now, it may
        // have seen this APIService, so it is created again. A server that registers later finds it deleted and creates
        // it.
        if self.is_one_of_several().await? {
            let spec = stored.object.get(&["spec"]).cloned().unwrap_or_default();
            return match client.create(services, object(stored.object.name(), &WantedService { kept, spec })).await {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        Ok(())
    }

    async fn is_one_of_several(&self) -> Result<bool, ApiError> {
        Ok(self.servers.all().await?.len() > 1)
    }
}

/// The APIServices of built-in groups, which are created at start.
pub fn builtin_services(surface: &ServedApis) -> Vec<Value> {
    let wanted: BTreeMap<String, WantedService> = surface.groups().flat_map(|group| wanted(surface, group)).collect();
    let at_start = wanted.into_iter().filter(|(_, wanted)| wanted.kept == Automanaged::OnStart);
    at_start.map(|(name, wanted)| object(&name, &wanted)).collect()
}

/// The group of APIServices. It has no APIService itself, so it can't be moved to another server.
pub(crate) const OWN_GROUP: &str = "apiregistration.k8s.io";

/// The APIServices of a served group by name, such as `v1.apps`, or `v1.` for the core group.
fn wanted(surface: &ServedApis, group: &str) -> BTreeMap<String, WantedService> {
    if group == OWN_GROUP {
        return BTreeMap::new();
    }
    let mut found: BTreeMap<String, (Automanaged, u32, u32)> = BTreeMap::new();
    for resource in surface.resources_of(group) {
        let kept = if resource.is_builtin() { Automanaged::OnStart } else { Automanaged::Always };
        for version in resource.versions().iter().filter(|version| !version.hidden) {
            let stated = (kept, resource.group_priority(), version.priority());
            // A custom resource in a version that also has built-in resources does not change the version's APIService.
            let known = found.entry(version.name.to_string()).or_insert(stated);
            if kept == Automanaged::OnStart {
                *known = (kept, known.1.max(stated.1), known.2.max(stated.2));
            }
        }
    }
    let named = found.into_iter().map(|(version, (kept, group_priority, priority))| {
        let mut spec = json!({});
        if !group.is_empty() {
            spec["group"] = json!(group);
        }
        spec["version"] = json!(version);
        spec["groupPriorityMinimum"] = json!(group_priority);
        spec["versionPriority"] = json!(priority);
        (format!("{version}.{group}"), WantedService { kept, spec })
    });
    named.collect()
}

fn object(name: &str, wanted: &WantedService) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name, "labels": {LABEL: wanted.kept.as_str()}},
        "spec": wanted.spec,
    })
}
