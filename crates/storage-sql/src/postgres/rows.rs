//! Rows of the history that are gone though nothing of keelson has deleted them.
//!
//! Behind the oldest readable revision every revision has its row, and up to the revision that compaction has reached the number of
//! rows is in `keelson_rows`. A loss is compared by counting over the index of revisions: at a start, before and beside compaction,
//! and before the cache is brought to what the database says. Changes that are read are counted too, since they are numbered.
//!
//! Between the two revisions rows go while compaction works, so what is lost there shows when they are counted next.

use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent};
use keelson_supervision::error_repeated;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tokio_postgres::Client;

use super::statements::number;

/// The time between two counts of all rows beside compaction. A million rows take about half a second.
const COUNTED_EVERY: Duration = Duration::from_secs(600);
/// The newest revision of a store that was just made. It has no row.
const FIRST_REVISION: i64 = 1;
/// The way out for operators.
const ADVICE: &str = "restore a backup, or start with --accept-loss to go on with what is left";

/// The rows behind the oldest revision, and how many there should be.
const NEWER: &str = "SELECT s.oldest, s.revision - greatest(s.oldest, $1), \
    (SELECT count(*) FROM keelson_history h WHERE h.revision > greatest(s.oldest, $1)) FROM keelson_state s";
/// The rows that compaction has left, and how many there should be; no row where that is not known.
const OLDER: &str = "SELECT w.swept, r.counted, \
    (SELECT count(*) FROM keelson_history h WHERE h.revision <= w.swept) \
    FROM keelson_state s, keelson_sweep w, keelson_rows r WHERE r.swept = w.swept AND r.incarnation = s.incarnation";
/// True if the number of rows exists and may be read.
const IS_COUNTED: &str = "SELECT coalesce(has_table_privilege(to_regclass('keelson_rows')::oid, 'SELECT'), false)";
/// The rows that the next compaction begins with, and how many there should be; no row where it has happened.
const NEXT: &str = "SELECT s.oldest, $2 - greatest(s.oldest, $1), \
    (SELECT count(*) FROM keelson_history h WHERE h.revision > greatest(s.oldest, $1) AND h.revision <= $2) \
    FROM keelson_state s WHERE s.oldest < $2 AND s.revision >= $2";

/// Counts all rows. Returns the loss, if there is one.
///
/// # Errors
/// They could not be counted.
pub(super) async fn loss(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let row = client.query_one(NEWER, &[&FIRST_REVISION]).await?;
    let (oldest, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if found != expected {
        return Ok(Some(told(&format!("behind revision {oldest}"), found, expected)));
    }
    // An older release made the tables, or the role may not read this one.
    if !client.query_one(IS_COUNTED, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let Some(row) = client.query_opt(OLDER, &[]).await? else { return Ok(None) };
    let (swept, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok((found != expected).then(|| told(&format!("up to revision {swept}"), found, expected)))
}

/// Counts the rows that a compaction up to a revision begins with. Returns the loss, if there is one.
///
/// # Errors
/// They could not be counted.
pub(super) async fn loss_below(client: &Client, oldest: Revision) -> Result<Option<String>, tokio_postgres::Error> {
    let Some(row) = client.query_opt(NEXT, &[&FIRST_REVISION, &number(oldest)]).await? else { return Ok(None) };
    let (from, expected, found): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok((found != expected).then(|| told(&format!("from revision {from} to {oldest}"), found, expected)))
}

/// The loss among changes that were read after one revision up to another, if there is one.
pub(super) fn loss_among(events: &[StoreEvent], after: Revision, reached: Revision) -> Option<String> {
    let after = after.get().max(FIRST_REVISION.unsigned_abs());
    let expected = reached.get().saturating_sub(after);
    let found = events.iter().filter(|event| event.revision.get() > after).count() as u64;
    (found < expected).then(|| told(&format!("from revision {after} to {reached}"), found, expected))
}

fn told(place: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> String {
    format!("{place} the history in the database has {found} rows and should have {expected}: {ADVICE}")
}

/// The loss that this server has found.
#[derive(Default)]
pub(crate) struct FoundLoss {
    found: Mutex<Option<String>>,
    counted: Mutex<Option<Instant>>,
}

impl FoundLoss {
    /// Notes the result of a look.
    pub(super) fn note(&self, loss: Option<String>) {
        if let Some(loss) = &loss {
            error_repeated!(""; loss, "rows of the history are gone, and nothing of keelson has deleted them");
        }
        *self.found.lock() = loss;
    }

    /// Refuses what would take objects that are lost for objects that are deleted.
    ///
    /// # Errors
    /// There is a loss.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.found.lock().clone().map_or(Ok(()), |loss| Err(StoreError::Corrupt(loss)))
    }

    /// Returns true when all rows are to be counted again: after a while, and as long as there is a loss.
    pub(super) fn is_due(&self) -> bool {
        let mut counted = self.counted.lock();
        let is_due = self.found.lock().is_some() || counted.is_none_or(|last| last.elapsed() >= COUNTED_EVERY);
        if is_due {
            *counted = Some(Instant::now());
        }
        is_due
    }
}
