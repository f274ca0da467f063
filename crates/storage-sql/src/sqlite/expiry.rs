//! Times to live, in a separate table that is ordered by expiry.
//!
//! A row has the expiry of one version of a key. When the key has a newer version, the row has no meaning any more. It
//! is deleted when its time comes, so ordinary writes need not look for it.

use keelson_meta::Revision;
use keelson_storage::StoreKey;
use rusqlite::{Connection, params};

use crate::sqlite::commit::{Group, seconds};
use crate::sqlite::read::{self, key_at};
use crate::sqlite::schema::{number, revision_at};

/// The number of rows in one step: a few milliseconds in which other writes wait.
const STEP_ROWS: u32 = 256;

/// The result of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expired {
    /// The number of deleted keys.
    pub(crate) count: usize,
    /// True if more keys may have expired.
    pub(crate) more: bool,
}

/// Deletes some of the keys that expired at or before `now` (seconds since the epoch).
pub(crate) fn step(connection: &Connection, group: &mut Group, now: u64) -> rusqlite::Result<Expired> {
    let due = due(connection, now)?;
    let more = due.len() == STEP_ROWS as usize;
    let mut count = 0;
    for (ends, key, revision) in due {
        connection
            .prepare_cached("DELETE FROM expiry WHERE ends = ?1 AND path = ?2 AND revision = ?3")?
            .execute(params![ends, key.as_str(), number(revision)])?;
        if read::newest(connection, &key)?.is_some_and(|newest| newest.revision == revision) {
            group.delete(connection, key)?;
            count += 1;
        }
    }
    Ok(Expired { count, more })
}

fn due(connection: &Connection, now: u64) -> rusqlite::Result<Vec<(i64, StoreKey, Revision)>> {
    let mut statement = connection
        .prepare_cached("SELECT ends, path, revision FROM expiry WHERE ends <= ?1 ORDER BY ends, path LIMIT ?2")?;
    let rows = statement
        .query_map(params![seconds(now), STEP_ROWS], |row| Ok((row.get(0)?, key_at(row, 1)?, revision_at(row, 2)?)))?;
    rows.collect()
}
