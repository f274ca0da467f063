//! The state that the tail's task, the background tasks and the users of a cache share: the routes and the environment
//! of the collections.
//!
//! A route maps a prefix of store keys to its collection. Only the tail's task changes routes, and only between two
//! batches, so a routed collection is always as fresh as the watermark.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use keelson_codec::DecodeError;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, StoreError, StoreEvent};
use parking_lot::{Mutex, RwLock};

use crate::collection::{Change, Collection, Content};
use crate::entry::Entry;
use crate::environment::Environment;
use crate::history::HistoryStartError;
use crate::packing::Packer;
use crate::spec::CollectionSpec;
use crate::stats::{Counters, TailFault};
use crate::watermark::Watermark;

/// The maximum number of unreadable values that are logged.
const NAMED_UNREADABLE: u64 = 100;

/// The state that the tail's task and the users of the cache share.
pub(crate) struct Shared {
    pub(crate) environment: Arc<Environment>,
    routes: RwLock<Routes>,
    /// The collections with events that may expire, by prefix.
    eventful: Mutex<HashMap<Arc<str>, Arc<Collection>>>,
    fault: Mutex<Option<TailFault>>,
    /// The newest known revision of the store.
    heard_of: AtomicU64,
}

/// Collections by prefix. No prefix begins with another one.
#[derive(Default)]
pub(crate) struct Routes(BTreeMap<Arc<str>, Arc<Collection>>);

/// Two prefixes, one of which begins with the other, or which are equal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the prefix {prefix} overlaps {other}, which exists already")]
pub struct Overlap {
    /// The prefix to be added.
    pub prefix: String,
    /// The existing prefix.
    pub other: String,
}

impl Routes {
    /// Returns the collection of a store key, and the relative key.
    pub(crate) fn route<'a>(&self, key: &'a str) -> Option<(&Arc<Collection>, &'a str)> {
        // No prefix begins with another one, so only the last prefix that is not above the key can match.
        let (prefix, collection) = self.0.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        key.strip_prefix(&**prefix).map(|relative| (collection, relative))
    }

    pub(crate) fn get(&self, prefix: &str) -> Option<&Arc<Collection>> {
        self.0.get(prefix)
    }

    /// Checks that a prefix may be added.
    ///
    /// # Errors
    /// [`Overlap`] if it begins with an existing prefix, or an existing prefix begins with it.
    pub(crate) fn is_free(&self, prefix: &str) -> Result<(), Overlap> {
        let above = self.0.range::<str, _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
        let above = above.filter(|(other, _)| prefix.starts_with(&***other));
        let below = self.0.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).next();
        let below = below.filter(|(other, _)| other.starts_with(prefix));
        match above.or(below) {
            Some((other, _)) => Err(Overlap { prefix: prefix.to_owned(), other: other.to_string() }),
            None => Ok(()),
        }
    }

    pub(crate) fn insert(&mut self, collection: Arc<Collection>) -> Option<Arc<Collection>> {
        self.0.insert(collection.prefix().into(), collection)
    }

    pub(crate) fn remove(&mut self, prefix: &str) -> Option<Arc<Collection>> {
        self.0.remove(prefix)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All collections, by prefix.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.0.values()
    }

    /// The collections with greater prefixes, in order.
    pub(crate) fn behind(&self, prefix: &str) -> impl Iterator<Item = &Arc<Collection>> {
        self.0.range::<str, _>((Bound::Excluded(prefix), Bound::Unbounded)).map(|(_, collection)| collection)
    }
}

impl Shared {
    pub(crate) fn new(history_bytes: u64, view_bytes: u64, packer: Arc<Packer>) -> Self {
        Self {
            environment: Arc::new(Environment::new(history_bytes, view_bytes, packer)),
            routes: RwLock::default(),
            eventful: Mutex::default(),
            fault: Mutex::default(),
            heard_of: AtomicU64::new(0),
        }
    }

    /// Creates an empty collection without a route.
    pub(crate) fn collection(&self, spec: CollectionSpec) -> Arc<Collection> {
        Arc::new(Collection::new(spec, self.environment.clone()))
    }

    pub(crate) fn watermark(&self) -> &Watermark {
        &self.environment.watermark
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.environment.counters
    }

    /// Calls `look` with the routes under their lock, so `look` must be short.
    pub(crate) fn routes<T>(&self, look: impl FnOnce(&Routes) -> T) -> T {
        look(&self.routes.read())
    }

    /// All collections, by prefix.
    pub(crate) fn collections(&self) -> Vec<Arc<Collection>> {
        self.routes.read().all().cloned().collect()
    }

