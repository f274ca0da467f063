//! The arguments and the result of the database function that applies a group of transactions.
//!
//! The function first evaluates all compares, then applies all writes. So a transaction that compares or writes a key
//! of an earlier write in the group needs a later call, called a wave. All waves of a group share one database
//! transaction. Most groups have one wave.

use std::error::Error;
use std::fmt;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use keelson_meta::Revision;
use keelson_storage::store::unix_seconds;
use keelson_storage::{CommitError, Committed, Compare, Condition, KeyValue, StoreEvent, StoreKey, Transaction, Write};
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

use super::statements::{number, revision};

/// The value of a compare that is not a revision: the key has no value, or has any value.
const ABSENT: i64 = -1;
const EXISTS: i64 = -2;

/// Assigns the transactions of a group to waves.
#[derive(Default)]
pub(crate) struct Waves {
    /// For each path, the last wave that writes it, and the last wave that compares it.
    touched: HashMap<StoreKey, (Option<usize>, Option<usize>)>,
}

impl Waves {
    /// Returns the first wave that is possible for a transaction after all earlier transactions of the group.
    pub(crate) fn earliest(&self, transaction: &Transaction) -> usize {
        let after_write = |key| self.touched.get(key).and_then(|touched| touched.0).map_or(0, |wave| wave + 1);
        let after_compare = |key| self.touched.get(key).and_then(|touched| touched.1).unwrap_or(0);
        let compares = transaction.compares.iter().map(|compare| after_write(&compare.key));
        let writes = transaction.writes.iter().map(Write::key);
        compares.chain(writes.map(|key| after_write(key).max(after_compare(key)))).max().unwrap_or(0)
    }

    /// Records the wave of a transaction.
    pub(crate) fn place(&mut self, transaction: &Transaction, wave: usize) {
        for compare in &transaction.compares {
            let compared = &mut self.touched.entry(compare.key.clone()).or_default().1;
            *compared = (*compared).max(Some(wave));
        }
        for write in &transaction.writes {
            self.touched.entry(write.key().clone()).or_default().0 = Some(wave);
        }
    }
}

/// The arguments of the function for one wave.
#[derive(Default)]
pub(crate) struct Arguments<'a> {
    known: i64,
    /// The paths of compares and writes, each once. Other arrays refer to them by index, counted from 1.
    paths: Vec<&'a str>,
    /// The paths of compares by index, each once.
    compare_path: Vec<i32>,
    compare_wanted: Vec<i64>,
    /// For each compare of each transaction: the number of the transaction, and its index in `compare_path`, counted
    /// from 1.
    compare_tx: Vec<i32>,
    compare_of: Vec<i32>,
    write_tx: Vec<i32>,
    write_path: Vec<i32>,
    /// For each write, the start of its value in the concatenated values, counted from 1, and its length. A delete has
    /// no length.
    write_begin: Vec<i32>,
    write_length: Vec<Option<i32>>,
    write_values: ConcatenatedValues<'a>,
    /// The expiry of each write. Empty if no write has one.
    write_ends: Vec<Option<i64>>,
    /// True if the compares guarantee that every deleted path exists.
    plain: bool,
    /// The indexes of the paths, and of the compares.
    path_places: HashMap<&'a str, i32>,
    compare_places: HashMap<(i32, i64), i32>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(incarnation: i64, transactions: &[&'a Transaction]) -> Self {
        let mut arguments = Self { known: incarnation, plain: true, ..Self::default() };
        // A group has far fewer than 2^31 transactions.
        for (tx, transaction) in (0..).zip(transactions) {
            arguments.add(tx, transaction);
        }
        arguments
    }

    fn add(&mut self, tx: i32, transaction: &'a Transaction) {
        for compare in &transaction.compares {
            let wanted = match compare.condition {
                Condition::Absent => ABSENT,
                Condition::Exists => EXISTS,
                Condition::At(revision) => number(revision),
            };
            let path = self.path(&compare.key);
            let next = count(&self.compare_path) + 1;
            let place = *self.compare_places.entry((path, wanted)).or_insert(next);
            if place == next {
                self.compare_path.push(path);
                self.compare_wanted.push(wanted);
            }
            self.compare_tx.push(tx);
            self.compare_of.push(place);
        }
        for write in &transaction.writes {
            let path = self.path(write.key());
            self.write_tx.push(tx);
            self.write_path.push(path);
            let (value, expires) = match write {
                Write::Put { value, expires, .. } => (Some(&**value), *expires),
                Write::Delete { key } => {
                    let is_there = |compare: &Compare| compare.key == *key && compare.condition != Condition::Absent;
                    self.plain &= transaction.compares.iter().any(is_there);
                    (None, None)
                }
            };
            self.write_begin.push(as_integer(self.write_values.length + 1));
            self.write_length.push(value.map(|value| as_integer(value.len())));
            self.write_values.add(value.unwrap_or_default());
            let ends = expires.map(|at| i64::try_from(unix_seconds(at)).unwrap_or(i64::MAX));
            if ends.is_some() || !self.write_ends.is_empty() {
                self.write_ends.resize(self.write_path.len() - 1, None);
                self.write_ends.push(ends);
            }
        }
    }

    /// Returns the index of a path in `paths`.
    fn path(&mut self, key: &'a StoreKey) -> i32 {
        let path = key.as_str();
        let next = count(&self.paths) + 1;
        let place = *self.path_places.entry(path).or_insert(next);
        if place == next {
            self.paths.push(path);
        }
        place
    }

    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 13] {
        [
            &self.known,
            &self.paths,
            &self.compare_path,
            &self.compare_wanted,
            &self.compare_tx,
            &self.compare_of,
            &self.write_tx,
            &self.write_path,
            &self.write_begin,
            &self.write_length,
            &self.write_values,
            &self.write_ends,
            &self.plain,
        ]
    }
}

