//! Compaction's second half: deleting rows that no readable revision shows, a few at a time.
//!
//! The first half raises the oldest readable revision. From then on a row at or below it is needed only while it is
//! the newest of its path there. So the sweep walks the rows between the last sweep and the oldest revision, and for
//! each deletes the versions before it; a delete row goes too. Where it stands is stored with what it deletes, so a
//! sweep that was cut off by a crash goes on with the next compaction.

use keelson_meta::Revision;
use keelson_storage::StoreKey;
use rusqlite::{Connection, params};

use crate::sqlite::read::key_at;
use crate::sqlite::schema::{Fact, number, revision_at};

/// How many rows one step looks at: a few milliseconds in which other writes wait.
const STEP_ROWS: u32 = 256;

struct Passed {
    revision: Revision,
    key: StoreKey,
    deleted: bool,
}

/// Sweeps some rows towards `oldest`, which must be published already: from the commit of this step on, reads below
/// it would miss rows. Returns whether more remains.
pub(crate) fn step(connection: &Connection, oldest: Revision) -> rusqlite::Result<bool> {
    let swept = Fact::Swept.get(connection)?;
    if swept >= oldest {
        return Ok(false);
    }
    let rows = rows_between(connection, swept, oldest)?;
    let reached = match rows.last() {
        Some(last) if rows.len() == STEP_ROWS as usize => last.revision,
        Some(_) | None => oldest,
    };
    let counted = Fact::Counted.get(connection)?;
    let mut left = Fact::Rows.get(connection)?.get();
    left += rows.iter().filter(|row| row.revision > counted).count() as u64;
    let mut deleted = 0;
    for row in rows {
        deleted += connection
            .prepare_cached("DELETE FROM history WHERE path = ?1 AND revision < ?2")?
            .execute(params![row.key.as_str(), number(row.revision)])?;
        if row.deleted {
            let delete = "DELETE FROM history WHERE revision = ?1";
            deleted += connection.prepare_cached(delete)?.execute([number(row.revision)])?;
        }
    }
    Fact::Rows.set(connection, Revision::new(left.saturating_sub(deleted as u64)))?;
    Fact::Counted.set(connection, counted.max(reached))?;
    Fact::Swept.set(connection, reached)?;
    Ok(reached < oldest)
}

fn rows_between(connection: &Connection, after: Revision, until: Revision) -> rusqlite::Result<Vec<Passed>> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, path, value IS NULL FROM history WHERE revision > ?1 AND revision <= ?2 \
         ORDER BY revision LIMIT ?3",
    )?;
    let rows = statement.query_map(params![number(after), number(until), STEP_ROWS], |row| {
        Ok(Passed { revision: revision_at(row, 0)?, key: key_at(row, 1)?, deleted: row.get(2)? })
    })?;
    rows.collect()
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
    fn a_sweep_goes_on_where_it_stood() {
        let connection = open_memory().unwrap();
        let mut group = Group { revision: Revision::new(1), events: Vec::new() };
        let mut write = |transaction: Transaction| assert!(commit::apply(&connection, &mut group, transaction).is_ok());
        for number in 0..1000 {
            write(Transaction::default().put(StoreKey::new(format!("/{}", number % 10)), number.to_string()));
        }
        write(Transaction::default().delete(StoreKey::new("/7")));
        let oldest = group.revision;
        assert!(step(&connection, oldest).unwrap());
        assert_eq!(rows(&connection), 1001 - 246);
        index::check(&connection).unwrap();
        // The next step may come after a restart: all that it knows is in the tables.
        while step(&connection, oldest).unwrap() {}
        assert_eq!(rows(&connection), 9);
        index::check(&connection).unwrap();
        assert!(!step(&connection, oldest).unwrap());
    }
}
