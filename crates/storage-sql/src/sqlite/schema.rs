//! The tables, and the version of their format.
//!
//! `history` has every change: the revision is the row's number, and a NULL value is a delete. The index over the path
//! ends in the row's number, like every index of SQLite, so it also orders the versions of a path. Text is compared
//! bytewise (SQLite's BINARY collation), which is the order that lists need.
//!
//! Invariant: the facts have a revision and the number of rows up to it, and every later revision has a row. So a
//! missing row is detected, whatever its revision.

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreKey;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::sqlite::shrink;
use crate::sqlite::sum::{self, Damage};

/// The format that this release writes. Raise it when an older keelson could no longer read the tables, or would write
/// rows that this one can't read.
pub(crate) const FORMAT: i32 = 2;

/// The number of rows that get checksums in one transaction during the conversion from format 1.
const MIGRATED_ROWS: u32 = 1000;

/// Identifies the file as keelson's, in SQLite's header field for this purpose: "KLSN".
pub(crate) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"KLSN");

/// The size of a database page in bytes. An object of a few KB uses two or three. Index pages are so small that a write
/// at a random place adds little to the log.
pub(crate) const PAGE_SIZE: u32 = 4096;

/// The revision of an empty store. It is not 0, which has another meaning as a resourceVersion.
pub(crate) const FIRST_REVISION: Revision = Revision::new(1);

const TABLES: &str = "
    CREATE TABLE history (
        revision INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        value BLOB,
        sum INTEGER
    );
    CREATE INDEX history_path ON history (path);
    CREATE TABLE expiry (
        ends INTEGER NOT NULL,
        path TEXT NOT NULL,
        revision INTEGER NOT NULL,
        PRIMARY KEY (ends, path, revision)
    ) WITHOUT ROWID;
    CREATE TABLE facts (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID;
";

/// A number about the whole store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact {
    /// The oldest readable revision.
    Oldest,
    /// Compaction has deleted rows up to this revision.
    Swept,
    /// The minimum of the newest revision, even if no row has it.
    Floor,
    /// Rows are counted up to this revision. Every later revision has a row.
    Counted,
    /// The number of rows up to that revision. This is not a revision.
    Rows,
    /// The number of attempts to write to a full disk. SQLite writes a page only if a value changes.
    Probes,
    /// The number of the start since which a server has the store open. 0 after a clean stop.
    Open,
    /// The number of starts so far. It distinguishes an older copy of the database from the current one.
    Starts,
    /// A random number that identifies the store. 0 until a release that assigns one has opened the store.
    Store,
    /// A checksum of all other facts.
    Sum,
}

