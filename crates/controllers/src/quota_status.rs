//! Keeps the status of quotas up to date: the limits in force, and the usage counted from existing objects.
//!
//! A write that increases the usage adds to it in its own transaction. This controller counts again after deletions and
//! reductions, which lowers the usage. A count is written only if the quota has not changed since the count began, so
//! no usage added meanwhile is lost.
//!
//! All quotas of a namespace are counted together, and each object is read once for all of them. So a namespace with
//! many quotas and objects occupies one worker, and the other workers serve other namespaces.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::{Collection, Entry, Scope, TooOld, WatchCursor};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::json;
use keelson_meta::{Amounts, ApiError, Object, Revision};
use keelson_registry::{QuotaUse, Registry, Target, is_too_large, object_use, quota_use};
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{CONTROLLER_MANAGER, Client};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The number of namespaces counted concurrently.
const AT_ONCE: usize = 4;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(5) };
/// The time for which a task counts objects before it yields the thread, in microseconds.
const COUNTED_AT_ONCE: usize = 3000;
/// The time to read an object, and the time to count it for one quota, in microseconds.
const READ: usize = 30;
const COUNT: usize = 1;
/// The number of events of one resource that are read in one batch.
const EVENTS_AT_ONCE: usize = 1000;
/// The number of events of quotas that are read in one batch.
const QUOTAS_AT_ONCE: usize = 100;
/// The pause between two passes over the events.
const REST: Duration = Duration::from_millis(50);
/// The longest wait for a write before the next pass.
const QUIET: Duration = Duration::from_secs(30);
/// The interval between checks for a resource that is not served yet.
const UNSERVED: Duration = Duration::from_millis(500);
/// The longest delay of a count that is unlikely to change the usage.
const LATER: Duration = Duration::from_secs(5);
/// The longest wait for the cache to catch up with the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// A resource: group and plural name.
type Resource = (String, String);

/// The controller.
pub struct QuotaStatus {
    registry: Arc<Registry>,
    client: Client,
    /// The namespaces to count.
    queue: Queue<String>,
    /// The names of the quotas to count, by namespace.
    waiting: Mutex<HashMap<String, BTreeSet<String>>>,
}

/// A collection whose events are read, and the position in its history.
struct FollowedCollection {
    collection: Arc<Collection>,
    cursor: WatchCursor,
}

/// The known quotas, and the resources that each counts.
#[derive(Default)]
struct CountedQuotas {
    /// The collection of quotas; `None` before the first pass.
    quotas: Option<FollowedCollection>,
    /// The resources that each quota counts, by the key of the quota.
    known: HashMap<Arc<str>, Vec<Resource>>,
    /// The keys of the quotas that count a resource, by resource and namespace.
    by_resource: HashMap<Resource, HashMap<String, HashSet<Arc<str>>>>,
    /// The generation of the surface whose resources are followed; `None` if the followed resources must be determined
    /// again.
    followed_at: Option<u64>,
    is_all_served: bool,
}