    /// Adds routes to these collections. The collections must have all stored objects up to the watermark. Replaced
    /// collections are closed.
    ///
    /// ORDER: called only by the tail's task, between two batches.
    pub(crate) fn open(&self, collections: &[Arc<Collection>]) {
        let replaced: Vec<_> = {
            let mut routes = self.routes.write();
            collections.iter().filter_map(|collection| routes.insert(collection.clone())).collect()
        };
        replaced.iter().for_each(|collection| collection.close());
        self.note_events(collections);
    }

    /// Removes routes and closes their collections.
    ///
    /// ORDER: called only by the tail's task, between two batches.
    pub(crate) fn close(&self, prefixes: &[String]) {
        let removed: Vec<_> = {
            let mut routes = self.routes.write();
            prefixes.iter().filter_map(|prefix| routes.remove(prefix)).collect()
        };
        let mut eventful = self.eventful.lock();
        for collection in &removed {
            eventful.remove(collection.prefix());
            collection.close();
        }
    }

    /// Applies changes. They must be newer than all earlier ones.
    pub(crate) fn apply(&self, collection: &Arc<Collection>, changes: Vec<Change>) {
        self.counters().events.add(changes.len() as u64);
        collection.counts().events.add(changes.len() as u64);
        if collection.apply(changes) {
            self.note_events(std::slice::from_ref(collection));
        }
        collection.pool().consider(collection, false);
    }

    /// Prepends events before `floor` to a collection's history.
    pub(crate) fn prepend(&self, collection: &Arc<Collection>, floor: Revision, past: HistoryStartError) {
        collection.prepend(floor, past);
        self.note_events(std::slice::from_ref(collection));
    }

    fn note_events(&self, collections: &[Arc<Collection>]) {
        let mut eventful = self.eventful.lock();
        for collection in collections.iter().filter(|collection| collection.has_events()) {
            match eventful.get_mut(collection.prefix()) {
                Some(known) => known.clone_from(collection),
                None => drop(eventful.insert(collection.prefix().into(), collection.clone())),
            }
        }
    }

    /// Records that a revision is the newest one from `now` on.
    pub(crate) fn note_time(&self, now: SystemTime, revision: Revision) {
        self.environment.times.note(now, revision);
    }

    /// Drops the times of revisions before a time.
    pub(crate) fn forget_times(&self, before: SystemTime) {
        self.environment.times.forget_before(before);
    }

    /// Drops the events up to a revision, and expires the states before it. Costs nothing for collections without
    /// events.
    pub(crate) fn trim(&self, oldest: Revision) {
        self.environment.expire(oldest);
        self.environment.views.trim(None, oldest);
        let mut eventful: Vec<_> = self.eventful.lock().drain().map(|(_, collection)| collection).collect();
        eventful.iter().for_each(|collection| collection.trim(oldest));
        eventful.retain(|collection| !collection.is_removed());
        self.note_events(&eventful);
    }

    /// Decodes a value of a collection. Logs an unreadable value for the operator, since clients do not see it. The
    /// number of log lines is limited, because a store that another server filled may have many such values.
    pub(crate) fn decode(&self, collection: &Collection, stored: &KeyValue) -> Result<Arc<Entry>, DecodeError> {
        collection.decode(stored).inspect_err(|error| {
            let before = self.counters().undecodable.add(1);
            collection.counts().undecodable.increment();
            if before < NAMED_UNREADABLE {
                tracing::error!(key = %stored.key, %error, "a stored value is unreadable and hidden from clients");
            } else if before == NAMED_UNREADABLE {
                tracing::error!("more stored values are unreadable; further ones are counted and not logged");
            }
        })
    }

    /// Returns the change of a collection by an event.
    pub(crate) fn change(&self, collection: &Collection, key: &str, event: &StoreEvent) -> Change {
        let revision = event.revision;
        let content = match event.stored() {
            None => Content::Gone,
            Some(stored) => self.decode(collection, &stored).map_or_else(Content::Unreadable, Content::Entry),
        };
        Change { key: key.into(), revision, content }
    }

    pub(crate) fn heard_of(&self, revision: Revision) {
        self.heard_of.fetch_max(revision.get(), Ordering::Relaxed);
    }

    /// The difference between the newest known revision of the store and the watermark.
    pub(crate) fn lag(&self) -> u64 {
        self.heard_of.load(Ordering::Relaxed).saturating_sub(self.watermark().get().get())
    }

    /// The fault of the tail, if any.
    pub(crate) fn fault(&self) -> Option<TailFault> {
        self.fault.lock().clone()
    }

    pub(crate) fn set_fault(&self, now: SystemTime, error: &StoreError) {
        let mut fault = self.fault.lock();
        let since = fault.as_ref().map_or(now, |fault| fault.since);
        *fault = Some(TailFault { since, error: error.to_string() });
    }

    pub(crate) fn clear_fault(&self) {
        *self.fault.lock() = None;
    }
}
