//! Tails: from the recent changes in memory when they reach back far enough, else from the table.

use std::sync::Arc;

use futures::stream;
use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent, Tail, TailBatch};
use tokio::sync::watch;

use crate::error::stopped;
use crate::read;
use crate::store::Shared;

/// How many events one batch holds at the most.
const BATCH_EVENTS: usize = 1024;

/// How many bytes of values from the table make a batch full.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// All changes after `after`, which the caller has found readable.
pub(crate) fn stream(shared: Arc<Shared>, after: Revision) -> Tail {
    let newest = shared.newest.clone();
    Box::pin(stream::unfold(Some(State { shared, newest, after }), |state| async move {
        let mut state = state?;
        match state.next().await {
            Ok(batch) => Some((Ok(batch), Some(state))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

struct State {
    shared: Arc<Shared>,
    newest: watch::Receiver<Revision>,
    after: Revision,
}

impl State {
    async fn next(&mut self) -> Result<TailBatch, StoreError> {
        let after = self.after;
        let until = *self.newest.wait_for(|newest| *newest > after).await.map_err(|_| stopped())?;
        let recent = self.shared.recent.lock().between(after, until, BATCH_EVENTS);
        let (events, watermark) = match recent {
            Some(recent) => recent,
            None => self.read_table(until).await?,
        };
        self.after = watermark;
        Ok(TailBatch { events, watermark })
    }

    async fn read_table(&self, until: Revision) -> Result<(Vec<StoreEvent>, Revision), StoreError> {
        let after = self.after;
        let history = move |connection: &rusqlite::Connection| {
            read::history(connection, after, until, (BATCH_EVENTS, BATCH_BYTES))
        };
        let found = self.shared.readers.read(history).await?;
        // ORDER: after the read, for a compaction may have deleted rows while it ran.
        self.shared.check_not_compacted(after)?;
        Ok(found)
    }
}
