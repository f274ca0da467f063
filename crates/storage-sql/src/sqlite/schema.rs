//! The tables, and the version of their form.
//!
//! `history` holds every change: the revision is the row's number, a NULL value is a delete. The index over the path
//! ends in the row's number, as every SQLite index does, so it orders a path's versions too. Text is compared bytewise
//! (SQLite's BINARY collation), which is the order that lists need.

use keelson_meta::Revision;
use rusqlite::{Connection, OptionalExtension as _, params};

/// The form of the tables that this code writes. Raise it when an older keelson could not read them any more.
pub(crate) const FORMAT: i32 = 1;

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
        value BLOB
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
}

impl Fact {
    const fn name(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Swept => "swept",
            Self::Floor => "floor",
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
        connection
            .prepare_cached("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)")?
            .execute(params![self.name(), number(value)])?;
        Ok(())
    }
}

/// Makes the tables of a new store.
pub(crate) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    Fact::Floor.set(&transaction, FIRST_REVISION)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// The newest revision that the tables know of. Compaction may have deleted the newest row, when it was a delete.
pub(crate) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let row = connection.query_row("SELECT COALESCE(MAX(revision), 0) FROM history", [], |row| revision_at(row, 0))?;
    Ok(row.max(Fact::Oldest.get(connection)?).max(Fact::Floor.get(connection)?))
}

/// Raises the newest revision to at least this one. What was written below can no longer be read as of then.
pub(crate) fn raise_revision(connection: &mut Connection, least: Revision) -> rusqlite::Result<Revision> {
    let transaction = connection.transaction()?;
    let newest = newest_revision(&transaction)?;
    if newest < least {
        Fact::Floor.set(&transaction, least)?;
        Fact::Oldest.set(&transaction, least)?;
    }
    transaction.commit()?;
    Ok(newest.max(least))
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
