//! Keeps the status of quotas: the limits in force, and the usage counted from existing objects.
//!
//! Writes add their usage in their own transaction. This controller gives usage back: after deletions and reductions it
//! counts again. A count is written only if the quota has not changed since the count began, so no usage added
//! meanwhile is lost.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::{Collection, Entry, Scope, WatchCursor};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::json;
use keelson_meta::{Amounts, ApiError, Object, Revision};
use keelson_registry::{QuotaUse, Registry, quota_use};
use keelson_supervision::warn_repeated;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{CONTROLLER_MANAGER, Client};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The number of quotas counted concurrently.
const AT_ONCE: usize = 4;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(5) };
/// The number of objects read before a yield to other tasks: some 30 us each.
const OBJECTS_AT_ONCE: usize = 100;
/// The most events of a resource processed before the next resource.
const EVENTS_AT_ONCE: usize = 1000;
/// The pause between two passes.
const REST: Duration = Duration::from_millis(50);
/// The longest wait for a write before the next pass.
const QUIET: Duration = Duration::from_secs(30);
/// The interval between checks for a resource that is not served yet.
const UNSERVED: Duration = Duration::from_millis(500);
/// The longest delay for a count that hardly changes anything.
const LATER: Duration = Duration::from_secs(5);
/// The longest wait for the cache to catch up with the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// A resource: group and plural name.
type Resource = (String, String);

/// The controller.
pub struct QuotaStatus {
    registry: Arc<Registry>,
    client: Client,
    /// The keys of quotas: `<namespace>/<name>`.
    queue: Queue<String>,
}

/// The followed collection of a resource.
struct Followed {
    collection: Arc<Collection>,
    cursor: WatchCursor,
}

/// The quotas by counted resource.
#[derive(Default)]
struct Wanted {
    /// The revision and counted resources of each quota.
    known: HashMap<Arc<str>, (Revision, Vec<Resource>)>,
    /// The keys of quotas by resource and namespace.
    by_resource: HashMap<Resource, HashMap<String, Vec<Arc<str>>>>,
}

