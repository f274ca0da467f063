//! Returns free pages to the disk, some at a time.
//!
//! A file that was created with `auto_vacuum=INCREMENTAL` can move its last pages into free ones, and becomes shorter
//! at the next checkpoint. Small files of older releases are converted to this format when they are opened. Others keep
//! their free pages for new rows.

use rusqlite::Connection;

/// The maximum number of pages that one step frees: a few milliseconds in which other writes wait.
pub(crate) const STEP_PAGES: u64 = 128;

/// The maximum size of a file that is converted at a start, in bytes. The conversion rewrites the file, first in
/// memory.
pub(crate) const CONVERTED_BYTES: u64 = 64 * 1024 * 1024;

/// The number of this mode in `PRAGMA auto_vacuum`.
const INCREMENTAL: i64 = 2;

/// Configures a file that has no pages yet to be able to shrink.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)
}

/// Returns true for a file that can shrink.
pub(crate) fn is_possible(connection: &Connection) -> rusqlite::Result<bool> {
    let form: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    Ok(form == INCREMENTAL)
}

/// Converts a file so that it can shrink. The file is complete at every moment, since this is one transaction.
pub(crate) fn convert(connection: &Connection) -> rusqlite::Result<()> {
    prepare(connection)?;
    connection.execute_batch("VACUUM")
}

/// Frees at most `pages` pages at the end of the file, and at most [`STEP_PAGES`].
pub(crate) fn step(connection: &Connection, pages: u64) -> rusqlite::Result<()> {
    let pages = pages.min(STEP_PAGES);
    // SQLite frees a page for each row that the statement returns.
    let mut freeing = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut freed = freeing.query([])?;
    while freed.next()?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::sqlite::space::Pages;

    fn fill(connection: &Connection) {
        connection.execute_batch("CREATE TABLE t (a); CREATE TABLE u (a)").unwrap();
        for _ in 0..400 {
            connection
                .execute_batch("INSERT INTO t VALUES (zeroblob(9000)); INSERT INTO u VALUES (zeroblob(90))")
                .unwrap();
        }
        connection.execute_batch("DELETE FROM t").unwrap();
    }

    #[test]
    fn a_file_ends_sooner_by_as_many_pages_as_a_step_says() {
        let connection = Connection::open_in_memory().unwrap();
        prepare(&connection).unwrap();
        fill(&connection);
        let before = Pages::count(&connection).unwrap();
        step(&connection, 10).unwrap();
        let after = Pages::count(&connection).unwrap();
        assert_eq!((before.all - after.all, before.free - after.free), (10, 10));
        step(&connection, 1000).unwrap();
        assert_eq!(Pages::count(&connection).unwrap().free, after.free - STEP_PAGES);
        let rows: i64 = connection.query_row("SELECT COUNT(*) FROM u", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 400);
    }

    #[test]
    fn an_older_file_is_brought_to_a_form_that_shrinks() {
        let directory = TempDir::new().unwrap();
        let connection = Connection::open(directory.path().join("db")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        fill(&connection);
        assert!(!is_possible(&connection).unwrap());
        convert(&connection).unwrap();
        assert!(is_possible(&connection).unwrap());
        let rows: i64 = connection.query_row("SELECT COUNT(*) FROM u", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 400);
    }
}