fn count<T>(list: &[T]) -> i32 {
    as_integer(list.len())
}

/// Converts a number to an integer of the database. A number that is too large belongs to a message that is too large,
/// and sending it fails.
fn as_integer(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Values that are sent as one concatenated value.
#[derive(Default)]
struct ConcatenatedValues<'a> {
    values: Vec<&'a [u8]>,
    /// The size of all values in bytes.
    length: usize,
}

/// Shows no content: the driver logs parameters, and the values are objects such as Secrets.
impl fmt::Debug for ConcatenatedValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values of {} bytes", self.values.len(), self.length)
    }
}

impl<'a> ConcatenatedValues<'a> {
    fn add(&mut self, value: &'a [u8]) {
        self.values.push(value);
        self.length += value.len();
    }
}

impl ToSql for ConcatenatedValues<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.reserve(self.length);
        self.values.iter().for_each(|value| out.extend_from_slice(value));
        Ok(IsNull::No)
    }

    accepts!(BYTEA);

    to_sql_checked!();
}

/// The outcome of one wave.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The newest revision before the wave.
    pub(crate) base: Revision,
    /// The results of the transactions, in order.
    pub(crate) answers: Vec<Result<Committed, CommitError>>,
    /// The writes that took effect, in order.
    pub(crate) events: Vec<StoreEvent>,
}

/// Decodes the result of the function.
pub(crate) fn outcome(row: &Row, transactions: &[&Transaction]) -> Result<Outcome, tokio_postgres::Error> {
    let base = revision(row.try_get("base")?);
    // NULL means that all writes took effect.
    let written: Option<Vec<i32>> = row.try_get("written")?;
    let mut refusals = refusals(row, transactions)?;
    let mut written = written.map(|written| written.into_iter().peekable());
    let mut outcome = Outcome { base, answers: Vec::with_capacity(transactions.len()), events: Vec::new() };
    let mut newest = base;
    let mut place = 0;
    for (tx, transaction) in (0..).zip(transactions) {
        let mut revisions = Vec::with_capacity(transaction.writes.len());
        for write in &transaction.writes {
            place += 1;
            if written.as_mut().is_none_or(|written| written.next_if_eq(&place).is_some()) {
                newest = newest.next();
                outcome.events.push(event(write, newest));
            }
            revisions.push(newest);
        }
        outcome.answers.push(match refusals.remove(&tx) {
            Some(refusal) => Err(refusal),
            None => Ok(Committed { revisions }),
        });
    }
    Ok(outcome)
}

fn event(write: &Write, revision: Revision) -> StoreEvent {
    let value = match write {
        Write::Put { value, .. } => Some(value.clone()),
        Write::Delete { .. } => None,
    };
    StoreEvent::new(write.key().clone(), revision, value)
}

/// Returns the errors of the refused transactions, by the number of the transaction.
fn refusals(row: &Row, transactions: &[&Transaction]) -> Result<HashMap<i32, CommitError>, tokio_postgres::Error> {
    let refused: Vec<i32> = row.try_get("refused")?;
    if refused.is_empty() {
        return Ok(HashMap::new());
    }
    let at: Vec<i32> = row.try_get("refused_at")?;
    let revisions: Vec<Option<i64>> = row.try_get("refused_revision")?;
    let values: Vec<Option<&[u8]>> = row.try_get("refused_value")?;
    // The compares of all transactions are numbered together, from 1.
    let first_compares: Vec<usize> = transactions
        .iter()
        .scan(1, |next, transaction| Some(std::mem::replace(next, *next + transaction.compares.len())))
        .collect();
    let found =
        refused.iter().zip(at).zip(revisions.into_iter().zip(values)).filter_map(|((tx, at), (held, value))| {
            let place = usize::try_from(*tx).ok()?;
            let index = usize::try_from(at).ok()?.checked_sub(*first_compares.get(place)?)?;
            let key = transactions.get(place)?.compares.get(index)?.key.clone();
            let current =
                held.zip(value).map(|(held, value)| KeyValue::new(key, Bytes::copy_from_slice(value), revision(held)));
            Some((*tx, CommitError::Compare { index, current }))
        });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> StoreKey {
        StoreKey::new(name)
    }

    fn check(transactions: &[Transaction], expected: &[usize]) {
        let mut waves = Waves::default();
        let placed: Vec<usize> = transactions
            .iter()
            .map(|transaction| {
                let wave = waves.earliest(transaction);
                waves.place(transaction, wave);
                wave
            })
            .collect();
        assert_eq!(placed, expected);
    }

    #[test]
    fn a_transaction_is_ordered_after_its_dependencies() {
        let put = |name: &str| Transaction::default().put(key(name), "v");
        let seen = |transaction: Transaction, name: &str| transaction.when(key(name), Condition::Exists);
        check(&[put("a"), put("b"), seen(put("c"), "namespace")], &[0, 0, 0]);
        check(&[put("a"), put("a"), put("a"), put("b")], &[0, 1, 2, 0]);
        // A transaction that compares a path may share a wave with a later transaction that writes the path. A
        // transaction that compares a path after it was written needs a later wave.
        check(&[seen(put("b"), "a"), put("a"), seen(put("c"), "a")], &[0, 0, 1]);
        // A write is never in an earlier wave than an earlier compare of its path, also if that compare is in a late
        // wave for another reason.
        check(&[put("x"), seen(put("x"), "a"), put("a")], &[0, 1, 1]);
    }
}
