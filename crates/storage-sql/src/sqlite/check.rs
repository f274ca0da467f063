//! Verifying a store: the log, the pages, every row, and that none is gone. Changes nothing. Files that are not as its server left them
//! are the only finding: SQLite would change them when it opens them.
//!
//! Works beside a running server too, at one moment of its store; its log is being written then, and is not looked at.

use std::path::Path;

use keelson_meta::Revision;
use rusqlite::{Connection, params};

use crate::sqlite::error::OpenError;
use crate::sqlite::index;
use crate::sqlite::losses::Losses;
use crate::sqlite::open::{DATABASE_FILE, DirectoryLock, check_format, check_there, open_other};
use crate::sqlite::schema::{self, Fact, number, revision_at};
use crate::sqlite::sum::{self, Damage};

/// The largest number of findings; a store with more is not repaired by reading on.
const FINDINGS: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of rows read: versions of objects, and deletions.
    pub rows: u64,
    /// The newest revision.
    pub revision: Revision,
    /// True if a server runs on it, whose log was not read.
    pub in_use: bool,
    /// The damage found, at most a hundred findings; empty for a whole store.
    pub findings: Vec<String>,
}

/// Verifies the store in `data_dir`.
///
/// # Errors
/// When there is no store, or it can't be read at all.
pub fn check(data_dir: &Path) -> Result<Checked, OpenError> {
    let file = data_dir.join(DATABASE_FILE);
    // ORDER: before the directory is locked, which would make it.
    check_there(data_dir)?;
    let mut checked = Checked::default();
    let lock = match DirectoryLock::take(data_dir) {
        Ok(lock) => Some(lock),
        Err(OpenError::InUse { .. }) => None,
        Err(other) => return Err(other),
    };
    checked.in_use = lock.is_none();
    // ORDER: before SQLite opens the files. It would roll a journal back that is none of this store.
    let losses = match lock.as_ref().map(|_| Losses::before_opening(data_dir, false)).transpose() {
        Ok(losses) => losses,
        Err(lost) => {
            checked.findings.push(lost.to_string());
            return Ok(checked);
        }
    };
    let connection = open_other(data_dir)?;
    check_format(&connection, &file)?;
    if let Some(Err(lost)) = losses.map(|mut losses| losses.check_content(&connection)) {
        checked.findings.push(lost.to_string());
    }
    match examine(&connection, &mut checked) {
        Ok(()) => Ok(checked),
        Err(error) => {
            // SQLite could not go on: that is a finding, too.
            checked.findings.push(Damage::of(&error).map_or_else(|| error.to_string(), ToString::to_string));
            Ok(checked)
        }
    }
}

fn examine(connection: &Connection, checked: &mut Checked) -> rusqlite::Result<()> {
    // One moment for all of it.
    connection.execute_batch("BEGIN")?;
    let pages = {
        let mut pages = connection.prepare("PRAGMA integrity_check(100)")?;
        let lines = pages.query_map([], |row| row.get::<_, String>(0))?;
        lines.collect::<rusqlite::Result<Vec<_>>>()?
    };
    checked.findings.extend(pages.into_iter().filter(|line| line != "ok"));
    checked.revision = schema::newest_revision(connection)?;
    checked.rows = connection
        .query_row("SELECT COUNT(*) FROM history NOT INDEXED", [], |row| row.get::<_, i64>(0))?
        .unsigned_abs();
    checked.findings.extend(rows(connection)?);
    checked.findings.truncate(FINDINGS);
    connection.execute_batch("COMMIT")
}

/// The faults of rows: those that do not match their checksums, and missing ones. A store of a format without checksums is not
/// compared.
pub(crate) fn rows(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if format < schema::FORMAT {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let counted = Fact::Counted.get(connection)?;
    let mut statement =
        connection.prepare("SELECT revision, path, value, sum FROM history NOT INDEXED ORDER BY revision")?;
    let mut expected = counted.next();
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let revision = revision_at(row, 0)?;
        let (path, value) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_blob_or_null()?);
        findings.extend(sum::check(revision, path, value, row.get(3)?).err().map(|damage| damage.to_string()));
        if revision > counted {
            if revision != expected {
                findings.push(sum::missing(expected).to_string());
            }
            expected = revision.next();
        }
        if findings.len() >= FINDINGS {
            return Ok(findings);
        }
    }
    let in_table: i64 = connection.query_row(
        "SELECT COUNT(*) FROM history NOT INDEXED WHERE revision <= ?1",
        params![number(counted)],
        |row| row.get(0),
    )?;
    let rows = Fact::Rows.get(connection)?.get();
    if in_table.unsigned_abs() != rows {
        findings.push(format!("up to revision {counted} the table has {in_table} rows and should have {rows}"));
    }
    match index::check(connection) {
        Ok(()) => {}
        Err(error) => match Damage::of(&error) {
            Some(damage) => findings.push(damage.to_string()),
            None => return Err(error),
        },
    }
    Ok(findings)
}