impl Fact {
    const fn name(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Swept => "swept",
            Self::Floor => "floor",
            Self::Counted => "counted",
            Self::Rows => "rows",
            Self::Probes => "probes",
            Self::Open => "open",
            Self::Starts => "starts",
            Self::Store => "store",
            Self::Sum => "sum",
        }
    }

    /// Returns the value of the fact. 0 if it was never set.
    pub(crate) fn get(self, connection: &Connection) -> rusqlite::Result<Revision> {
        let mut statement = connection.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
        let value = statement.query_row([self.name()], |row| revision_at(row, 0)).optional()?;
        Ok(value.unwrap_or(Revision::ZERO))
    }

    /// Sets the fact.
    pub(crate) fn set(self, connection: &Connection, value: Revision) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)")?;
        statement.execute(params![self.name(), number(value)])?;
        statement.execute(params![Self::Sum.name(), Self::sum(connection)?])?;
        Ok(())
    }

    /// Computes the checksum of all facts.
    fn sum(connection: &Connection) -> rusqlite::Result<i64> {
        let mut statement =
            connection.prepare_cached("SELECT name, value FROM facts WHERE name <> 'sum' ORDER BY name")?;
        let facts =
            statement.query_map([], |row| Ok(format!("{}={};", row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
        let facts = facts.collect::<rusqlite::Result<String>>()?;
        Ok(sum::of_row(Revision::ZERO, "facts", Some(facts.as_bytes())))
    }

    /// Compares the facts with their checksum.
    pub(crate) fn check(connection: &Connection) -> rusqlite::Result<()> {
        if number(Self::Sum.get(connection)?) == Self::sum(connection)? {
            return Ok(());
        }
        Err(Damage("the record of the whole store does not match its checksum".to_owned()).into())
    }
}

/// Creates the tables of a new store, and its first object if there is one.
pub(crate) fn create(connection: &mut Connection, first: Option<&(StoreKey, Bytes)>) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    // ORDER: this comes before the tables, and in one transaction with them. It writes the first page, and a file with
    // a page and no tables is not a store.
    shrink::prepare(&transaction)?;
    transaction.execute_batch(TABLES)?;
    Fact::Floor.set(&transaction, FIRST_REVISION)?;
    Fact::Counted.set(&transaction, FIRST_REVISION)?;
    if let Some((key, value)) = first {
        let revision = FIRST_REVISION.next();
        let sum = sum::of_row(revision, key.as_str(), Some(value));
        let row = params![number(revision), key.as_str(), &value[..], sum];
        transaction.execute("INSERT INTO history (revision, path, value, sum) VALUES (?1, ?2, ?3, ?4)", row)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// The newest revision of the tables. If the newest row was a delete, compaction may have deleted it.
pub(crate) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    Ok(newest_row(connection)?.max(Fact::Oldest.get(connection)?).max(Fact::Floor.get(connection)?))
}

/// The number of objects: paths whose newest row is not a delete.
pub(crate) fn count_objects(connection: &Connection) -> rusqlite::Result<u64> {
    // SQLite takes a bare column beside MAX from the row of the maximum.
    let count = "SELECT COUNT(*) FROM (SELECT MAX(revision), value IS NULL AS deleted FROM history GROUP BY path) \
                 WHERE NOT deleted";
    connection.query_row(count, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Raises the newest revision to at least `least`. Lower revisions can't be read any more.
pub(crate) fn raise_revision(connection: &mut Connection, least: Revision) -> rusqlite::Result<Revision> {
    let transaction = connection.transaction()?;
    let newest = newest_revision(&transaction)?;
    if newest < least {
        Fact::Floor.set(&transaction, least)?;
        Fact::Oldest.set(&transaction, least)?;
        // The revisions in between have no rows.
        count_rows(&transaction, least)?;
    }
    transaction.commit()?;
    Ok(newest.max(least))
}

/// Records the number of rows. All of them are at or below `newest`.
fn count_rows(transaction: &Transaction<'_>, newest: Revision) -> rusqlite::Result<()> {
    let rows: i64 = transaction.query_row("SELECT COUNT(*) FROM history", [], |row| row.get(0))?;
    Fact::Counted.set(transaction, newest)?;
    Fact::Rows.set(transaction, Revision::new(rows.unsigned_abs()))
}

/// The format of the tables.
pub(crate) fn format(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Converts the tables of an older format to this one. An interrupted conversion keeps its progress. Until the
/// conversion is complete, the older keelson can still use the tables.
pub(crate) fn bring_up(connection: &mut Connection) -> rusqlite::Result<()> {
    let format = format(connection)?;
    if format >= FORMAT {
        return Ok(());
    }
    tracing::info!(from = format, to = FORMAT, "bringing the store to this version's format");
    if connection.prepare("SELECT sum FROM history LIMIT 0").is_err() {
        connection.execute_batch("ALTER TABLE history ADD COLUMN sum INTEGER")?;
    }
    let mut reached = Revision::ZERO;
    while let Some(last) = add_sums(connection, reached)? {
        reached = last;
    }
    let transaction = connection.transaction()?;
    let newest = newest_revision(&transaction)?;
    count_rows(&transaction, newest)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// Adds checksums to some rows after a revision. Returns the revision of the last one. None if there are no more rows.
fn add_sums(connection: &mut Connection, after: Revision) -> rusqlite::Result<Option<Revision>> {
    let transaction = connection.transaction()?;
    let last = {
        let mut rows = transaction.prepare_cached(
            "SELECT revision, path, value FROM history WHERE revision > ?1 ORDER BY revision LIMIT ?2",
        )?;
        let mut update = transaction.prepare_cached("UPDATE history SET sum = ?2 WHERE revision = ?1")?;
        let sums = rows.query_map(params![number(after), MIGRATED_ROWS], |row| {
            let revision = revision_at(row, 0)?;
            let (path, value) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_blob_or_null()?);
            Ok((revision, sum::of_row(revision, path, value)))
        })?;
        let sums = sums.collect::<rusqlite::Result<Vec<_>>>()?;
        for (revision, sum) in &sums {
            update.execute(params![number(*revision), sum])?;
        }
        sums.last().map(|(revision, _)| *revision)
    };
    transaction.commit()?;
    Ok(last)
}

pub(crate) fn newest_row(connection: &Connection) -> rusqlite::Result<Revision> {
    connection.query_row("SELECT COALESCE(MAX(revision), 0) FROM history", [], |row| revision_at(row, 0))
}

/// A revision as an integer of SQLite.
///
/// A revision above 2^63 can't be reached by counting writes. One from a forged token becomes the largest integer,
/// which is in the far future.
pub(crate) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// The revision in a column.
pub(crate) fn revision_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Revision> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map(Revision::new).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