impl QuotaStatus {
    /// Creates a controller over a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        let client = Client::of_controller(registry.clone(), "resourcequota-controller", CONTROLLER_MANAGER);
        Self { registry, client, queue: Queue::new("resourcequota_primary", BACKOFF), waiting: Mutex::default() }
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let Ok(quotas) = self.client.collection("", "v1", "resourcequotas", None) else { return };
        let all = FieldSelector::default();
        let of_quotas = follow(&self.registry, self.client.caller(), &quotas, all, |entry| {
            self.add(&entry.key);
        });
        let work = self.queue.run(AT_ONCE, |namespace| self.turn(namespace));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = of_quotas => match never {},
            never = self.follow_resources() => match never {},
            never = work => match never {},
        }
    }

    /// Enqueues a quota, by its key `<namespace>/<name>`, to be counted.
    fn add(&self, key: &str) {
        let Some((namespace, name)) = key.split_once('/') else { return };
        self.waiting.lock().entry(namespace.to_owned()).or_default().insert(name.to_owned());
        self.queue.add(namespace.to_owned());
    }

    async fn turn(&self, namespace: String) -> Outcome {
        let names = self.waiting.lock().remove(&namespace).unwrap_or_default();
        let left = self.count(&namespace, names).await;
        if left.is_empty() {
            return Outcome::Done;
        }
        self.waiting.lock().entry(namespace).or_default().extend(left);
        Outcome::Again
    }

    /// Counts quotas of a namespace. Returns the names of those that must be counted again.
    async fn count(&self, namespace: &str, names: BTreeSet<String>) -> Vec<String> {
        let mut left = Vec::new();
        let mut again = |name: String, error: ApiError| match error {
            ApiError::NotFound { .. } => {}
            ApiError::Conflict { .. } => left.push(name),
            // For example a quota whose names don't fit into its status too. It is counted again after a change of the
            // quota or of the objects that it counts.
            error if is_too_large(&error) => {
                let key = format!("{namespace}/{name}");
                warn_repeated!(&key; key, %error, "the status of a quota is too large for the store, so the quota is not enforced");
            }
            error => {
                let key = format!("{namespace}/{name}");
                warn_repeated!(&key; key, %error, "the usage of a quota could not be counted; retrying");
                left.push(name);
            }
        };
        let Ok(target) = self.client.collection("", "v1", "resourcequotas", Some(namespace)) else { return left };
        let mut quotas = Vec::new();
        for name in names {
            match self.client.get(&target, &name).await {
                Ok(Some(stored)) => quotas.push((name, stored)),
                Ok(None) => {}
                Err(error) => again(name, error),
            }
        }
        // ORDER: before the count, the cache must contain every write that has added usage to the quotas up to this
        // revision. Usage added later changes the quota, so the count is not written.
        let newest = quotas.iter().map(|(_, stored)| stored.revision).max().unwrap_or(Revision::ZERO);
        if let Err(behind) = self.registry.cache().wait_for(newest, PATIENCE).await {
            let error = || ApiError::Internal(format!("the cache is only at {}", behind.current));
            quotas.into_iter().for_each(|(name, _)| again(name, error()));
            return left;
        }
        let uses: Vec<QuotaUse> = quotas.iter().map(|(_, stored)| quota_use(&stored.object)).collect();
        let used = self.used(&uses, namespace).await;
        for ((name, stored), used) in quotas.into_iter().zip(used) {
            if let Err(error) = self.write(&target, stored.object, &used).await {
                again(name, error);
            }
        }
        left
    }

    /// Writes the status of a quota if it has changed.
    async fn write(&self, target: &Target, mut quota: Object, used: &Amounts) -> Result<(), ApiError> {
        let hard = quota.get(&["spec", "hard"]).cloned().unwrap_or_else(|| json!({}));
        let status = json!({ "hard": hard, "used": used.to_value() });
        if quota.get(&["status"]) == Some(&status) {
            return Ok(());
        }
        quota.0.insert("status", status);
        self.client.update(&target.clone().below("status"), quota).await.map(|_| ())
    }

    /// The usage by the objects of a namespace for each of these quotas.
    async fn used(&self, quotas: &[QuotaUse], namespace: &str) -> Vec<Amounts> {
        let mut used = vec![Amounts::default(); quotas.len()];
        let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
        let mut counted: BTreeMap<Resource, Vec<usize>> = BTreeMap::new();
        for (place, quota) in quotas.iter().enumerate() {
            quota.resources().into_iter().for_each(|resource| counted.entry(resource).or_default().push(place));
        }
        for ((group, plural), places) in counted {
            let Some(collection) = self.collection(&group, &plural) else { continue };
            let snapshot = collection.snapshot();
            let number = snapshot.count(&from, Some(&to)) + collection.count_unreadable(&from);
            let mut by_object = Vec::new();
            for place in places {
                let quota = &quotas[place];
                quota.begin(&mut used[place], &group, &plural);
                // A quota may have tens of thousands of names, so each one yields.
                tokio::task::yield_now().await;
                if quota.needs_number_only(&group, &plural) {
                    quota.add_number(&mut used[place], &group, &plural, number);
                } else {
                    by_object.push(place);
                }
            }
            if by_object.is_empty() {
                continue;
            }
            let entries: Vec<Arc<Entry>> = snapshot.range(&from, Some(&to)).cloned().collect();
            for some in entries.chunks((COUNTED_AT_ONCE / (READ + COUNT * by_object.len())).max(1)) {
                for entry in some {
                    let object = entry.object().decode(entry.revision);
                    let object = object_use(&group, &plural, &object);
                    by_object.iter().for_each(|place| quotas[*place].add(&mut used[*place], &object));
                }
                tokio::task::yield_now().await;
            }
        }
        used
    }

    /// The stored objects of a resource; `None` if it is not served or not namespaced.
    fn collection(&self, group: &str, plural: &str) -> Option<Arc<Collection>> {
        let surface = self.registry.surface();
        let served = surface.resource(group, plural).filter(|served| served.is_namespaced())?;
        served.stored().map(|stored| stored.cached.clone())
    }

    /// Enqueues quotas when the objects that they count change. Never returns.
    async fn follow_resources(&self) -> Infallible {
        let (mut followed, mut wanted) = (HashMap::new(), CountedQuotas::default());
        let (mut late, mut flushed) = (HashSet::new(), Instant::now());
        loop {
            let seen = self.registry.cache().watermark();
            let is_all_served = self.look(&mut followed, &mut wanted, &mut late);
            if flushed.elapsed() >= LATER {
                late.drain().for_each(|key: Arc<str>| self.add(&key));
                flushed = Instant::now();
            }
            tokio::time::sleep(REST).await;
            let quiet = match (is_all_served, late.is_empty()) {
                (false, _) => UNSERVED,
                (true, false) => LATER,
                (true, true) => QUIET,
            };
            // Waits for the next write. Without any write in this time there is nothing to process.
            let _waited = self.registry.cache().wait_for(seen.next(), quiet).await;
        }
    }

    /// Enqueues the quotas affected by new events. Returns true if all counted resources are served.
    ///
    /// Cost: proportional to the new events. After a change of a quota's resources or of the served resources, also
    /// proportional to all resources that quotas count.
    fn look(
        &self,
        followed: &mut HashMap<Resource, FollowedCollection>,
        wanted: &mut CountedQuotas,
        late: &mut HashSet<Arc<str>>,
    ) -> bool {
        let Ok(changed) = self.read_quotas(wanted) else { return false };
        let generation = self.registry.surface().generation();
        if changed || wanted.followed_at != Some(generation) {
            wanted.is_all_served = self.follow_served(followed, wanted);
            wanted.followed_at = Some(generation);
        }
        followed.retain(|resource, known| {
            let Some(namespaces) = wanted.by_resource.get(resource) else { return false };
            let Ok((now, later)) = known.touched() else {
                // Events were missed. The next pass follows the resource again.
                wanted.followed_at = None;
                return false;
            };
            let keys =
                |touched: HashSet<String>| touched.into_iter().filter_map(|name| namespaces.get(&name)).flatten();
            keys(now).for_each(|key| self.add(key));
            late.extend(keys(later).cloned());
            true
        });
        wanted.is_all_served
    }

    /// Follows the counted resources that are served, and enqueues the quotas of resources that appeared or
    /// disappeared. Returns true if all counted resources are served.
    fn follow_served(&self, followed: &mut HashMap<Resource, FollowedCollection>, wanted: &CountedQuotas) -> bool {
        let mut is_all_served = true;
        for (resource, namespaces) in &wanted.by_resource {
            let all = || namespaces.values().flatten().for_each(|key| self.add(key));
            let Some(collection) = self.collection(&resource.0, &resource.1) else {
                is_all_served = false;
                if followed.remove(resource).is_some() {
                    all();
                }
                continue;
            };
            let is_followed = followed.get(resource).is_some_and(|known| Arc::ptr_eq(&known.collection, &collection));
            if !is_followed {
                let Ok(known) = FollowedCollection::from_now(collection) else { continue };
                followed.insert(resource.clone(), known);
                all();
            }
        }
        is_all_served
    }

    /// Reads the quotas that changed since the last pass. Returns true if any counts other resources than before.
    fn read_quotas(&self, wanted: &mut CountedQuotas) -> Result<bool, ApiError> {
        let collection = self.client.collection("", "v1", "resourcequotas", None)?.collection()?.clone();
        let known = wanted.quotas.take().filter(|known| Arc::ptr_eq(&known.collection, &collection));
        let Some(mut known) = known else {
            let known = FollowedCollection::from_now(collection)?;
            wanted.known.clear();
            wanted.by_resource.clear();
            for entry in known.collection.snapshot().range("", None) {
                wanted.put(entry);
            }
            wanted.quotas = Some(known);
            return Ok(true);
        };
        let mut changed = false;
        loop {
            // If events were missed, all quotas are read again.
            let Ok(batch) = known.cursor.try_next(QUOTAS_AT_ONCE) else { return self.read_quotas(wanted) };
            for event in &batch.events {
                match (&event.current, &event.previous) {
                    (Some(entry), _) => changed |= wanted.put(entry),
                    (None, Some(entry)) => changed |= wanted.remove(&entry.key, entry.namespace().unwrap_or_default()),
                    (None, None) => {}
                }
            }
            if batch.events.len() < QUOTAS_AT_ONCE {
                wanted.quotas = Some(known);
                return Ok(changed);
            }
        }
    }
}

