//! Who owns whom: an index over all stored collections, kept as new as the cache by a cursor in the history of each.
//!
//! Only objects with owners are in it, and owners that wait for garbage collection. Everything else costs one look at its
//! metadata when it changes.

mod index;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{SelectAll, Stream, StreamExt as _};
use keelson_cache::{Cache, CursorBatch, Scope, TooOld, WatchCursor};
use keelson_meta::ApiError;
use keelson_resources::{Catalogue, CollectionId};

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
    /// Indexes everything there is. Also returns what has to be visited because of what was missed before.
    ///
    /// # Errors
    /// When the history is too short to follow a collection while all are loaded.
    pub(super) async fn load(cache: &Cache) -> Result<(Self, Vec<ObjectId>), TooOld> {
        let mut graph = Self::default();
        let mut states = Vec::new();
        // All cursors stand before the first object is looked at, so that no owner goes unnoticed between the look at its
        // dependents and the start of its collection's cursor.
        for collection in Catalogue::builtin().collections() {
            let Some(cached) = cache.collection(&collection.key_prefix()) else { continue };
            let snapshot = cached.snapshot();
            let cursor = cached.watch(snapshot.revision, Scope::All)?;
            graph.followed.push(Followed { id: collection.id, cursor });
            states.push((collection.id, snapshot.cursor("", None)));
        }
        let mut visits = Vec::new();
        for (id, mut rest) in states {
            while let Some(leaf) = rest.next_leaf() {
                for entry in leaf.entries() {
                    graph.index.apply(cache, id, None, Some(entry), &mut visits);
                }
                tokio::task::yield_now().await;
            }
        }
        Ok((graph, visits))
    }

    /// Waits for events of any collection and puts into the queue what has to be visited because of them.
    ///
    /// # Errors
    /// When events were missed.
    pub(super) fn poll(
        &mut self,
        cache: &Cache,
        context: &mut Context<'_>,
        queue: &Queue<ObjectId>,
    ) -> Poll<Result<(), TooOld>> {
        let mut steps = 0;
        while steps < STEPS
            && let Poll::Ready(Some((id, batch))) = self.followed.poll_next_unpin(context)
        {
            self.index.take(cache, id, &batch?.events, queue);
            steps += 1;
        }
        if steps == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Takes in all events that the cache has by now.
    fn catch_up(&mut self, cache: &Cache, queue: &Queue<ObjectId>) -> Result<(), TooOld> {
        for followed in self.followed.iter_mut() {
            loop {
                let batch = followed.cursor.try_next(STEP_EVENTS)?;
                if batch.events.is_empty() {
                    break;
                }
                self.index.take(cache, followed.id, &batch.events, queue);
            }
        }
        Ok(())
    }

    /// The dependents of an owner in all that the cache has by now.
    ///
    /// # Errors
    /// 503 when events were missed and everything has to be loaded anew.
    pub(super) fn dependents(
        &mut self,
        cache: &Cache,
        owner: &str,
        queue: &Queue<ObjectId>,
    ) -> Result<Vec<Dependent>, ApiError> {
        self.catch_up(cache, queue).map_err(|overtaken| ApiError::ServiceUnavailable {
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