impl QuotaStatus {
    /// Creates a controller over a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        let client = Client::of_controller(registry.clone(), "resourcequota-controller", CONTROLLER_MANAGER);
        Self { registry, client, queue: Queue::new("resourcequota_primary", BACKOFF) }
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let Ok(quotas) = self.client.collection("", "v1", "resourcequotas", None) else { return };
        let all = FieldSelector::default();
        let of_quotas = follow(&self.registry, self.client.caller(), &quotas, all, |entry| {
            self.queue.add(entry.key.to_string());
        });
        let work = self.queue.run(AT_ONCE, |key| self.turn(key));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = of_quotas => match never {},
            never = self.follow_resources() => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self, key: String) -> Outcome {
        match self.count(&key).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&key; key, %error, "the usage of a quota could not be counted; trying again");
                Outcome::Again
            }
        }
    }

    async fn count(&self, key: &str) -> Result<(), ApiError> {
        let Some((namespace, name)) = key.split_once('/') else { return Ok(()) };
        let target = self.client.collection("", "v1", "resourcequotas", Some(namespace))?;
        let Some(stored) = self.client.get(&target, name).await? else { return Ok(()) };
        // ORDER: before the count, the cache catches up with all usage added up to this revision. Usage added later
        // changes the quota, so the count is not written.
        let reached = self.registry.cache().wait_for(stored.revision, PATIENCE).await;
        reached.map_err(|behind| ApiError::Internal(format!("the cache is only at {}", behind.current)))?;
        let used = self.used(&quota_use(&stored.object), namespace).await;
        let hard = stored.object.get(&["spec", "hard"]).cloned().unwrap_or_else(|| json!({}));
        let status = json!({ "hard": hard, "used": used.to_value() });
        if stored.object.get(&["status"]) == Some(&status) {
            return Ok(());
        }
        let mut next: Object = stored.object;
        next.0.insert("status", status);
        self.client.update(&target.below("status"), next).await.map(|_| ())
    }

    /// The usage by the objects of a namespace.
    async fn used(&self, quota: &QuotaUse, namespace: &str) -> Amounts {
        let mut used = Amounts::default();
        let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
        for (group, plural) in quota.resources() {
            let Some(collection) = self.collection(&group, &plural) else { continue };
            quota.begin(&mut used, &group, &plural);
            let snapshot = collection.snapshot();
            if quota.needs_number_only(&group, &plural) {
                let unreadable = collection.count_unreadable(&from);
                quota.add_number(&mut used, &group, &plural, snapshot.count(&from, Some(&to)) + unreadable);
                continue;
            }
            let entries: Vec<Arc<Entry>> = snapshot.range(&from, Some(&to)).cloned().collect();
            for some in entries.chunks(OBJECTS_AT_ONCE) {
                for entry in some {
                    quota.add(&mut used, &group, &plural, &entry.object.decode(entry.revision));
                }
                tokio::task::yield_now().await;
            }
        }
        used
    }

    /// The objects of a served resource with namespaces.
    fn collection(&self, group: &str, plural: &str) -> Option<Arc<Collection>> {
        let surface = self.registry.surface();
        let served = surface.resource(group, plural).filter(|served| served.is_namespaced())?;
        served.stored().map(|stored| stored.cached.clone())
    }

    /// Enqueues quotas when the objects that they count change.
    async fn follow_resources(&self) -> Infallible {
        let (mut followed, mut wanted) = (HashMap::new(), Wanted::default());
        let (mut late, mut flushed) = (HashSet::new(), Instant::now());
        loop {
            let seen = self.registry.cache().watermark();
            let is_all_served = self.look(&mut followed, &mut wanted, &mut late);
            if flushed.elapsed() >= LATER {
                late.drain().for_each(|key: Arc<str>| self.queue.add(key.to_string()));
                flushed = Instant::now();
            }
            tokio::time::sleep(REST).await;
            let quiet = match (is_all_served, late.is_empty()) {
                (false, _) => UNSERVED,
                (true, false) => LATER,
                (true, true) => QUIET,
            };
            // Without any write for that long there is nothing to process.
            let _waited = self.registry.cache().wait_for(seen.next(), quiet).await;
        }
    }

    /// Processes new events. Returns true if all counted resources are served.
    fn look(
        &self,
        followed: &mut HashMap<Resource, Followed>,
        wanted: &mut Wanted,
        late: &mut HashSet<Arc<str>>,
    ) -> bool {
        if self.read_quotas(wanted).is_err() {
            return false;
        }
        let mut is_all_served = true;
        followed.retain(|resource, _| wanted.by_resource.contains_key(resource));
        for (resource, namespaces) in &wanted.by_resource {
            let all = || namespaces.values().flatten().for_each(|key| self.queue.add(key.to_string()));
            let Some(collection) = self.collection(&resource.0, &resource.1) else {
                is_all_served = false;
                if followed.remove(resource).is_some() {
                    all();
                }
                continue;
            };
            let is_followed = followed.get(resource).is_some_and(|known| Arc::ptr_eq(&known.collection, &collection));
            if !is_followed {
                let Ok(cursor) = collection.watch(collection.snapshot().revision, Scope::All) else { continue };
                followed.insert(resource.clone(), Followed { collection, cursor });
                all();
                continue;
            }
            let Some(known) = followed.get_mut(resource) else { continue };
            loop {
                let Ok(batch) = known.cursor.try_next(EVENTS_AT_ONCE) else {
                    followed.remove(resource);
                    break;
                };
                for event in &batch.events {
                    let (before, after) = (event.previous.as_ref(), event.current.as_ref());
                    let Some(entry) = after.or(before) else { continue };
                    let keys = entry.namespace().and_then(|namespace| namespaces.get(namespace));
                    for key in keys.into_iter().flatten() {
                        if gives_back(before, after) {
                            self.queue.add(key.to_string());
                        } else {
                            late.insert(key.clone());
                        }
                    }
                }
                if batch.events.len() < EVENTS_AT_ONCE {
                    break;
                }
            }
        }
        is_all_served
    }

    /// Reads the counted resources of each quota. Unchanged quotas are not read again.
    fn read_quotas(&self, wanted: &mut Wanted) -> Result<(), ApiError> {
        let quotas = self.client.collection("", "v1", "resourcequotas", None)?;
        let snapshot = quotas.collection()?.snapshot();
        let known = std::mem::take(&mut wanted.known);
        wanted.by_resource.clear();
        for entry in snapshot.range("", None) {
            let resources = match known.get(&entry.key) {
                Some((revision, resources)) if *revision == entry.revision => resources.clone(),
                _ => quota_use(&entry.object.decode(entry.revision)).resources(),
            };
            let namespace = entry.namespace().unwrap_or_default();
            for resource in &resources {
                let by_namespace = wanted.by_resource.entry(resource.clone()).or_default();
                by_namespace.entry(namespace.to_owned()).or_default().push(entry.key.clone());
            }
            wanted.known.insert(entry.key.clone(), (entry.revision, resources));
        }
        Ok(())
    }
}

/// Returns true if a change may reduce the usage, as far as the entry shows without decoding the object. Increases were
/// added by the write itself.
fn gives_back(before: Option<&Arc<Entry>>, after: Option<&Arc<Entry>>) -> bool {
    let phase = |entry: &Arc<Entry>| entry.field_named("status.phase").to_owned();
    match (before, after) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(before), Some(after)) => before.terminating != after.terminating || phase(before) != phase(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::Value;

    #[test]
    fn a_quota_names_the_resources_that_it_counts() {
        let hard: Value = json!({ "pods": "1", "requests.cpu": "2", "count/things.example.org": "3", "nothing": "4" });
        let quota = Object::from_value(json!({ "spec": { "hard": hard } })).unwrap();
        let mut resources = quota_use(&quota).resources();
        resources.sort();
        let named = |group: &str, plural: &str| (group.to_owned(), plural.to_owned());
        assert_eq!(resources, [named("", "pods"), named("example.org", "things")]);
    }
}
