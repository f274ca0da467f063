//! The graph of owners: an index over all stored collections, kept as new as the cache by a cursor in the history of each, and over
//! what other servers have, as far as they tell.
//!
//! Only objects with owners are in it, and owners that wait for garbage collection. Everything else costs one look at its
//! metadata when it changes.

mod index;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{SelectAll, Stream, StreamExt as _};
use hashbrown::{HashMap, HashSet};
use keelson_cache::{CursorBatch, Scope, TooOld, WatchCursor};
use keelson_meta::ApiError;
use keelson_registry::{CollectionId, StoredCollection, Surface};

use super::elsewhere::{Change, NumberElsewhere};
use super::metadata::Ties;
use super::owners::World;
use crate::queue::{Queue, unchained};
pub(super) use index::Dependent;
use index::Index;

/// How many events of a collection are taken at once.
const STEP_EVENTS: usize = 256;
/// The most steps before other tasks get their turn: some 10 ms where every event changes owners.
const STEPS: usize = 8;

/// An object: its collection, and its key there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) collection: CollectionPlace,
    /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
    pub(super) key: Arc<str>,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CollectionPlace {
    /// In a collection that is stored here.
    Here(CollectionId),
    /// Among those of a kind that another server has.
    Elsewhere(NumberElsewhere),
}

/// What has to be looked at: what is here on its own, so that nothing here waits for another server.
pub(super) struct Visits {
    /// What is decided here alone.
    pub(super) here: Queue<ObjectId>,
    /// What another server has to be asked for, or asked to do.
    pub(super) elsewhere: Queue<ObjectId>,
}

impl Visits {
    /// Has an object looked at.
    pub(super) fn add(&self, id: ObjectId) {
        match id.collection {
            CollectionPlace::Here(_) => self.here.add(id),
            CollectionPlace::Elsewhere(_) => self.elsewhere.add(id),
        }
    }
}

/// The index and the places in history up to which it is complete.
#[derive(Default)]
pub(super) struct Graph {
    /// The generation of the surface whose collections are indexed; `None` while they are being loaded.
    generation: Option<u64>,
    index: Index,
    /// Only those are looked at whose cursor was woken: there are many collections, and most are at rest.
    followed: SelectAll<Followed>,
    /// The surface whose collections are followed.
    surface: Arc<Surface>,
    /// Objects whose owners have to be looked for anew, since a kind has become known.
    unsettled: Vec<ObjectId>,
}

struct Followed {
    id: CollectionId,
    cursor: WatchCursor,
}

impl Stream for Followed {
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
    /// Indexes everything that is served. Also returns what has to be visited because of what was missed before.
    ///
    /// # Errors
    /// When the history is too short to follow a collection while all are loaded.
    pub(super) async fn load(world: World<'_>) -> Result<(Self, Vec<ObjectId>), TooOld> {
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

    /// Indexes the collections that are served now and are not followed yet, and forgets those that are served no longer.
    /// Returns what has to be visited because of that.
    ///
    /// # Errors
    /// As for [`Graph::load`].
    pub(super) async fn follow(&mut self, world: World<'_>) -> Result<Vec<ObjectId>, TooOld> {
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
        world: World<'_>,
        collections: impl Iterator<Item = &'s Arc<StoredCollection>>,
    ) -> Result<Vec<ObjectId>, TooOld> {
        let mut states = Vec::new();
        // All cursors stand before the first object is looked at, so that no owner goes unnoticed between the look at its
        // dependents and the start of its collection's cursor.
        for collection in collections {
            let snapshot = collection.cached.snapshot();
            let cursor = collection.cached.watch(snapshot.revision, Scope::All)?;
            self.followed.push(Followed { id: collection.id, cursor });
            states.push((collection.id, snapshot.cursor("", None)));
        }
        let mut visits = Vec::new();
        self.generation = None;
        for (id, mut rest) in states {
            while let Some(leaf) = rest.next_leaf() {
                for entry in leaf.entries() {
                    let place = CollectionPlace::Here(id);
                    self.index.apply(world, place, None, Some(Ties::of(entry)), &mut visits);
                }
                tokio::task::yield_now().await;
            }
        }
        self.generation = Some(world.surface.generation());
        Ok(visits)
    }

    /// Waits for events of any collection and puts into the queue what has to be visited because of them.
    ///
    /// # Errors
    /// When events were missed.
    pub(super) fn poll(
        &mut self,
        world: World<'_>,
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

    /// Takes in all events that the cache has by now.
    fn catch_up(&mut self, world: World<'_>, visits: &Visits) -> Result<(), TooOld> {
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

    /// Takes in some of what other servers have told. Whether there is more.
    pub(super) fn take_elsewhere(&mut self, world: World<'_>, visits: &Visits) -> bool {
        // While everything is being loaded, what was told stays where it is.
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

    /// The dependents of an owner in all that the cache has by now, and other servers have told.
    ///
    /// # Errors
    /// 503 when events were missed and everything has to be loaded anew, and while resources that came are being loaded.
    pub(super) fn dependents(
        &mut self,
        world: World<'_>,
        owner: &str,
        visits: &Visits,
    ) -> Result<Vec<Dependent>, ApiError> {
        if self.generation != Some(world.surface.generation()) {
            return Err(ApiError::ServiceUnavailable {
                message: "garbage collection is still looking at resources that came or went".to_owned(),
                retry_after_seconds: None,
            });
        }
        // Events that are taken in here begin chains of their own, as they would at any other moment.
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
