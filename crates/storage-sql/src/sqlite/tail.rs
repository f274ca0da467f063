//! The changes that a tail reads.
//!
//! The writer publishes a group once it is durable, so a tail never shows changes that a crash could undo.

use keelson_meta::Revision;
use keelson_storage::StoreError;

use crate::sqlite::error::stopped;
use crate::sqlite::read;
use crate::sqlite::store::Shared;
use crate::tail::{BATCH_BYTES, BATCH_EVENTS, Changes, History};

impl History for Shared {
    async fn newer_than(&self, after: Revision) -> Result<Revision, StoreError> {
        let mut newest = self.newest.clone();
        newest.wait_for(|newest| *newest > after).await.map(|newest| *newest).map_err(|_| stopped())
    }

    fn recent(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.recent.lock().between(after, until, BATCH_EVENTS)
    }

    async fn stored(&self, after: Revision, until: Revision) -> Result<Changes, StoreError> {
        let history = move |connection: &rusqlite::Connection| {
            read::history(connection, after, until, (BATCH_EVENTS, BATCH_BYTES))
        };
        let found = self.readers.read(history).await;
        // ORDER: this check follows the read. A compaction may have deleted rows while the read ran, and these rows are
        // not lost.
        self.check_not_compacted(after)?;
        found
    }
}