impl FollowedCollection {
    /// Follows a collection from its current revision on.
    fn from_now(collection: Arc<Collection>) -> Result<Self, ApiError> {
        let cursor = collection.watch(collection.snapshot().revision, Scope::All);
        let cursor = cursor.map_err(|_| ApiError::Internal("the history of a resource is too short".to_owned()))?;
        Ok(Self { collection, cursor })
    }

    /// The namespaces in which the usage may have decreased since the last pass, and those with any other change.
    fn touched(&mut self) -> Result<(HashSet<String>, HashSet<String>), TooOld> {
        let (mut now, mut later) = (HashSet::new(), HashSet::new());
        loop {
            let batch = self.cursor.try_next(EVENTS_AT_ONCE)?;
            for event in &batch.events {
                let (before, after) = (event.previous.as_ref(), event.current.as_ref());
                let Some(namespace) = after.or(before).and_then(|entry| entry.namespace()) else { continue };
                let touched = if gives_back(before, after) { &mut now } else { &mut later };
                if !touched.contains(namespace) {
                    touched.insert(namespace.to_owned());
                }
            }
            if batch.events.len() < EVENTS_AT_ONCE {
                return Ok((now, later));
            }
        }
    }
}

impl CountedQuotas {
    /// Records a quota in its current state. Returns true if it counts other resources than before.
    fn put(&mut self, entry: &Entry) -> bool {
        let resources = quota_use(&entry.object().decode(entry.revision)).resources();
        if self.known.get(&entry.key).is_some_and(|known| *known == resources) {
            return false;
        }
        let namespace = entry.namespace().unwrap_or_default();
        self.remove(&entry.key, namespace);
        for resource in &resources {
            let by_namespace = self.by_resource.entry(resource.clone()).or_default();
            by_namespace.entry(namespace.to_owned()).or_default().insert(entry.key.clone());
        }
        self.known.insert(entry.key.clone(), resources);
        true
    }

    /// Removes a quota. Returns true if it was known.
    fn remove(&mut self, key: &str, namespace: &str) -> bool {
        let Some(resources) = self.known.remove(key) else { return false };
        for resource in &resources {
            let Some(by_namespace) = self.by_resource.get_mut(resource) else { continue };
            let Some(keys) = by_namespace.get_mut(namespace) else { continue };
            keys.remove(key);
            if keys.is_empty() {
                by_namespace.remove(namespace);
            }
            if by_namespace.is_empty() {
                self.by_resource.remove(resource);
            }
        }
        true
    }
}

/// Returns true if a change may reduce the usage, as far as the entry shows without decoding the object. Increases were
/// already added by the write itself.
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
    fn the_resources_of_a_quota_follow_from_its_limits() {
        let hard: Value = json!({ "pods": "1", "requests.cpu": "2", "count/things.example.org": "3", "nothing": "4" });
        let quota = Object::from_value(json!({ "spec": { "hard": hard } })).unwrap();
        let mut resources = quota_use(&quota).resources();
        resources.sort();
        let named = |group: &str, plural: &str| (group.to_owned(), plural.to_owned());
        assert_eq!(resources, [named("", "pods"), named("example.org", "things")]);
    }
}
