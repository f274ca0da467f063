//! The in-memory copy of a program's objects for reads, and the path of writes to the program.
//!
//! The copy is in the server's memory store, where the cache and the verbs find it like any object. A write goes to the
//! program first, under a lock that also guards updates from the program. The copy therefore never contains a write
//! that the program has not accepted, and a write based on an old copy is computed again. A concurrent change by the
//! program is copied first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use keelson_codec::stored::StoredObject;
use keelson_meta::clock::rfc3339;
use keelson_meta::{GroupVersionKind, Object, Random, Revision};
use keelson_resources::{Collection, Resource};
use keelson_storage::{
    CommitError, Committed, KeyValue, RangeRequest, Store, StoreError, StoreKey, Transaction, Write,
};
use keelson_supervision::warn_repeated;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::external::{External, ObjectKey, StoreFault};

/// The most objects of the copy in one transaction.
const WRITES_AT_ONCE: usize = 500;
/// The most attempts of a write that conflicts at the program although the copy is up to date.
const ATTEMPTS: usize = 5;
/// The time limit of an answer from the program.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The interval between computations while a watch is open.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The delay after a failure before the program's changes are followed again.
const AGAIN: Duration = Duration::from_secs(1);

/// The copy of the objects of one resource.
pub(crate) struct Mirror {
    external: Arc<dyn External>,
    kind: GroupVersionKind,
    /// The key prefix of its objects.
    prefix: String,
    namespaced: bool,
    copy: Arc<dyn Store>,
    random: Arc<dyn Random>,
    state: Mutex<State>,
    /// The number of open watches.
    watches: AtomicUsize,
}

/// An open watch.
pub(crate) struct OpenWatch(Arc<Mirror>);

#[derive(Default)]
struct State {
    /// The program's versions of the copied objects.
    versions: HashMap<ObjectKey, String>,
    /// The start of the last complete listing.
    listed: Option<Instant>,
}

impl Mirror {
    /// Creates an empty copy for a resource in this store.
    pub(crate) fn new(
        external: Arc<dyn External>,
        resource: &Arc<Resource>,
        copy: Arc<dyn Store>,
        random: Arc<dyn Random>,
    ) -> Self {
        let version = resource.versions.first().map_or("", |version| &*version.name);
        let prefix = Collection::all(std::iter::once(resource)).first().map(Collection::key_prefix);
        Self {
            external,
            kind: resource.gvk(version),
            prefix: prefix.unwrap_or_default(),
            namespaced: resource.is_namespaced(),
            copy,
            random,
            state: Mutex::default(),
            watches: AtomicUsize::new(0),
        }
    }

    /// Returns true if each read must ask the program.
    pub(crate) fn is_computed(&self) -> bool {
        self.external.is_computed()
    }

