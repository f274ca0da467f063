//! Adds collections to a running cache: loads them in parallel with the tail, and inserts them between two of its
//! batches.
//!
//! An addition is loaded at the watermark of its request. Later tail events of its keys wait in decoded form until the
//! load is complete. Then they are applied to the collection, and the routes get it. No event is lost or applied twice,
//! and the tail never waits for a load. A collection that differs from the store is reloaded in the same way, while
//! readers still see its old state.
//!
//! The task of the tail (`tail`) calls this module, since only this task knows when no batch is half applied.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::{Store, StoreError, TailBatch};
use keelson_supervision::{info_repeated, warn_repeated};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::collection::{Change, Collection};
use crate::load::{self, LoadedCollection};
use crate::shared::{Overlap, Routes, Shared};
use crate::spec::CollectionSpec;

/// The maximum size of objects that wait for one load, in bytes. Beyond it, the load starts again at the current
/// watermark.
const WAITING_BYTES: usize = 64 << 20;
/// The maximum number of attempts of a load. A load starts again after too many events or a compaction.
const ATTEMPTS: u32 = 6;

/// The reason why collections were not added.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AddError {
    /// The prefix overlaps another one.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// There is no collection with this prefix to replace.
    #[error("there is no collection {0}")]
    Missing(String),
    /// The load failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store received too many writes of these collections during the load.
    #[error("the collections changed too much while they were loaded")]
    Overrun,
    /// The cache has stopped.
    #[error("the cache has stopped")]
    Stopped,
}

/// A request to add collections.
pub(crate) struct AddRequest {
    pub(crate) specs: Vec<CollectionSpec>,
    /// True to replace the collections with these prefixes.
    pub(crate) replaces: bool,
    pub(crate) done: oneshot::Sender<Result<Vec<Arc<Collection>>, AddError>>,
}

/// All current additions.
pub(crate) struct Additions {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    /// The additions in the order of requests.
    under_way: Vec<Addition>,
    /// The collections of all additions.
    routes: Routes,
    loads: JoinSet<Done>,
    next_id: u64,
}

/// Collections added together.
struct Addition {
    id: u64,
    /// The collections in the order of the request.
    collections: Vec<Arc<Collection>>,
    /// The prefixes of the collections. An addition may have thousands, and each event looks up its addition here.
    prefixes: HashSet<Arc<str>>,
    /// Events since the start of the load, by prefix.
    waiting: BTreeMap<Arc<str>, Vec<Change>>,
    waiting_bytes: usize,
    /// The number of started loads.
    attempt: u32,
    /// True if the store has compacted the revision of the watermark. The load then waits until the tail is further.
    behind: bool,
    purpose: Purpose,
}

/// The purpose of a load.
enum Purpose {
    /// New collections, with the receiver of the result.
    Add(oneshot::Sender<Result<Vec<Arc<Collection>>, AddError>>),
    /// One existing collection that differs from the store. No caller waits for the result. If the load fails, the next
    /// comparison finds the difference again.
    Repair(Cause),
}

/// The reason for which a collection is reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The collection differs from the store.
    Differs,
    /// The collection has values that could not be read. They may be readable now.
    Unreadable,
}

impl Addition {
    /// Returns true if the addition loads the collection of this prefix.
    fn loads(&self, prefix: &str) -> bool {
        self.prefixes.contains(prefix)
    }

    fn is_repair(&self) -> bool {
        matches!(self.purpose, Purpose::Repair(_))
    }

    /// Reports a failure.
    fn fail(self, error: AddError) {
        match self.purpose {
            Purpose::Add(done) => drop(done.send(Err(error))),
            Purpose::Repair(_) => {
                let prefix = self.collections.first().map(|collection| collection.prefix());
                warn_repeated!(format_args!("{prefix:?}"); prefix, %error, "reloading a collection failed");
            }
        }
    }
}

/// A complete load.
pub(crate) struct Done {
    id: u64,
    /// The number of the attempt. Results of all but the latest attempt are ignored.
    attempt: u32,
    revision: Revision,
    loaded: Result<Vec<LoadedCollection>, StoreError>,
}

impl Additions {
    pub(crate) fn new(store: Arc<dyn Store>, shared: Arc<Shared>) -> Self {
        let (under_way, routes, loads) = (Vec::new(), Routes::default(), JoinSet::new());
        Self { store, shared, under_way, routes, loads, next_id: 0 }
    }

