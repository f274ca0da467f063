//! Tails: they read the recent changes in memory if these reach back far enough, and the table otherwise.
//!
//! SQLite and PostgreSQL share this code. Each implements the trait `History`.

use std::future::Future;
use std::sync::Arc;

use futures::stream;
use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent, Tail, TailBatch};

/// The maximum number of events in one batch.
pub(crate) const BATCH_EVENTS: usize = 1024;

/// The size of values from the table at which a batch is full, in bytes.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Some changes, and the revision that they reach.
pub(crate) type Changes = (Vec<StoreEvent>, Revision);

/// The source of a store's changes.
pub(crate) trait History: Send + Sync + 'static {
    /// Waits until there is a newer revision, and returns the newest.
    fn newer_than(&self, after: Revision) -> impl Future<Output = Result<Revision, StoreError>> + Send;

    /// Returns at most [`BATCH_EVENTS`] changes after one revision up to another from memory. None if some of them are
    /// not in memory.
    fn recent(&self, after: Revision, until: Revision) -> Option<Changes>;

    /// Returns the same as [`recent`](Self::recent) from the table, with the additional limit [`BATCH_BYTES`].
    fn stored(&self, after: Revision, until: Revision) -> impl Future<Output = Result<Changes, StoreError>> + Send;
}

/// All changes after `after`. The caller has checked that they are readable.
pub(crate) fn stream(history: Arc<impl History>, after: Revision) -> Tail {
    Box::pin(stream::unfold(Some((history, after)), |state| async move {
        let (history, after) = state?;
        match next(&*history, after).await {
            Ok((events, watermark)) => Some((Ok(TailBatch { events, watermark }), Some((history, watermark)))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

async fn next(history: &impl History, after: Revision) -> Result<Changes, StoreError> {
    let until = history.newer_than(after).await?;
    match history.recent(after, until) {
        Some(recent) => Ok(recent),
        None => history.stored(after, until).await,
    }
}
