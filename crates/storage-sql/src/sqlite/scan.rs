//! Reads all entries of some ranges, in the order of their rows in the file.
//!
//! The scan first finds the revisions of the rows in the index alone. Then it fetches the rows by ascending revision,
//! some at a time, on all connections. Adjacent rows in the table share pages, and rows of one time are adjacent. In
//! the order of keys, each row would need its own search. The index and the table are compared as in [`read::range`].

use futures::{StreamExt as _, TryStreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, Scan, ScanRequest, StoreError, StoreKey};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::sync::Arc;

use crate::ranges::{Ranges, halves};
use crate::sqlite::index;
use crate::sqlite::read;
use crate::sqlite::schema::{number, revision_at};
use crate::sqlite::store::Shared;
use crate::sqlite::sum;

/// The number of rows in one fetch.
const PIECE_ROWS: usize = 512;

/// The number of rows from which on two connections search the index. One connection takes a few milliseconds for it.
const FEW_ROWS: i64 = 4_096;

/// A row that is needed.
#[derive(Clone, Copy)]
struct NeededRow {
    revision: Revision,
    /// The checksum of the path in the index. The paths themselves would use as much memory as a small server.
    path_sum: u32,
    /// True if the row is returned. Other rows are only checked to belong to their path.
    is_newest: bool,
}

/// Reads the ranges on all connections of `shared`.
pub(crate) fn stream(shared: Arc<Shared>, request: ScanRequest) -> Scan {
    let ScanRequest { ranges, revision } = request;
    let reading = async move {
        shared.check_readable(revision)?;
        let wanted = in_halves(&shared, ranges, revision).await?;
        let connections = shared.readers.connections();
        let pieces: Vec<Arc<[NeededRow]>> = wanted.chunks(PIECE_ROWS).map(Arc::from).collect();
        let fetched = stream::iter(pieces).map(move |piece| {
            let shared = shared.clone();
            async move {
                let found = shared.readers.read(move |connection| fetch(connection, &piece)).await;
                // ORDER: this check follows the read. A compaction may have deleted rows while the read ran, and these
                // rows are not lost.
                shared.check_not_compacted(revision)?;
                found
            }
        });
        Ok::<_, StoreError>(fetched.buffer_unordered(connections))
    };
    stream::once(reading).try_flatten().boxed()
}

/// Finds the rows of the ranges at a revision, ascending. Unless there are few rows, a second connection searches the
/// second half. Most ranges that are read while a server runs belong to a new collection, and are empty.
async fn in_halves(shared: &Shared, ranges: Ranges, revision: Revision) -> Result<Vec<NeededRow>, StoreError> {
    let (connections, all) = (shared.readers.connections(), ranges.clone());
    let looked = shared.readers.read(move |connection| {
        let middle = match connections > 1 && has_many_rows(connection, &all)? {
            true => index::middle(connection),
            false => None,
        };
        Ok(match middle {
            Some(middle) => Err(StoreKey::new(middle)),
            None => Ok(wanted(connection, &all, revision)?),
        })
    });
    let mut rows = match looked.await? {
        Ok(rows) => rows,
        Err(middle) => {
            let (before, behind) = halves(ranges, &middle);
            let find = |ranges: Vec<_>| shared.readers.read(move |connection| wanted(connection, &ranges, revision));
            let (mut rows, behind) = futures::try_join!(find(before), find(behind))?;
            rows.extend(behind);
            rows
        }
    };
    rows.sort_unstable_by_key(|row| row.revision);
    Ok(rows)
}

/// Returns true if the ranges have so many rows that a second connection saves time.
fn has_many_rows(connection: &Connection, ranges: &[(StoreKey, StoreKey)]) -> rusqlite::Result<bool> {
    let mut counted = connection
        .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM history WHERE path >= ?1 AND path < ?2 LIMIT ?3)")?;
    let mut rows = 0;
    for (from, to) in ranges {
        rows += counted.query_row(params![from.as_str(), to.as_str(), FEW_ROWS], |row| row.get::<_, i64>(0))?;
        if rows >= FEW_ROWS {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the rows to read for the ranges at a revision.
fn wanted(connection: &Connection, ranges: &[(StoreKey, StoreKey)], at: Revision) -> rusqlite::Result<Vec<NeededRow>> {
    let mut versions = connection.prepare_cached(
        "SELECT path, revision FROM history WHERE path >= ?1 AND path < ?2 AND revision <= ?3 ORDER BY path, revision",
    )?;
    let mut rows = Vec::new();
    for (from, to) in ranges {
        let mut found = versions.query(params![from.as_str(), to.as_str(), number(at)])?;
        let mut path = String::new();
        // The oldest and the newest version of the path.
        let mut ends: Option<(Revision, Revision)> = None;
        while let Some(version) = found.next()? {
            let (next, revision) = (version.get_ref(0)?.as_str()?, revision_at(version, 1)?);
            match &mut ends {
                Some((_, newest)) if path == next => *newest = revision,
                ends => {
                    rows.extend(ends.take().into_iter().flat_map(|ends| rows_of(&path, ends)));
                    *ends = Some((revision, revision));
                    path.clear();
                    path.push_str(next);
                }
            }
        }
        rows.extend(ends.into_iter().flat_map(|ends| rows_of(&path, ends)));
    }
    Ok(rows)
}

/// Returns the newest row of a path, and its oldest row for the check of [`read::check_oldest`].
fn rows_of(path: &str, (oldest, newest): (Revision, Revision)) -> impl Iterator<Item = NeededRow> + use<> {
    let path_sum = crc32fast::hash(path.as_bytes());
    let row = move |revision, is_newest| NeededRow { revision, path_sum, is_newest };
    (oldest < newest).then(|| row(oldest, false)).into_iter().chain([row(newest, true)])
}

/// Returns the entries of these rows, without deletions.
fn fetch(connection: &Connection, rows: &[NeededRow]) -> rusqlite::Result<Vec<KeyValue>> {
    // One transaction for all rows, since beginning a transaction takes as long as finding a row.
    let _reading = connection.unchecked_transaction()?;
    let mut path_of = connection.prepare_cached("SELECT path FROM history WHERE revision = ?1")?;
    let mut row_of = connection.prepare_cached("SELECT revision, path, value, sum FROM history WHERE revision = ?1")?;
    let mut entries = Vec::with_capacity(rows.len());
    for NeededRow { revision, path_sum, is_newest } in rows.iter().copied() {
        let is_own = |path: &str| crc32fast::hash(path.as_bytes()) == path_sum;
        let missing = || sum::missing(revision);
        if is_newest {
            let change = row_of.query_row([number(revision)], read::change_at).optional()?;
            let change = change.filter(|change| is_own(change.key.as_str())).ok_or_else(missing)?;
            entries.extend(change.value.map(|value| KeyValue::new(change.key, value, revision)));
        } else {
            let own = path_of.query_row([number(revision)], |row| Ok(is_own(row.get_ref(0)?.as_str()?))).optional()?;
            own.filter(|own| *own).ok_or_else(missing)?;
        }
    }
    Ok(entries)
}