    /// Starts loading the requested collections.
    ///
    /// ORDER: no batch is half applied, so later tail events are those after the watermark.
    pub(crate) fn begin(&mut self, request: AddRequest) {
        let AddRequest { specs, replaces, done } = request;
        match self.accept(specs, replaces) {
            Ok(collections) => self.begin_load(collections, Purpose::Add(done)),
            Err(error) => drop(done.send(Err(error))),
        }
    }

    /// Starts reloading a collection that differs from the store, unless it is being removed or reloaded already.
    ///
    /// ORDER: as in [`Additions::begin`].
    pub(crate) fn repair(&mut self, collection: Arc<Collection>, cause: Cause) {
        if !collection.is_removed() && self.routes.is_free(collection.prefix()).is_ok() {
            self.routes.insert(collection.clone());
            self.begin_load(vec![collection], Purpose::Repair(cause));
        }
    }

    fn begin_load(&mut self, collections: Vec<Arc<Collection>>, purpose: Purpose) {
        self.next_id += 1;
        let (id, waiting) = (self.next_id, BTreeMap::new());
        let prefixes = collections.iter().map(|collection| collection.prefix().into()).collect();
        let mut addition =
            Addition { id, collections, prefixes, waiting, waiting_bytes: 0, attempt: 0, behind: false, purpose };
        self.load(&mut addition);
        self.under_way.push(addition);
    }

    /// Cancels all repairs, or those of this prefix.
    fn give_up_repairs(&mut self, prefix: Option<&str>) {
        let is_meant = |addition: &Addition| addition.is_repair() && prefix.is_none_or(|prefix| addition.loads(prefix));
        for addition in self.under_way.extract_if(.., |addition| is_meant(addition)) {
            addition.collections.iter().for_each(|collection| drop(self.routes.remove(collection.prefix())));
        }
    }

    /// Creates the collections and routes the tail's events to them, all or none.
    fn accept(&mut self, specs: Vec<CollectionSpec>, replaces: bool) -> Result<Vec<Arc<Collection>>, AddError> {
        let mut collections = Vec::with_capacity(specs.len());
        let accepted = specs.into_iter().try_for_each(|spec| {
            // The replacement loads this collection, so a repair is not necessary.
            self.give_up_repairs(Some(&spec.prefix));
            self.routes.is_free(&spec.prefix)?;
            self.shared.routes(|routes| match (replaces, routes.get(&spec.prefix)) {
                (true, Some(_)) => Ok(()),
                (true, None) => Err(AddError::Missing(spec.prefix.clone())),
                (false, _) => Ok(routes.is_free(&spec.prefix)?),
            })?;
            let collection = self.shared.collection(spec);
            self.routes.insert(collection.clone());
            collections.push(collection);
            Ok(())
        });
        if let Err(error) = accepted {
            self.forget(&collections);
            return Err(error);
        }
        Ok(collections)
    }

    fn forget(&mut self, collections: &[Arc<Collection>]) {
        for collection in collections {
            self.routes.remove(collection.prefix());
        }
    }

    /// Loads an addition at the watermark. Events that waited for an earlier load are included in this one.
    fn load(&mut self, addition: &mut Addition) {
        addition.attempt += 1;
        addition.behind = false;
        addition.waiting.clear();
        addition.waiting_bytes = 0;
        let revision = self.shared.watermark().get();
        let (store, shared) = (self.store.clone(), self.shared.clone());
        let (id, attempt, collections) = (addition.id, addition.attempt, addition.collections.clone());
        let is_repair = addition.is_repair();
        self.loads.spawn(async move {
            let loaded = load::collections(&store, &shared, &collections, revision).await;
            // ORDER: after the load, so that the cache keeps objects whose rows were lost before or during it.
            let loaded = match loaded {
                Ok(loaded) if is_repair => store.verify().await.map(|()| loaded),
                other => other,
            };
            Done { id, attempt, revision, loaded }
        });
    }

    /// Stores the events of a batch for collections that are being loaded.
    pub(crate) fn note(&mut self, batch: &TailBatch, after: Revision) {
        if self.routes.is_empty() {
            return;
        }
        for event in batch.events.iter().filter(|event| event.revision > after) {
            let Some((collection, key)) = self.routes.route(event.key.as_str()) else { continue };
            let loads = |addition: &&mut Addition| addition.loads(collection.prefix());
            let Some(addition) = self.under_way.iter_mut().find(loads) else { continue };
            let change = self.shared.change(collection, key, event);
            addition.waiting_bytes += key.len() + event.value.as_ref().map_or(0, Bytes::len);
            addition.waiting.entry(collection.prefix().into()).or_default().push(change);
        }
    }

