//! The queries: the newest value of a key, a range at a revision, a part of the history.
//!
//! Every read has a revision. The table may already have rows above it, of a group that is not published yet. Reads
//! omit these rows.

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, StoreEvent, StoreKey};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::sqlite::schema::{Fact, number, revision_at};
use crate::sqlite::sum;

/// A key's newest row.
pub(crate) struct Newest {
    pub(crate) revision: Revision,
    /// The length of its value. None for a deletion.
    pub(crate) bytes: Option<u64>,
}

impl Newest {
    pub(crate) const fn is_deletion(&self) -> bool {
        self.bytes.is_none()
    }
}

// The length is in the header of the row, so the value is not read.
const NEWEST: &str = "SELECT revision, length(value) FROM history WHERE path = ?1 ORDER BY revision DESC LIMIT 1";

/// The newest row of a key, without its value.
pub(crate) fn newest(connection: &Connection, key: &StoreKey) -> rusqlite::Result<Option<Newest>> {
    let mut statement = connection.prepare_cached(NEWEST)?;
    let found = |row: &Row<'_>| {
        let bytes: Option<i64> = row.get(1)?;
        Ok(Newest { revision: revision_at(row, 0)?, bytes: bytes.map(i64::unsigned_abs) })
    };
    statement.query_row([key.as_str()], found).optional()
}

/// The value of a key at a revision.
pub(crate) fn get(connection: &Connection, key: &StoreKey, at: Revision) -> rusqlite::Result<Option<KeyValue>> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, path, value, sum FROM history WHERE path = ?1 AND revision <= ?2 ORDER BY revision DESC LIMIT 1",
    )?;
    let row = statement.query_row(params![key.as_str(), number(at)], change_at).optional()?;
    Ok(row.and_then(|change| Some(KeyValue::new(key.clone(), change.value?, change.revision))))
}

/// Returns at most `limit` entries in `[from, to)` at a revision, and true if there are more.
///
/// The index alone finds the newest version of each path, and only these rows are fetched. So the cost does not depend
/// on the length of the history.
pub(crate) fn range(
    connection: &Connection,
    (from, to): (&StoreKey, &StoreKey),
    at: Revision,
    limit: usize,
) -> rusqlite::Result<(Vec<KeyValue>, bool)> {
    let mut versions = connection.prepare_cached(
        "SELECT MAX(revision), path, MIN(revision) FROM history WHERE path >= ?1 AND path < ?2 AND revision <= ?3 \
         GROUP BY path ORDER BY path",
    )?;
    let mut row_of = connection.prepare_cached("SELECT revision, path, value, sum FROM history WHERE revision = ?1")?;
    let mut entries = Vec::new();
    let mut found = versions.query(params![from.as_str(), to.as_str(), number(at)])?;
    while let Some(version) = found.next()? {
        let (revision, path, oldest) =
            (revision_at(version, 0)?, version.get_ref(1)?.as_str()?, revision_at(version, 2)?);
        if oldest < revision {
            check_oldest(connection, path, oldest)?;
        }
        let change = row_of.query_row([number(revision)], change_at).optional()?;
        // The index and the table may be damaged independently.
        let Some(change) = change.filter(|change| change.key.as_str() == path) else {
            return Err(sum::missing(revision).into());
        };
        let Some(value) = change.value else { continue };
        if entries.len() == limit {
            return Ok((entries, true));
        }
        entries.push(KeyValue::new(change.key, value, revision));
    }
    Ok((entries, false))
}

/// Checks that the oldest version in the index of a path belongs to the path. A damaged entry has the path of another
/// key, and is missing under its own.
///
/// The entries of a path are adjacent, and a damaged entry keeps its position. Under the wrong path, it is therefore
/// the first entry or the last one. The row of the last one is read anyway, so only the first needs a check.
fn check_oldest(connection: &Connection, path: &str, oldest: Revision) -> rusqlite::Result<()> {
    let mut path_of = connection.prepare_cached("SELECT path FROM history WHERE revision = ?1")?;
    let own = path_of.query_row([number(oldest)], |row| Ok(row.get_ref(0)?.as_str()? == path)).optional()?;
    if own == Some(true) { Ok(()) } else { Err(sum::missing(oldest).into()) }
}

/// Returns the number of entries that [`range`] would return, at most `limit`.
pub(crate) fn count(
    connection: &Connection,
    (from, to): (&StoreKey, &StoreKey),
    at: Revision,
    limit: usize,
) -> rusqlite::Result<u64> {
    // CROSS JOIN keeps the order of the two tables, so the row of each newest version is read to see if it is a
    // deletion.
    let mut statement = connection.prepare_cached(
        "SELECT COUNT(*) FROM (SELECT 1 FROM \
         (SELECT MAX(revision) AS newest FROM history WHERE path >= ?1 AND path < ?2 AND revision <= ?3 GROUP BY path) \
         CROSS JOIN history ON revision = newest WHERE value IS NOT NULL LIMIT ?4)",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let count: i64 = statement.query_row(params![from.as_str(), to.as_str(), number(at), limit], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns the changes after `after` up to `until`, and the revision that they reach. This is below `until` if a limit
/// on their number or bytes ends them. Every revision has a change: the caller ensures that nothing after `after` is
/// compacted.
pub(crate) fn history(
    connection: &Connection,
    after: Revision,
    until: Revision,
    (max_events, max_bytes): (usize, usize),
) -> rusqlite::Result<(Vec<StoreEvent>, Revision)> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, path, value, sum FROM history WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
    )?;
    let mut rows = statement.query(params![number(after), number(until)])?;
    let mut events = Vec::new();
    // Revisions up to the floor may have no rows: the revision of an empty store, and those that another store has
    // used.
    let floor = Fact::Floor.get(connection)?;
    let (mut bytes, mut expected) = (0, after.max(floor).next());
    while let Some(row) = rows.next()? {
        let event = change_at(row)?;
        if event.revision > floor {
            if event.revision != expected {
                return Err(sum::missing(expected).into());
            }
            expected = expected.next();
        }
        bytes += event.value.as_ref().map_or(0, Bytes::len);
        let reached = event.revision;
        events.push(event);
        if events.len() >= max_events || bytes >= max_bytes {
            return Ok((events, reached));
        }
    }
    if expected <= until { Err(sum::missing(expected).into()) } else { Ok((events, until)) }
}

/// Returns the change of a row with revision, path, value and checksum. Fails if the checksum does not match.
pub(crate) fn change_at(row: &Row<'_>) -> rusqlite::Result<StoreEvent> {
    let (revision, path) = (revision_at(row, 0)?, row.get_ref(1)?.as_str()?);
    let value = row.get_ref(2)?.as_blob_or_null()?;
    sum::check(revision, path, value, row.get(3)?)?;
    Ok(StoreEvent::new(StoreKey::new(path), revision, value.map(Bytes::copy_from_slice)))
}

pub(crate) fn key_at(row: &Row<'_>, column: usize) -> rusqlite::Result<StoreKey> {
    Ok(StoreKey::new(row.get_ref(column)?.as_str()?))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::open::open_memory;

    #[test]
    fn a_statement_is_planned_once() {
        let connection = open_memory().unwrap();
        for key in 0..3 {
            assert!(newest(&connection, &StoreKey::new(format!("/registry/{key}"))).unwrap().is_none());
        }
        let statement = connection.prepare_cached(NEWEST).unwrap();
        assert_eq!(statement.get_status(StatementStatus::Run), 3, "it is the one that was used");
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
