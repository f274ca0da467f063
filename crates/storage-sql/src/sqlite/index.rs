//! The whole index over the paths: checks that it has all rows, in order, and finds its middle.
//!
//! The whole index is read when a store is opened, and again when all objects are loaded. If objects were written
//! often, each of the two takes as long as the rest of a start. So each reads two halves at the same time.

use std::cmp::Ordering;

use keelson_meta::Revision;
use rusqlite::{Connection, params_from_iter};

use crate::sqlite::schema::{Fact, newest_row, number, revision_at};
use crate::sqlite::sum::{self, Damage};

/// The number of rows sampled to find the middle of the index.
const SAMPLED_ROWS: u64 = 63;

/// Compares the number of rows in the path index with their recorded number, and checks their order: a search in an
/// unordered index would miss rows. Reads the whole index and nothing else.
pub(crate) fn check(connection: &Connection) -> rusqlite::Result<()> {
    compare(connection, &[IndexRange::read(connection, Bound::None)?])
}

/// Does the same as [`check`] for a store without a writer. A second connection reads the second half at the same time.
pub(crate) fn check_with(connection: &Connection, other: Connection) -> rusqlite::Result<()> {
    let Some(middle) = middle(connection) else { return check(connection) };
    let (before, behind) = std::thread::scope(|scope| {
        let behind = scope.spawn(|| IndexRange::read(&{ other }, Bound::From(&middle)));
        let before = IndexRange::read(connection, Bound::Before(&middle));
        (before, behind.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    compare(connection, &[before?, behind?])
}

/// A path near the middle of the index. `None` if the store has few rows, or if rows can't be read. Reads that need
/// these rows report the error.
pub(crate) fn middle(connection: &Connection) -> Option<String> {
    let newest = newest_row(connection).ok().filter(|newest| newest.get() > SAMPLED_ROWS)?;
    let mut path_of = connection.prepare_cached("SELECT path FROM history WHERE revision >= ?1 LIMIT 1").ok()?;
    let sampled = (1..=SAMPLED_ROWS).map(|part| Revision::new(newest.get() / (SAMPLED_ROWS + 1) * part));
    let paths = sampled.map(|revision| path_of.query_row([number(revision)], |row| row.get(0)));
    let mut paths = paths.collect::<rusqlite::Result<Vec<String>>>().ok()?;
    paths.sort_unstable();
    Some(paths.swap_remove(paths.len() / 2))
}

/// The part of the index to read.
#[derive(Clone, Copy)]
enum Bound<'a> {
    /// The whole index.
    None,
    Before(&'a str),
    From(&'a str),
}

/// A range of adjacent entries of the index.
struct IndexRange {
    /// The first and the last entry.
    ends: Option<[(String, Revision); 2]>,
    /// The number of entries up to the revision of the recorded number.
    old: u64,
    /// The number of entries after that revision.
    new: u64,
    newest: Revision,
}

impl IndexRange {
    fn read(connection: &Connection, bound: Bound<'_>) -> rusqlite::Result<Self> {
        let counted = Fact::Counted.get(connection)?;
        let (condition, path) = match bound {
            Bound::None => ("", None),
            Bound::Before(path) => ("WHERE path < ?1", Some(path)),
            Bound::From(path) => ("WHERE path >= ?1", Some(path)),
        };
        let mut index = connection.prepare(&format!(
            "SELECT path, revision FROM history INDEXED BY history_path {condition} ORDER BY path"
        ))?;
        let mut entries = index.query(params_from_iter(path))?;
        let mut part = Self { ends: None, old: 0, new: 0, newest: Revision::ZERO };
        while let Some(entry) = entries.next()? {
            let (path, revision) = (entry.get_ref(0)?.as_str()?, revision_at(entry, 1)?);
            *(if revision <= counted { &mut part.old } else { &mut part.new }) += 1;
            part.newest = part.newest.max(revision);
            match &mut part.ends {
                None => part.ends = Some([(path.to_owned(), revision), (path.to_owned(), revision)]),
                Some([_, (before, version)]) => {
                    match path.cmp(before) {
                        Ordering::Equal if revision > *version => {}
                        Ordering::Greater => path.clone_into(before),
                        _ => return Err(out_of_order(path)),
                    }
                    *version = revision;
                }
            }
        }
        Ok(part)
    }
}

fn out_of_order(path: &str) -> rusqlite::Error {
    Damage(format!("the index of paths is out of order at {path:?}")).into()
}

/// Compares the entries of all parts of the index with the recorded number.
fn compare(connection: &Connection, parts: &[IndexRange]) -> rusqlite::Result<()> {
    Fact::check(connection)?;
    let ends: Vec<_> = parts.iter().filter_map(|part| part.ends.as_ref()).collect();
    if let Some([_, [first, _]]) = ends.array_windows().find(|[[_, last], [first, _]]| first <= last) {
        return Err(out_of_order(&first.0));
    }
    let counted = Fact::Counted.get(connection)?;
    let rows = Fact::Rows.get(connection)?.get();
    let (old, new): (u64, u64) = (parts.iter().map(|part| part.old).sum(), parts.iter().map(|part| part.new).sum());
    let newest = parts.iter().map(|part| part.newest).fold(counted, Revision::max);
    let wanted = newest.get() - counted.get();
    if old != rows {
        return Err(Damage(format!("up to revision {counted} there are {old} rows, expected {rows}")).into());
    }
    if new != wanted {
        let gap = format!("from revision {counted} to {newest} there are {new} rows, expected {wanted}");
        return Err(Damage(gap).into());
    }
    if newest > counted && newest_row(connection)? < newest {
        return Err(sum::missing(newest).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use keelson_storage::{StoreKey, Transaction};

    use super::*;
    use crate::sqlite::commit::{self, Group};
    use crate::sqlite::open::open_memory;

    const ROWS: u64 = 1000;

    fn filled() -> Connection {
        let connection = open_memory().unwrap();
        let mut group = Group::behind(Revision::new(1));
        for number in 0..ROWS {
            let put = Transaction::default().put(StoreKey::new(format!("/{:03}", number % 10)), number.to_string());
            assert!(commit::apply(&connection, &mut group, put, |_, _, _| Ok(())).is_ok());
        }
        connection
    }

    fn halves(connection: &Connection, middle: &str) -> rusqlite::Result<[IndexRange; 2]> {
        Ok([IndexRange::read(connection, Bound::Before(middle))?, IndexRange::read(connection, Bound::From(middle))?])
    }

    #[test]
    fn checks_of_two_halves_equal_the_whole_check() {
        let connection = filled();
        let middle = middle(&connection).unwrap();
        let parts = halves(&connection, &middle).unwrap();
        assert!(parts.iter().all(|part| part.new > ROWS / 5), "{middle} is about in the middle");
        compare(&connection, &parts).unwrap();
        for middle in ["", "/000", "/009", "~"] {
            compare(&connection, &halves(&connection, middle).unwrap()).unwrap();
        }
    }

    #[test]
    fn missing_rows_in_either_half_are_detected() {
        for row in [5, 8] {
            let connection = filled();
            connection.execute("DELETE FROM history WHERE revision = ?1", [row]).unwrap();
            let parts = halves(&connection, "/005").unwrap();
            assert!(compare(&connection, &parts).unwrap_err().to_string().contains("there are 999 rows"));
        }
    }

    #[test]
    fn overlaps_and_gaps_between_halves_are_detected() {
        let connection = filled();
        let [before, behind] = halves(&connection, "/005").unwrap();
        let part = |bound| IndexRange::read(&connection, bound).unwrap();
        let overlap = compare(&connection, &[part(Bound::Before("/006")), behind]).unwrap_err();
        assert!(overlap.to_string().contains("out of order at \"/005\""), "{overlap}");
        let gap = compare(&connection, &[before, part(Bound::From("/006"))]).unwrap_err();
        assert!(gap.to_string().contains("there are 900 rows"), "{gap}");
    }
}