    /// Restarts loads with too many waiting events, and loads that waited because the tail was behind a compaction.
    ///
    /// ORDER: no batch is half applied.
    pub(crate) fn got_on(&mut self) {
        self.again(|addition| addition.behind || addition.waiting_bytes > WAITING_BYTES);
    }

    /// Restarts all loads, since the tail has lost its position and the waiting events have a gap.
    pub(crate) fn begin_again(&mut self) {
        // Existing collections were reloaded with all others.
        self.give_up_repairs(None);
        self.again(|_| true);
    }

    fn again(&mut self, is_meant: impl Fn(&Addition) -> bool) {
        if self.under_way.iter().any(&is_meant) {
            for mut addition in std::mem::take(&mut self.under_way) {
                if !is_meant(&addition) {
                    self.under_way.push(addition);
                } else if addition.attempt < ATTEMPTS {
                    self.load(&mut addition);
                    self.under_way.push(addition);
                } else {
                    self.forget(&addition.collections);
                    addition.fail(AddError::Overrun);
                }
            }
        }
    }

    /// Waits for a load. `None` if none is running.
    pub(crate) async fn next(&mut self) -> Option<Done> {
        match self.loads.join_next().await? {
            Ok(done) => Some(done),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    /// Inserts the collections of a complete load.
    ///
    /// ORDER: no batch is half applied, so waiting events end at the watermark.
    pub(crate) fn finish(&mut self, done: Done) {
        let current = |addition: &Addition| (addition.id, addition.attempt) == (done.id, done.attempt);
        let Some(place) = self.under_way.iter().position(current) else { return };
        let mut addition = self.under_way.remove(place);
        if matches!(&addition.purpose, Purpose::Add(done) if done.is_closed()) {
            self.forget(&addition.collections);
            return;
        }
        let loaded = match done.loaded {
            Ok(loaded) => loaded,
            Err(StoreError::Compacted { .. }) => {
                addition.behind = true;
                self.under_way.push(addition);
                return;
            }
            Err(error) => {
                self.forget(&addition.collections);
                addition.fail(error.into());
                return;
            }
        };
        self.forget(&addition.collections);
        let waiting = &mut addition.waiting;
        let with_changes =
            addition.collections.iter().zip(loaded).map(|(collection, loaded)| {
                (collection, loaded, waiting.remove(collection.prefix()).unwrap_or_default())
            });
        let done_sender = match addition.purpose {
            Purpose::Repair(cause) => {
                with_changes.for_each(|(collection, loaded, changes)| self.mend(collection, loaded, changes, cause));
                return;
            }
            Purpose::Add(sender) => sender,
        };
        for (collection, loaded, changes) in with_changes {
            collection.restart(done.revision, loaded.trees, loaded.unreadable);
            collection.pool().consider(collection, true);
            collection.apply(changes);
        }
        let wanted: Vec<_> =
            addition.collections.iter().filter(|collection| !collection.is_removed()).cloned().collect();
        self.shared.open(&wanted);
        if let Err(Ok(unwanted)) = done_sender.send(Ok(addition.collections)) {
            let prefixes: Vec<String> = unwanted.iter().map(|collection| collection.prefix().to_owned()).collect();
            self.shared.close(&prefixes);
        }
    }

    /// Replaces the contents of a collection by those of the store, up to the watermark in one step: readers see no
    /// older state in between. Its watches end, since the events that they have missed are unknown.
    fn mend(&self, collection: &Arc<Collection>, mut loaded: LoadedCollection, changes: Vec<Change>, cause: Cause) {
        changes.into_iter().for_each(|change| loaded.apply(change));
        if cause == Cause::Unreadable && loaded.unreadable.len() >= collection.count_unreadable("") {
            // No value has become readable. The collection still follows the tail, and its watches continue.
            return;
        }
        let reached = self.shared.watermark().get();
        collection.restart(reached, loaded.trees, loaded.unreadable);
        collection.pool().consider(collection, true);
        if cause == Cause::Unreadable {
            info_repeated!(collection.prefix(); collection = collection.prefix(), "values that could not be read were read again");
            return;
        }
        self.shared.counters().repairs.add(1);
        warn_repeated!(collection.prefix(); collection = collection.prefix(), revision = %reached, "a collection that differed from the store was reloaded");
    }

    /// Closes the collections with these prefixes, which will not be inserted.
    pub(crate) fn close(&mut self, prefixes: &[String]) {
        for prefix in prefixes {
            if let Some(collection) = self.routes.remove(prefix) {
                collection.close();
            }
        }
    }
}
