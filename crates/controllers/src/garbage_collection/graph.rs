//! The owner graph: an index over all stored collections and the known objects of other servers. It reads the events of
//! each collection with a cursor, so it is as new as the cache.
//!
//! The graph holds only objects with owners, and owners that wait for garbage collection. For any other object, each
//! change costs one read of its metadata.

mod index;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{SelectAll, Stream, StreamExt as _};
use hashbrown::{HashMap, HashSet};
use keelson_cache::{CursorBatch, Scope, TooOld, WatchCursor};
use keelson_meta::ApiError;
use keelson_registry::{CollectionId, ServedApis, StoredCollection};

use super::elsewhere::{Change, RemoteKindNumber};
use super::metadata::Ties;
use super::owners::OwnerLookup;
use crate::queue::{Queue, unchained};
pub(super) use index::Dependent;
use index::Index;

/// The number of events taken from a collection at once.
const STEP_EVENTS: usize = 256;
/// The most batches before the task yields to others: some 10 ms if every event changes owners.
const STEPS: usize = 8;

/// An object: its collection, and its key there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) collection: CollectionPlace,
    /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
    pub(super) key: Arc<str>,
}

/// The location of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CollectionPlace {
    /// A collection stored by this server.
    Here(CollectionId),
    /// A kind on another server.
    Elsewhere(RemoteKindNumber),
}

/// Queues of objects to check. Objects that need only local data have a queue of their own, so that they never wait for
/// another server.
pub(super) struct Visits {
    /// Objects that need only local data.
    pub(super) here: Queue<ObjectId>,
    /// Objects that need requests to another server.
    pub(super) elsewhere: Queue<ObjectId>,
}

impl Visits {
    /// Enqueues an object.
    pub(super) fn add(&self, id: ObjectId) {
        match id.collection {
            CollectionPlace::Here(_) => self.here.add(id),
            CollectionPlace::Elsewhere(_) => self.elsewhere.add(id),
        }
    }
}

/// The index with its positions in the collections' histories.
#[derive(Default)]
pub(super) struct Graph {
    /// The generation of the surface whose collections are indexed; `None` while they are being loaded.
    generation: Option<u64>,
    index: Index,
    /// Polls only woken cursors, since most of the many collections are idle.
    followed: SelectAll<FollowedCollection>,
    /// The surface whose collections are followed.
    surface: Arc<ServedApis>,
    /// Objects whose owners must be looked up again, since a kind has become known.
    unsettled: Vec<ObjectId>,
}

struct FollowedCollection {
    id: CollectionId,
    cursor: WatchCursor,
}

impl Stream for FollowedCollection {
    type Item = (CollectionId, Result<CursorBatch, TooOld>);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let id = self.id;
        self.cursor.poll_next(context, STEP_EVENTS).map(|batch| Some((id, batch)))
    }
}

impl ObjectId {
    pub(super) fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.key.split_once('/').map(|(namespace, _)| namespace)
    }
}

impl Graph {
    /// Indexes all served collections. Also returns the objects to check because their events were missed.
    ///
    /// # Errors
    /// A collection's history does not reach back to the start of the loading.
    pub(super) async fn load(world: OwnerLookup<'_>) -> Result<(Self, Vec<ObjectId>), TooOld> {
        let mut graph = Self::default();
        let mut visits = graph.follow(world).await?;
        for objects in world.elsewhere.all().chunks(STEP_EVENTS) {
            for (number, object) in objects {
                let place = CollectionPlace::Elsewhere(*number);
                graph.index.apply(world, place, None, Some(Ties::of_elsewhere(object)), &mut visits);
            }
            tokio::task::yield_now().await;
        }
        Ok((graph, visits))
    }

    /// Indexes newly served collections, and drops those that are no longer served. Returns the objects to check
    /// because of this change.
    ///
    /// # Errors
    /// Errors of [`Graph::load`].
    pub(super) async fn follow(&mut self, world: OwnerLookup<'_>) -> Result<Vec<ObjectId>, TooOld> {
        let surface = world.surface;
        let last = std::mem::replace(&mut self.surface, surface.clone());
        let (mut new, mut gone) = (HashMap::new(), HashSet::new());
        for group in surface.changed_groups(&last) {
            // Resources of several groups may share a collection.
            let stored = surface.resources_of(group).filter_map(|resource| resource.stored());
            new.extend(stored.filter(|stored| last.collection(stored.id).is_none()).map(|stored| (stored.id, stored)));
            let stored = last.resources_of(group).filter_map(|resource| resource.stored());
            gone.extend(stored.map(|stored| stored.id).filter(|id| surface.collection(*id).is_none()));
        }
        if !gone.is_empty() {
            gone.iter().for_each(|id| self.index.forget(CollectionPlace::Here(*id)));
            let followed = std::mem::take(&mut self.followed);
            self.followed.extend(followed.into_iter().filter(|followed| !gone.contains(&followed.id)));
        }
        self.add(world, new.into_values()).await
    }

