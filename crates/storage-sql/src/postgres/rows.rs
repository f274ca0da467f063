//! Detects rows of the history that are missing although keelson has not deleted them.
//!
//! Every revision after the oldest readable one has a row. For the revisions that compaction has processed,
//! `keelson_rows` has the number of remaining rows. A loss is found by counting over the index of revisions. The store
//! counts at a start, before compaction and beside it, and before the cache is changed to the state of the database. It
//! also counts the changes that it reads, since their revisions have no gaps.
//!
//! Compaction deletes rows between the two revisions, so a loss there is found at the next count after compaction.

use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent};
use keelson_supervision::error_repeated;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tokio_postgres::Client;

use super::statements::number;

/// The time between two counts of all rows during compactions. A million rows take about half a second.
const COUNTED_EVERY: Duration = Duration::from_secs(600);
/// The newest revision of a new store. It has no row.
const FIRST_REVISION: i64 = 1;
/// The remedy for operators.
const ADVICE: &str = "restore a backup, or start with --accept-loss to continue with the remaining objects";

/// The number of rows after the oldest revision, and the expected number.
const NEWER: &str = "SELECT s.oldest, s.revision - greatest(s.oldest, $1), \
    (SELECT count(*) FROM keelson_history h WHERE h.revision > greatest(s.oldest, $1)) FROM keelson_state s";
/// The number of rows that compaction has left, and the expected number. No row if that number is unknown.
const OLDER: &str = "SELECT w.swept, r.counted, \
    (SELECT count(*) FROM keelson_history h WHERE h.revision <= w.swept) \
    FROM keelson_state s, keelson_sweep w, keelson_rows r WHERE r.swept = w.swept AND r.incarnation = s.incarnation";
/// True if the table with the number of rows exists and may be read.
const IS_COUNTED: &str = "SELECT coalesce(has_table_privilege(to_regclass('keelson_rows')::oid, 'SELECT'), false)";
/// The number of rows that the next compaction starts with, and the expected number. No row if the compaction has
/// already happened.
const NEXT: &str = "SELECT s.oldest, $2 - greatest(s.oldest, $1), \
    (SELECT count(*) FROM keelson_history h WHERE h.revision > greatest(s.oldest, $1) AND h.revision <= $2) \
    FROM keelson_state s WHERE s.oldest < $2 AND s.revision >= $2";

/// Counts all rows. Returns the loss, if there is one.
///
/// # Errors
/// The rows could not be counted.
pub(super) async fn loss(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let row = client.query_one(NEWER, &[&FIRST_REVISION]).await?;
    let (oldest, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if found != expected {
        return Ok(Some(mismatch(&format!("behind revision {oldest}"), found, expected)));
    }
    // An older release created the tables, or the role may not read this one.
    if !client.query_one(IS_COUNTED, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let Some(row) = client.query_opt(OLDER, &[]).await? else { return Ok(None) };
    let (swept, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok((found != expected).then(|| mismatch(&format!("up to revision {swept}"), found, expected)))
}

/// Counts the rows that a compaction to a revision starts with. Returns the loss, if there is one.
///
/// # Errors
/// The rows could not be counted.
pub(super) async fn loss_below(client: &Client, oldest: Revision) -> Result<Option<String>, tokio_postgres::Error> {
    let Some(row) = client.query_opt(NEXT, &[&FIRST_REVISION, &number(oldest)]).await? else { return Ok(None) };
    let (from, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok((found != expected).then(|| mismatch(&format!("from revision {from} to {oldest}"), found, expected)))
}

/// Returns the loss among changes that were read after one revision up to another, if there is one.
pub(super) fn loss_among(events: &[StoreEvent], after: Revision, reached: Revision) -> Option<String> {
    let after = after.get().max(FIRST_REVISION.unsigned_abs());
    let expected = reached.get().saturating_sub(after);
    let found = events.iter().filter(|event| event.revision.get() > after).count() as u64;
    (found < expected).then(|| mismatch(&format!("from revision {after} to {reached}"), found, expected))
}

fn mismatch(place: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> String {
    format!("{place} the history in the database has {found} rows and should have {expected}: {ADVICE}")
}

/// Logs a loss.
pub(super) fn report(loss: &str) {
    error_repeated!(""; loss, "rows of the history are gone, and nothing of keelson has deleted them");
}

/// The loss that this server has found, if any.
#[derive(Default)]
pub(crate) struct DetectedLoss {
    found: Mutex<Option<String>>,
    counted: Mutex<Option<Instant>>,
}

impl DetectedLoss {
    /// Records the result of a count of all rows.
    ///
    /// # Errors
    /// There is a loss.
    pub(super) fn note(&self, loss: Option<String>) -> Result<(), StoreError> {
        if let Some(loss) = loss {
            return Err(self.record(loss));
        }
        *self.found.lock() = None;
        Ok(())
    }

    /// Records a loss. Returns the error for it.
    pub(super) fn record(&self, loss: String) -> StoreError {
        report(&loss);
        *self.found.lock() = Some(loss.clone());
        StoreError::Corrupt(loss)
    }

    /// Returns an error while there is a loss, so that callers do not treat lost objects as deleted.
    ///
    /// # Errors
    /// There is a loss.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.found.lock().clone().map_or(Ok(()), |loss| Err(StoreError::Corrupt(loss)))
    }

    /// Returns true when it is time to count all rows again: at intervals, and always while there is a loss.
    pub(super) fn is_due(&self) -> bool {
        let mut counted = self.counted.lock();
        let is_due = self.found.lock().is_some() || counted.is_none_or(|last| last.elapsed() >= COUNTED_EVERY);
        if is_due {
            *counted = Some(Instant::now());
        }
        is_due
    }
}
