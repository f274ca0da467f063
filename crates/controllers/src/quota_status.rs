//! Keeps the status of quotas: the limits in force, and the usage counted from existing objects.
//!
//! Writes add their usage in their own transaction. This controller gives usage back: after deletions and reductions it
//! counts again. A count is written only if the quota has not changed since the count began, so no usage added
//! meanwhile is lost.
//!
//! The quotas of a namespace are counted together, and each object is read once for all of them. So a namespace with many quotas and
//! objects takes one of the workers, and others have the rest.

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

/// How many namespaces are counted at once.
const AT_ONCE: usize = 4;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(5) };
/// How long objects are counted before others get the thread, in microseconds.
const COUNTED_AT_ONCE: usize = 3000;
/// How long it takes to read an object, and to count it for one quota, in microseconds.
const READ: usize = 30;
const COUNT: usize = 1;
/// How many events of a resource are looked at before the next one's.
const EVENTS_AT_ONCE: usize = 1000;
/// How many quotas are read at once.
const QUOTAS_AT_ONCE: usize = 100;
/// How long it rests between two looks.
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
    /// Namespaces.
    queue: Queue<String>,
    /// The names of the quotas that are to be counted, by namespace.
    waiting: Mutex<HashMap<String, BTreeSet<String>>>,
}

/// The followed collection of a resource.
struct Followed {
    collection: Arc<Collection>,
    cursor: WatchCursor,
}

/// The quotas by counted resource.
#[derive(Default)]
struct Wanted {
    /// The quotas, from the first look on.
    quotas: Option<Followed>,
    /// Of each quota the resources that it counts.
    known: HashMap<Arc<str>, Vec<Resource>>,
    /// By resource and namespace, the keys of quotas.
    by_resource: HashMap<Resource, HashMap<String, HashSet<Arc<str>>>>,
    /// The generation of the surface by which resources are followed; `None` if they have to be gone through.
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

    /// Has a quota counted, by its key `<namespace>/<name>`.
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

    /// Counts quotas of a namespace. Returns the names of those that have to be counted again.
    async fn count(&self, namespace: &str, names: BTreeSet<String>) -> Vec<String> {
        let mut left = Vec::new();
        let mut again = |name: String, error: ApiError| match error {
            ApiError::NotFound { .. } => {}
            ApiError::Conflict { .. } => left.push(name),
            // A quota with more names than fit into its status too. It is counted again when it, or what it counts, has changed.
            error if is_too_large(&error) => {
                let key = format!("{namespace}/{name}");
                warn_repeated!(&key; key, %error, "the status of a quota is too large to be stored, so it does not hold");
            }
            error => {
                let key = format!("{namespace}/{name}");
                warn_repeated!(&key; key, %error, "what is used of a quota could not be counted; trying again");
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
        // ORDER: the cache has all that was taken of the quotas up to this revision before they are counted. What is taken later changes
        // a quota, and its count is not written.
        let newest = quotas.iter().map(|(_, stored)| stored.revision).max().unwrap_or(Revision::ZERO);
        if let Err(behind) = self.registry.cache().wait_for(newest, PATIENCE).await {
            let error = |()| ApiError::Internal(format!("the cache is only at {}", behind.current));
            quotas.into_iter().for_each(|(name, _)| again(name, error(())));
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

    /// Writes the status of a quota, unless it says the same already.
    async fn write(&self, target: &Target, mut quota: Object, used: &Amounts) -> Result<(), ApiError> {
        let hard = quota.get(&["spec", "hard"]).cloned().unwrap_or_else(|| json!({}));
        let status = json!({ "hard": hard, "used": used.to_value() });
        if quota.get(&["status"]) == Some(&status) {
            return Ok(());
        }
        quota.0.insert("status", status);
        self.client.update(&target.clone().below("status"), quota).await.map(|_| ())
    }

    /// What the objects of a namespace use of each of some quotas.
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
                // A quota may have tens of thousands of names.
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
                    let object = entry.object.decode(entry.revision);
                    let object = object_use(&group, &plural, &object);
                    by_object.iter().for_each(|place| quotas[*place].add(&mut used[*place], &object));
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
                late.drain().for_each(|key: Arc<str>| self.add(&key));
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

    /// Looks at what has changed, and says whether all that is counted is served.
    ///
    /// Cost: that of the changes. All resources of all quotas are gone through only after one of them, or what is served, has changed.
    fn look(
        &self,
        followed: &mut HashMap<Resource, Followed>,
        wanted: &mut Wanted,
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
                // It is followed anew at the next look.
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

    /// Follows the resources that are served and counted, and counts those that have come or gone. Returns true if all are served.
    fn follow_served(&self, followed: &mut HashMap<Resource, Followed>, wanted: &Wanted) -> bool {
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
                let Ok(known) = Followed::from_now(collection) else { continue };
                followed.insert(resource.clone(), known);
                all();
            }
        }
        is_all_served
    }

    /// Reads which quotas count what, as far as that has changed. Returns true if it has.
    fn read_quotas(&self, wanted: &mut Wanted) -> Result<bool, ApiError> {
        let collection = self.client.collection("", "v1", "resourcequotas", None)?.collection()?.clone();
        let known = wanted.quotas.take().filter(|known| Arc::ptr_eq(&known.collection, &collection));
        let Some(mut known) = known else {
            let known = Followed::from_now(collection)?;
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
            // A history that has forgotten them is read again as a whole.
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

impl Followed {
    /// Follows a collection from now on.
    fn from_now(collection: Arc<Collection>) -> Result<Self, ApiError> {
        let cursor = collection.watch(collection.snapshot().revision, Scope::All);
        let cursor = cursor.map_err(|_| ApiError::Internal("the history of a resource is too short".to_owned()))?;
        Ok(Self { collection, cursor })
    }

    /// The namespaces in which less is used since the last look, and those in which something else has changed.
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

impl Wanted {
    /// Takes up a quota as it is now. Returns true if it counts other resources than before.
    fn put(&mut self, entry: &Entry) -> bool {
        let resources = quota_use(&entry.object.decode(entry.revision)).resources();
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

    /// Forgets a quota. Returns true if it was known.
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