    /// Copies all objects as of a time after this call. Concurrent calls share a listing.
    ///
    /// # Errors
    /// The failure of the program.
    pub(crate) async fn refresh(&self) -> Result<(), StoreFault> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if state.listed.is_some_and(|begun| begun >= asked) {
            return Ok(());
        }
        let begun = Instant::now();
        let mut objects = HashMap::new();
        for object in in_time(self.external.list()).await? {
            objects.insert(self.key_of(&object), object);
        }
        let stored = self.copy.range(self.everything()).await.map_err(|error| unavailable(&error))?;
        let mut writes = Vec::new();
        for entry in &stored.entries {
            if let Some(key) = self.parse(&entry.key)
                && !objects.contains_key(&key)
            {
                state.versions.remove(&key);
                writes.push(Write::Delete { key: entry.key.clone() });
            }
        }
        let known: HashMap<&StoreKey, &KeyValue> = stored.entries.iter().map(|entry| (&entry.key, entry)).collect();
        for (key, object) in objects {
            let place = self.place(&key);
            let before = known.get(&place).copied();
            writes.extend(self.taken_over(&mut state, key, place, object, before));
        }
        for chunk in writes.chunks(WRITES_AT_ONCE) {
            self.put(chunk.to_vec()).await?;
        }
        state.listed = Some(begun);
        Ok(())
    }

    /// Copies one object as of now.
    ///
    /// # Errors
    /// The failure of the program.
    pub(crate) async fn refresh_one(&self, key: &ObjectKey) -> Result<(), StoreFault> {
        let mut state = self.state.lock().await;
        self.take_over(&mut state, key).await
    }

    /// Follows the program's changes while the future runs.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let mut changes = self.external.watch();
            // ORDER: the watch starts before the listing, so that no change is lost in between.
            let mut outcome = self.refresh().await;
            while outcome.is_ok() {
                let Some(key) = changes.next().await else { break };
                outcome = self.refresh_one(&key).await;
            }
            if let Err(fault) = outcome {
                warn_repeated!(&self.kind.kind; kind = self.kind.kind, %fault, "following objects failed; retrying");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Keeps computed objects up to date for a watch, until that is closed.
    pub(crate) fn watched(self: &Arc<Self>) -> OpenWatch {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(self.clone())
    }

    /// Updates computed objects at intervals while a watch is open. Runs with the future.
    pub(crate) async fn look(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.watches.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Err(fault) = self.refresh().await {
                warn_repeated!(&self.kind.kind; kind = self.kind.kind, %fault, "objects can't be computed for their watches");
            }
        }
    }

    async fn take_over(&self, state: &mut State, key: &ObjectKey) -> Result<(), StoreFault> {
        let place = self.place(key);
        let before = self.copy.get(&place).await.map_err(|error| unavailable(&error))?;
        let write = match in_time(self.external.get(key)).await? {
            Some(object) => self.taken_over(state, key.clone(), place, object, before.as_ref()),
            None => {
                state.versions.remove(key);
                before.map(|_| Write::Delete { key: place })
            }
        };
        self.put(write.into_iter().collect()).await
    }

    /// The write that brings the copy of an object up to date; `None` if it already is.
    fn taken_over(
        &self,
        state: &mut State,
        key: ObjectKey,
        place: StoreKey,
        mut object: Object,
        before: Option<&KeyValue>,
    ) -> Option<Write> {
        state.versions.insert(key, object.resource_version().to_owned());
        object.remove_meta("resourceVersion");
        object.set_type(&self.kind);
        let known = before.and_then(|before| StoredObject::parse(before.value.clone()).ok());
        let known = known.map(|known| known.decode(Revision::ZERO));
        if object.uid().is_empty() {
            let uid = known.as_ref().map(|known| known.uid().to_owned());
            object.set_meta("uid", uid.unwrap_or_else(|| self.random.uuid()));
        }
        if object.creation_timestamp().is_none() {
            let made = known.as_ref().and_then(Object::creation_timestamp).map(str::to_owned);
            object.set_meta("creationTimestamp", made.unwrap_or_else(|| rfc3339(SystemTime::now())));
        }
        let value = StoredObject::encode(&object).bytes().clone();
        let is_new = before.is_none_or(|before| before.value != value);
        is_new.then_some(Write::Put { key: place, value, expires: None })
    }

    async fn put(&self, writes: Vec<Write>) -> Result<(), StoreFault> {
        if writes.is_empty() {
            return Ok(());
        }
        let transaction = Transaction { writes, ..Transaction::default() };
        self.copy.commit(transaction).await.map(drop).map_err(|error| StoreFault::Unavailable(error.to_string()))
    }

    /// Sends a write to the program, then to the copy.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let [write] = &transaction.writes[..] else {
            return Err(StoreError::Unavailable("objects of a program are written one by one".to_owned()).into());
        };
        let Some(key) = self.parse(write.key()) else {
            return Err(StoreError::Corrupt(format!("{} is not the key of an object", write.key())).into());
        };
        let new = match write {
            Write::Put { value, .. } => {
                let stored = StoredObject::parse(value.clone());
                let mut object = stored.map_err(|error| StoreError::Corrupt(error.to_string()))?.decode(Revision::ZERO);
                object.remove_meta("resourceVersion");
                Some(object)
            }
            Write::Delete { .. } => None,
        };
        let mut state = self.state.lock().await;
        for _ in 0..ATTEMPTS {
            for compare in &transaction.compares {
                let current = self.copy.get(&compare.key).await?.map(|entry| entry.revision);
                if !compare.condition.holds(current) {
                    // The copy reports the failed compare with the current value; the write is computed again.
                    return self.copy.commit(transaction).await;
                }
            }
            let expected = state.versions.get(&key).cloned();
            let written = self.external.write(&key, expected.as_deref(), new.clone());
            let Ok(written) = tokio::time::timeout(ANSWER_TIME, written).await else {
                return Err(StoreError::Unknown(format!("no answer in {ANSWER_TIME:?}")).into());
            };
            match written {
                Ok(version) => {
                    match new {
                        Some(_) => state.versions.insert(key, version),
                        None => state.versions.remove(&key),
                    };
                    return self.copy.commit(transaction).await;
                }
                // Another writer changed the object: the copy is updated first.
                Err(StoreFault::Conflict) => {
                    let taken = self.take_over(&mut state, &key).await;
                    taken.map_err(|fault| StoreError::Unavailable(fault.to_string()))?;
                }
                Err(StoreFault::Unavailable(cause)) => return Err(StoreError::Unavailable(cause).into()),
            }
        }
        Err(StoreError::Unavailable("others write the object too fast".to_owned()).into())
    }

    /// Returns true if the object of this key belongs to the resource.
    pub(crate) fn has(&self, key: &StoreKey) -> bool {
        key.as_str().starts_with(&self.prefix)
    }

    fn key_of(&self, object: &Object) -> ObjectKey {
        let namespace = self.namespaced.then(|| object.namespace().to_owned());
        ObjectKey { namespace, name: object.name().to_owned() }
    }

    fn place(&self, key: &ObjectKey) -> StoreKey {
        StoreKey::new(match &key.namespace {
            Some(namespace) => format!("{}{namespace}/{}", self.prefix, key.name),
            None => format!("{}{}", self.prefix, key.name),
        })
    }

    fn parse(&self, place: &StoreKey) -> Option<ObjectKey> {
        let rest = place.as_str().strip_prefix(&self.prefix)?;
        match rest.split_once('/') {
            Some((namespace, name)) => Some(ObjectKey { namespace: Some(namespace.to_owned()), name: name.to_owned() }),
            None => Some(ObjectKey { namespace: None, name: rest.to_owned() }),
        }
    }

    fn everything(&self) -> RangeRequest {
        let (from, to) = (StoreKey::new(self.prefix.clone()), StoreKey::prefix_end(&self.prefix));
        RangeRequest { from, to, revision: None, limit: None }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Limits the time of an answer from the program.
async fn in_time<T>(fault: impl Future<Output = Result<T, StoreFault>>) -> Result<T, StoreFault> {
    let late = |_| StoreFault::Unavailable(format!("no answer in {ANSWER_TIME:?}"));
    tokio::time::timeout(ANSWER_TIME, fault).await.map_err(late)?
}

fn unavailable(error: &StoreError) -> StoreFault {
    StoreFault::Unavailable(error.to_string())
}