    async fn add<'s>(
        &mut self,
        world: OwnerLookup<'_>,
        collections: impl Iterator<Item = &'s Arc<StoredCollection>>,
    ) -> Result<Vec<ObjectId>, TooOld> {
        let mut states = Vec::new();
        // All cursors start before the first object is read. Otherwise the deletion of an owner could be missed between
        // the lookup of its dependents and the start of its collection's cursor.
        for collection in collections {
            let snapshot = collection.cached.snapshot();
            let cursor = collection.cached.watch(snapshot.revision, Scope::All)?;
            self.followed.push(FollowedCollection { id: collection.id, cursor });
            states.push((collection.id, snapshot.cursor("", None)));
        }
        let mut visits = Vec::new();
        self.generation = None;
        for (id, mut rest) in states {
            while let Some(leaf) = rest.next_leaf() {
                for entry in leaf.entries() {
                    let place = CollectionPlace::Here(id);
                    self.index.apply(world, place, None, Some(Ties::from_entry(entry)), &mut visits);
                }
                tokio::task::yield_now().await;
            }
        }
        self.generation = Some(world.surface.generation());
        Ok(visits)
    }

    /// Waits for events of any collection and enqueues the objects that they concern.
    ///
    /// # Errors
    /// Events were missed.
    pub(super) fn poll(
        &mut self,
        world: OwnerLookup<'_>,
        context: &mut Context<'_>,
        visits: &Visits,
    ) -> Poll<Result<(), TooOld>> {
        let mut steps = 0;
        while steps < STEPS
            && let Poll::Ready(Some((id, batch))) = self.followed.poll_next_unpin(context)
        {
            self.index.take(world, id, &batch?.events, visits);
            steps += 1;
        }
        if steps == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Processes all events that the cache has now.
    fn catch_up(&mut self, world: OwnerLookup<'_>, visits: &Visits) -> Result<(), TooOld> {
        for followed in self.followed.iter_mut() {
            loop {
                let batch = followed.cursor.try_next(STEP_EVENTS)?;
                if batch.events.is_empty() {
                    break;
                }
                self.index.take(world, followed.id, &batch.events, visits);
            }
        }
        Ok(())
    }

    /// Processes a batch of changes from other servers. Returns true if more are left.
    pub(super) fn take_elsewhere(&mut self, world: OwnerLookup<'_>, visits: &Visits) -> bool {
        // During a load, changes stay in their queue.
        if self.generation.is_none() {
            return false;
        }
        let changes = world.elsewhere.changes(STEP_EVENTS);
        let mut found = Vec::new();
        for change in &changes {
            match change {
                Change::Object { number, before, after } => {
                    let (before, after) = (before.as_deref(), after.as_deref());
                    let (before, after) = (before.map(Ties::of_elsewhere), after.map(Ties::of_elsewhere));
                    self.index.apply(world, CollectionPlace::Elsewhere(*number), before, after, &mut found);
                }
                Change::Listed => self.unsettled = self.index.without_owner(),
                Change::Forgotten(number) => self.index.forget(CollectionPlace::Elsewhere(*number)),
            }
        }
        let rest = self.unsettled.len().saturating_sub(STEP_EVENTS);
        for id in self.unsettled.drain(rest..) {
            self.index.settle(world, &id, &mut found);
        }
        found.into_iter().for_each(|id| visits.add(id));
        !changes.is_empty() || rest > 0
    }

    /// The dependents of an owner, after processing all current events of the cache and of other servers.
    ///
    /// # Errors
    /// 503 when events were missed and everything must be loaded again, or while new resources are being loaded.
    pub(super) fn dependents(
        &mut self,
        world: OwnerLookup<'_>,
        owner: &str,
        visits: &Visits,
    ) -> Result<Vec<Dependent>, ApiError> {
        if self.generation != Some(world.surface.generation()) {
            return Err(ApiError::ServiceUnavailable {
                message: "garbage collection is still looking at resources that came or went".to_owned(),
                retry_after_seconds: None,
            });
        }
        // The events do not result from the current turn, so they must not extend its chain.
        let caught_up = unchained(|| {
            while self.take_elsewhere(world, visits) {}
            self.catch_up(world, visits)
        });
        caught_up.map_err(|overtaken| ApiError::ServiceUnavailable {
            message: format!("garbage collection has missed events: {overtaken}"),
            retry_after_seconds: None,
        })?;
        Ok(self.index.dependents(owner))
    }

    /// True while an object is being deleted and waits for garbage collection.
    pub(super) fn is_waiting(&self, id: &ObjectId) -> bool {
        self.index.is_waiting(id)
    }
}
