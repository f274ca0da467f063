//! Verifies a store: the log, the pages, every row, and that no row is missing. Changes nothing. If the files differ
//! from the state in which the server left them, this is the only finding, since SQLite would change the files when it
//! opens them.
//!
//! The check may run while a server runs, and then reads one snapshot. The log is not read in that case, since the
//! server writes it.

use std::path::Path;

use keelson_meta::Revision;
use rusqlite::{Connection, params};

use crate::sqlite::error::OpenError;
use crate::sqlite::index;
use crate::sqlite::losses::Losses;
use crate::sqlite::open::{DATABASE_FILE, DirectoryLock, check_format, check_there, open_other};
use crate::sqlite::schema::{self, Fact, number, revision_at};
use crate::sqlite::sum::{self, Damage};
use crate::sqlite::work::{self, OnProgress, WorkStage};

/// The number of rows that are read between two reports.
const ROWS_IN_A_STEP: u64 = 1000;

/// The maximum number of findings. More findings of the same store do not help to repair it.
const FINDINGS: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// The number of rows read: versions of objects, and deletions.
    pub rows: u64,
    /// The newest revision.
    pub revision: Revision,
    /// True if a server has the store open. Its log was not read.
    pub in_use: bool,
    /// The damage found, at most a hundred findings. Empty for an undamaged store.
    pub findings: Vec<String>,
}

/// Verifies the store in `data_dir`.
///
/// # Errors
/// There is no store, or it can't be read at all. Also when `on_progress` ends the work.
pub fn check(data_dir: &Path, on_progress: &mut OnProgress<'_>) -> Result<CheckResult, OpenError> {
    let file = data_dir.join(DATABASE_FILE);
    // ORDER: this runs before the directory is locked, since locking creates the directory.
    check_there(data_dir)?;
    let mut checked = CheckResult::default();
    let lock = match DirectoryLock::take(data_dir) {
        Ok(lock) => Some(lock),
        Err(OpenError::InUse { .. }) => None,
        Err(other) => return Err(other),
    };
    checked.in_use = lock.is_none();
    // ORDER: this runs before SQLite opens the files, since SQLite would roll back a journal of another store.
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
    match examine(&connection, &mut checked, on_progress) {
        Ok(()) => Ok(checked),
        Err(error) if work::is_interrupted(&error) => Err(OpenError::sqlite(file)(error)),
        Err(error) => {
            // A fatal error of SQLite is also a finding.
            checked.findings.push(Damage::from_error(&error).map_or_else(|| error.to_string(), ToString::to_string));
            Ok(checked)
        }
    }
}

fn examine(
    connection: &Connection,
    checked: &mut CheckResult,
    on_progress: &mut OnProgress<'_>,
) -> rusqlite::Result<()> {
    // All statements read one snapshot.
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
    checked.findings.extend(rows(connection, on_progress)?);
    checked.findings.truncate(FINDINGS);
    connection.execute_batch("COMMIT")
}

/// Returns the faults of rows: rows that do not match their checksums, and missing ones. In a format without checksums,
/// rows are not compared.
pub(crate) fn rows(connection: &Connection, on_progress: &mut OnProgress<'_>) -> rusqlite::Result<Vec<String>> {
    let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if format < schema::FORMAT {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let counted = Fact::Counted.get(connection)?;
    // Every later revision has a row.
    let later = schema::newest_row(connection)?.get().saturating_sub(counted.get());
    let total = Fact::Rows.get(connection)?.get().saturating_add(later);
    let mut read = 0;
    let mut statement =
        connection.prepare("SELECT revision, path, value, sum FROM history NOT INDEXED ORDER BY revision")?;
    let mut expected = counted.next();
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        read += 1;
        if read % ROWS_IN_A_STEP == 0 {
            work::report(on_progress, WorkStage::Verifying, read, total.max(read))?;
        }
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
    work::report(on_progress, WorkStage::Verifying, read, read)?;
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
        Err(error) => match Damage::from_error(&error) {
            Some(damage) => findings.push(damage.to_string()),
            None => return Err(error),
        },
    }
    Ok(findings)
}
