//! The graph of owners: an index over all stored collections, kept as new as the cache by a cursor in the history of each.
//!
//! Only objects with owners are in it, and owners that wait for garbage collection. Everything else costs one look at its
//! metadata when it changes.

mod index;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{SelectAll, Stream, StreamExt as _};
use keelson_cache::{CursorBatch, Scope, TooOld, WatchCursor};
use keelson_meta::ApiError;
use keelson_registry::{CollectionId, StoredCollection, Surface};

use crate::queue::Queue;
pub(super) use index::Dependent;
use index::Index;

/// How many events of a collection are taken at once.
const STEP_EVENTS: usize = 256;
/// How many steps are taken before others get their turn.
const STEPS: usize = 64;

/// An object: its collection, and its key there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) collection: CollectionId,
    /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
    pub(super) key: Arc<str>,
}

/// The index and the places in history up to which it is complete.
#[derive(Default)]
pub(super) struct Graph {
    /// The generation of the surface whose collections are indexed; `None` while they are being loaded.
    generation: Option<u64>,
    index: Index,
    /// Only those are looked at whose cursor was woken: there are many collections, and most are at rest.
    followed: SelectAll<Followed>,
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
    pub(super) async fn load(surface: &Surface) -> Result<(Self, Vec<ObjectId>), TooOld> {
        let mut graph = Self::default();
        let visits = graph.add(surface, surface.collections()).await?;
        Ok((graph, visits))
    }

    /// Indexes the collections that are served now and are not followed yet, and forgets those that are served no longer.
    /// Returns what has to be visited because of that.
    ///
    /// # Errors
    /// As for [`Graph::load`].
    pub(super) async fn follow(&mut self, surface: &Surface) -> Result<Vec<ObjectId>, TooOld> {
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.followed).into_iter().partition(|known| surface.collection(known.id).is_some());
        gone.iter().for_each(|known| self.index.forget(known.id));
        let known: HashSet<CollectionId> = kept.iter().map(|known| known.id).collect();
        self.followed.extend(kept);
        self.add(surface, surface.collections().filter(|collection| !known.contains(&collection.id))).await
    }

    async fn add<'s>(
        &mut self,
        surface: &Surface,
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
                    self.index.apply(surface, id, None, Some(entry), &mut visits);
                }
                tokio::task::yield_now().await;
            }
        }
        self.generation = Some(surface.generation());
        Ok(visits)
    }

    /// Waits for events of any collection and puts into the queue what has to be visited because of them.
    ///
    /// # Errors
    /// When events were missed.
    pub(super) fn poll(
        &mut self,
        surface: &Surface,
        context: &mut Context<'_>,
        queue: &Queue<ObjectId>,
    ) -> Poll<Result<(), TooOld>> {
        let mut steps = 0;
        while steps < STEPS
            && let Poll::Ready(Some((id, batch))) = self.followed.poll_next_unpin(context)
        {
            self.index.take(surface, id, &batch?.events, queue);
            steps += 1;
        }
        if steps == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Takes in all events that the cache has by now.
    fn catch_up(&mut self, surface: &Surface, queue: &Queue<ObjectId>) -> Result<(), TooOld> {
        for followed in self.followed.iter_mut() {
            loop {
                let batch = followed.cursor.try_next(STEP_EVENTS)?;
                if batch.events.is_empty() {
                    break;
                }
                self.index.take(surface, followed.id, &batch.events, queue);
            }
        }
        Ok(())
    }

    /// The dependents of an owner in all that the cache has by now.
    ///
    /// # Errors
    /// 503 when events were missed and everything has to be loaded anew, and while resources that came are being loaded.
    pub(super) fn dependents(
        &mut self,
        surface: &Surface,
        owner: &str,
        queue: &Queue<ObjectId>,
    ) -> Result<Vec<Dependent>, ApiError> {
        if self.generation != Some(surface.generation()) {
            return Err(ApiError::ServiceUnavailable {
                message: "garbage collection is still looking at resources that came or went".to_owned(),
                retry_after_seconds: None,
            });
        }
        self.catch_up(surface, queue).map_err(|overtaken| ApiError::ServiceUnavailable {
            message: format!("garbage collection has missed events: {overtaken}"),
            retry_after_seconds: None,
        })?;
        Ok(self.index.dependents(owner))
    }

    /// The owners that are being deleted and wait for garbage collection.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ObjectId> {
        self.index.waiting()
    }
}
