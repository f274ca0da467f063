//! The tables, and the version of their form.
//!
//! `history` holds every change: the revision is the row's number, a NULL value is a delete. The index over the path
//! ends in the row's number, as every SQLite index does, so it orders a path's versions too. Text is compared bytewise
//! (SQLite's BINARY collation), which is the order that lists need.
//!
//! Invariant: behind the revision up to which rows are counted, every revision has its row, and up to it there are as many rows
//! as were counted. So a row that is gone is noticed, wherever it was.

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreKey;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::sqlite::shrink;
use crate::sqlite::sum::{self, Damage};

/// The form of the tables that this code writes. Raise it when an older keelson could not read them any more, or would write
/// what this one can't.
pub(crate) const FORMAT: i32 = 2;

/// The number of rows that get checksums in one transaction during the conversion from format 1.
const MIGRATED_ROWS: u32 = 1000;

/// Marks the file as keelson's, in the header field that SQLite keeps for it: "KLSN".
pub(crate) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"KLSN");

/// The bytes of one database page. Objects of a few KB span two or three; index pages stay small enough that one
/// write at a random place does not cost much of the log.
pub(crate) const PAGE_SIZE: u32 = 4096;

/// The revision of an empty store. Not 0, which has a meaning of its own as a resourceVersion.
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
    /// The oldest revision that may be read.
    Oldest,
    /// Up to here compaction has deleted what it may.
    Swept,
    /// The newest revision is at least this, whatever the rows say.
    Floor,
    /// Up to here rows are counted; behind, every revision has one.
    Counted,
    /// The number of rows up to there. A number, not a revision.
    Rows,
    /// The number of attempts to write to a full disk. Only a changed value is written.
    Probes,
    /// The number of the start in which a server has the store open; 0 after an orderly stop.
    Open,
    /// The number of starts so far, by which an older database is known from today's.
    Starts,
    /// A random number that the store is known by; 0 before its first start by a keelson that gives it one.
    Store,
    /// A checksum over all the others.
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

    /// The fact's value; 0 when it was never set.
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

    /// The checksum over all facts.
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
        Err(Damage("what is noted about the whole store does not fit its checksum".to_owned()).into())
    }
}

/// Makes the tables of a new store, with its first object if there is to be one.
pub(crate) fn create(connection: &mut Connection, first: Option<&(StoreKey, Bytes)>) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    // ORDER: before the tables, and in one step with them. It writes the first page, and a file with a page and no tables is no store.
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

/// The newest revision that the tables know of. Compaction may have deleted the newest row, when it was a delete.
pub(crate) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    Ok(newest_row(connection)?.max(Fact::Oldest.get(connection)?).max(Fact::Floor.get(connection)?))
}

/// Raises the newest revision to at least this one. Revisions below can no longer be read.
pub(crate) fn raise_revision(connection: &mut Connection, least: Revision) -> rusqlite::Result<Revision> {
    let transaction = connection.transaction()?;
    let newest = newest_revision(&transaction)?;
    if newest < least {
        Fact::Floor.set(&transaction, least)?;
        Fact::Oldest.set(&transaction, least)?;
        // The revisions between have no rows.
        count_rows(&transaction, least)?;
    }
    transaction.commit()?;
    Ok(newest.max(least))
}

/// Notes how many rows there are, all of them at or below `newest`.
fn count_rows(transaction: &Transaction<'_>, newest: Revision) -> rusqlite::Result<()> {
    let rows: i64 = transaction.query_row("SELECT COUNT(*) FROM history", [], |row| row.get(0))?;
    Fact::Counted.set(transaction, newest)?;
    Fact::Rows.set(transaction, Revision::new(rows.unsigned_abs()))
}

/// The format of the tables.
pub(crate) fn format(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Converts the tables of an older format to this one. An interrupted conversion keeps its progress, and the older keelson can
/// continue with the tables until it is complete.
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

/// Gives some rows after a revision their checksums. Returns the last of them; none when there are no more.
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

/// A revision as SQLite holds it.
///
/// Revisions past 2^63 can't be reached by counting writes; one from a forged token stands for "far in the future".
pub(crate) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// The revision in a column.
pub(crate) fn revision_at(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Revision> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map(Revision::new).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
