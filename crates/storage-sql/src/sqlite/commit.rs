//! Executes one transaction of the store inside the database transaction of its group.
//!
//! Compares and writes behave as if each transaction ran alone. The group becomes durable as a whole afterwards.

use std::collections::HashSet;

use keelson_meta::Revision;
use keelson_storage::store::unix_seconds;
use keelson_storage::{CommitError, Committed, StoreError, StoreEvent, StoreKey, Transaction, Write};
use rusqlite::{Connection, params};

use crate::sqlite::read::{self, Newest};
use crate::sqlite::relief::Puts;
use crate::sqlite::schema::number;
use crate::sqlite::sum;

/// The writes of a group so far. They are invisible until the group is durable.
pub(crate) struct Group {
    /// The newest revision, including the group's writes.
    pub(crate) revision: Revision,
    /// The group's writes, in order.
    pub(crate) events: Vec<StoreEvent>,
    /// The bytes of the values of these writes.
    pub(crate) bytes: u64,
    /// The bytes of superseded values, as far as these were compared or deleted.
    pub(crate) superseded: u64,
    /// The bytes of the group's puts, and of the values that they replace.
    pub(crate) puts: Puts,
}

/// The number of writes at which their keys are put into a set. Fewer keys are compared one by one.
const MANY_WRITES: usize = 5;

impl Group {
    /// A group without writes, after this revision.
    pub(crate) const fn behind(revision: Revision) -> Self {
        Self { revision, events: Vec::new(), bytes: 0, superseded: 0, puts: Puts::none() }
    }
}

/// Executes a transaction, or refuses it before it writes anything. All compares precede the first write, so a refusal
/// needs no rollback and does not affect the rest of the group. If the compares hold, `admit` checks that there is
/// space. It gets the puts of the group before the transaction, and those of the transaction.
pub(crate) fn apply(
    connection: &Connection,
    group: &mut Group,
    transaction: Transaction,
    admit: impl FnOnce(&Transaction, Puts, Puts) -> Result<(), StoreError>,
) -> rusqlite::Result<Result<Committed, CommitError>> {
    let (mut superseded, mut puts) = (0, Puts::among(&transaction.writes));
    let many: Option<HashSet<&StoreKey>> =
        (transaction.writes.len() >= MANY_WRITES).then(|| transaction.writes.iter().filter_map(put_key).collect());
    let is_put = |key: &StoreKey| match &many {
        Some(keys) => keys.contains(key),
        None => transaction.writes.iter().filter_map(put_key).any(|put| put == key),
    };
    for (index, compare) in transaction.compares.iter().enumerate() {
        let newest = read::newest(connection, &compare.key)?.filter(|newest| !newest.is_deletion());
        if let Some(bytes) = newest.as_ref().and_then(|newest| newest.bytes)
            && is_put(&compare.key)
        {
            superseded += bytes;
            puts.replace(bytes);
        }
        if !compare.condition.holds(newest.map(|newest| newest.revision)) {
            let current = read::get(connection, &compare.key, group.revision)?;
            return Ok(Err(CommitError::Compare { index, current }));
        }
    }
    if let Err(full) = admit(&transaction, group.puts, puts) {
        return Ok(Err(full.into()));
    }
    group.superseded += superseded;
    group.puts = group.puts.and(puts);
    let revisions = transaction.writes.into_iter().map(|write| group.write(connection, write));
    Ok(Ok(Committed { revisions: revisions.collect::<rusqlite::Result<_>>()? }))
}

fn put_key(write: &Write) -> Option<&StoreKey> {
    match write {
        Write::Put { key, .. } => Some(key),
        Write::Delete { .. } => None,
    }
}

impl Group {
    /// Executes one write. A delete of an absent key does nothing and returns the newest revision.
    fn write(&mut self, connection: &Connection, write: Write) -> rusqlite::Result<Revision> {
        match write {
            Write::Put { key, value, expires } => {
                let revision = self.append(connection, StoreEvent::new(key, self.revision, Some(value)))?;
                if let (Some(expires), Some(event)) = (expires, self.events.last()) {
                    connection
                        .prepare_cached("INSERT INTO expiry (ends, path, revision) VALUES (?1, ?2, ?3)")?
                        .execute(params![seconds(unix_seconds(expires)), event.key.as_str(), number(revision)])?;
                }
                Ok(revision)
            }
            Write::Delete { key } => self.delete(connection, key),
        }
    }

    /// Deletes a key if it exists.
    pub(crate) fn delete(&mut self, connection: &Connection, key: StoreKey) -> rusqlite::Result<Revision> {
        match read::newest(connection, &key)? {
            Some(Newest { bytes: Some(bytes), .. }) => {
                self.superseded += bytes;
                self.puts.replace(bytes);
                self.append(connection, StoreEvent::new(key, self.revision, None))
            }
            Some(_) | None => Ok(self.revision),
        }
    }

    /// Appends a row at the next revision.
    fn append(&mut self, connection: &Connection, mut event: StoreEvent) -> rusqlite::Result<Revision> {
        self.revision = self.revision.next();
        event.revision = self.revision;
        connection
            .prepare_cached("INSERT INTO history (revision, path, value, sum) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![number(event.revision), event.key.as_str(), event.value.as_deref(), sum_of(&event)])?;
        self.bytes += event.value.as_ref().map_or(0, |value| value.len() as u64);
        self.events.push(event);
        Ok(self.revision)
    }
}

fn sum_of(event: &StoreEvent) -> i64 {
    sum::of_row(event.revision, event.key.as_str(), event.value.as_deref())
}

/// Seconds since the epoch as an integer of SQLite. A time above 2^63 becomes the largest integer.
pub(crate) fn seconds(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}
