//! The second half of compaction: deletes the rows that no readable revision needs, a few at a time.
//!
//! The first half raises the oldest readable revision. From then on, a row at or below it is needed only if it is the
//! newest row of its path there. The sweep walks the rows between the last sweep and the oldest revision. For each row
//! it deletes the earlier versions of the path, and the row itself if it is a delete. Its position is stored in the
//! same transaction as its deletions, so after a crash the next compaction continues there.

use keelson_meta::Revision;
use keelson_storage::StoreKey;
use rusqlite::{Connection, params};

use crate::sqlite::read::key_at;
use crate::sqlite::schema::{Fact, number, revision_at};

/// The number of rows in one step: a few milliseconds in which other writes wait.
const STEP_ROWS: u32 = 256;

/// The maximum bytes of values in one step, unless a single row is larger. A step deletes older versions of the same
/// keys, which have about the same size, and freeing a large value frees many pages.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

struct SweepStep {
    revision: Revision,
    key: StoreKey,
    /// The length of the value. None for a deletion.
    bytes: Option<u64>,
}

/// Sweeps some rows up to `oldest`. This revision must be published already: after this step commits, reads below it
/// would miss rows. Returns true if more rows remain.
pub(crate) fn step(connection: &Connection, oldest: Revision) -> rusqlite::Result<bool> {
    let swept = Fact::Swept.get(connection)?;
    if swept >= oldest {
        return Ok(false);
    }
    let (rows, all) = rows_between(connection, swept, oldest)?;
    let reached = rows.last().filter(|_| !all).map_or(oldest, |last| last.revision);
    let counted = Fact::Counted.get(connection)?;
    let mut left = Fact::Rows.get(connection)?.get();
    left += rows.iter().filter(|row| row.revision > counted).count() as u64;
    let mut deleted = 0;
    for row in rows {
        deleted += connection
            .prepare_cached("DELETE FROM history WHERE path = ?1 AND revision < ?2")?
            .execute(params![row.key.as_str(), number(row.revision)])?;
        if row.bytes.is_none() {
            let delete = "DELETE FROM history WHERE revision = ?1";
            deleted += connection.prepare_cached(delete)?.execute([number(row.revision)])?;
        }
    }
    Fact::Rows.set(connection, Revision::new(left.saturating_sub(deleted as u64)))?;
    Fact::Counted.set(connection, counted.max(reached))?;
    Fact::Swept.set(connection, reached)?;
    Ok(reached < oldest)
}

/// Returns the rows of one step, and true if there are no more.
fn rows_between(connection: &Connection, after: Revision, until: Revision) -> rusqlite::Result<(Vec<SweepStep>, bool)> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, path, length(value) FROM history WHERE revision > ?1 AND revision <= ?2 \
         ORDER BY revision LIMIT ?3",
    )?;
    let mut found = statement.query(params![number(after), number(until), STEP_ROWS])?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        let length = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
        rows.push(SweepStep { revision: revision_at(row, 0)?, key: key_at(row, 1)?, bytes: length });
        bytes += length.unwrap_or_default();
        if bytes >= STEP_BYTES {
            return Ok((rows, false));
        }
    }
    let all = rows.len() < STEP_ROWS as usize;
    Ok((rows, all))
}

#[cfg(test)]
mod tests {
    use keelson_storage::Transaction;

    use super::*;
    use crate::sqlite::commit::{self, Group};
    use crate::sqlite::index;
    use crate::sqlite::open::open_memory;

    fn rows(connection: &Connection) -> i64 {
        connection.query_row("SELECT COUNT(*) FROM history", [], |row| row.get(0)).unwrap()
    }

    /// Only the newest versions of live keys remain, whether or not the sweep was interrupted between two steps.
    #[test]
    fn a_sweep_continues_where_it_stood() {
        let connection = open_memory().unwrap();
        let mut group = Group::behind(Revision::new(1));
        let mut write = |transaction: Transaction| {
            assert!(commit::apply(&connection, &mut group, transaction, |_, _, _| Ok(())).is_ok());
        };
        for number in 0..1000 {
            write(Transaction::default().put(StoreKey::new(format!("/{}", number % 10)), number.to_string()));
        }
        write(Transaction::default().delete(StoreKey::new("/7")));
        let oldest = group.revision;
        assert!(step(&connection, oldest).unwrap());
        assert_eq!(rows(&connection), 1001 - 246);
        index::check(&connection).unwrap();
        // The next step may run after a restart, since its state is in the tables.
        while step(&connection, oldest).unwrap() {}
        assert_eq!(rows(&connection), 9);
        index::check(&connection).unwrap();
        assert!(!step(&connection, oldest).unwrap());
    }

    #[test]
    fn a_step_over_large_values_is_short() {
        let connection = open_memory().unwrap();
        let mut group = Group::behind(Revision::new(1));
        for number in 0..20 {
            let put = Transaction::default().put(StoreKey::new("/large"), vec![number; 1 << 20]);
            assert!(commit::apply(&connection, &mut group, put, |_, _, _| Ok(())).is_ok());
        }
        assert!(step(&connection, group.revision).unwrap());
        assert_eq!(rows(&connection), 17, "four are passed, and each but the last is deleted");
        while step(&connection, group.revision).unwrap() {}
        assert_eq!(rows(&connection), 1);
        index::check(&connection).unwrap();
    }
}
