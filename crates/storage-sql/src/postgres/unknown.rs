//! Finds the outcome of a group whose result was lost: committed, or certainly not.
//!
//! The server process of the broken connection may still work on the group. So the process is terminated first, and the
//! search waits for its end. From then on the rows do not change. A group is one transaction of the database, whose
//! number is on each of its rows. If a newer row has a value of the group, its number identifies all rows of the group.
//! Transactions without a row were refused, or never executed, and may be sent again.

use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{Committed, Transaction, Write};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use tokio_postgres::types::ToSql;

use super::error::QueryFault;
use super::read;
use super::session::{ServerProcess, Session};
use super::statements::{number, revision};

/// The interval between checks that the process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The maximum time until its end. It ends at once unless it waits for the disk.
const END: Duration = Duration::from_secs(5);

/// Terminates a process of this store, and returns the number of such processes.
const END_PROCESS: &str = "SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_get_activity($1) a \
    WHERE to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') = $2";

/// The rows of some paths after a revision, with the number of the database transaction that wrote each.
const ROWS: &str = "SELECT h.revision, h.path, sha256(h.value), h.xmin::text FROM keelson_history h \
    WHERE h.path = ANY ($1::text[]) AND h.revision > $2 ORDER BY h.revision";

/// A group that was sent and whose result was lost.
pub(super) struct Lost {
    /// The server process of the connection on which it was sent.
    pub(super) process: ServerProcess,
    /// The history for which it was sent.
    pub(super) incarnation: i64,
    /// The highest revision that was read before it was sent.
    pub(super) before: Revision,
    /// The error for the operator.
    pub(super) reason: String,
}

/// A row that was written after the group was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    revision: Revision,
    path: String,
    /// SHA-256 of the value. None for a delete.
    digest: Option<Vec<u8>>,
    /// The number of the database transaction that wrote it.
    by: String,
}

/// Returns the outcome of each transaction, in the order of sending. `None` is a transaction that had no effect and
/// never will.
///
/// # Errors
/// The outcome can't be found.
pub(super) async fn find(
    session: &Session,
    lost: &Lost,
    transactions: &[&Transaction],
) -> Result<Vec<Option<Committed>>, QueryFault> {
    end_process(session, &lost.process).await?;
    let paths: Vec<&str> =
        transactions.iter().flat_map(|transaction| &transaction.writes).map(|write| write.key().as_str()).collect();
    let parameters: [&(dyn ToSql + Sync); 2] = [&paths, &number(lost.before)];
    let rows = session.client.query(ROWS, &parameters).await?;
    let rows = rows.iter().map(|row| {
        let (revision, path, by) = (revision(row.try_get(0)?), row.try_get(1)?, row.try_get(3)?);
        Ok::<_, tokio_postgres::Error>(Row { revision, path, digest: row.try_get(2)?, by })
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    // ORDER: the state is read after the rows, since a compaction may have deleted some of them before.
    let state = read::state(session).await?;
    if state.incarnation != lost.incarnation {
        return Err(QueryFault::Doubt("the history was exchanged meanwhile".to_owned()));
    }
    if state.oldest > lost.before {
        return Err(QueryFault::Doubt("that write is compacted".to_owned()));
    }
    judge(transactions, &rows).ok_or_else(|| QueryFault::Doubt("it has only deleted, and others may have".to_owned()))
}

/// Terminates the process that the group was sent to, and waits until it has ended.
async fn end_process(session: &Session, process: &ServerProcess) -> Result<(), QueryFault> {
    let deadline = Instant::now() + END;
    loop {
        let parameters: [&(dyn ToSql + Sync); 2] = [&process.number, &process.started];
        let left: i64 = session.client.query_one(END_PROCESS, &parameters).await?.try_get(0)?;
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(QueryFault::Doubt(format!("the server's process {} does not end", process.number)));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Finds the outcome from the rows alone. Returns None if they do not show it: if the group only deletes, the deletes
/// may be those of another server.
fn judge(transactions: &[&Transaction], rows: &[Row]) -> Option<Vec<Option<Committed>>> {
    let writes = transactions.iter().flat_map(|transaction| &transaction.writes);
    let by = writes.clone().find_map(|write| match write {
        Write::Put { .. } => rows.iter().find(|row| row.is_of(write)).map(|row| &row.by),
        Write::Delete { .. } => None,
    });
    let Some(by) = by else {
        let deleted = |write: &Write| matches!(write, Write::Delete { .. }) && rows.iter().any(|row| row.is_of(write));
        return (!writes.clone().any(deleted)).then(|| vec![None; transactions.len()]);
    };
    let mut ours = rows.iter().filter(|row| row.by == *by).peekable();
    let mut newest = ours.peek().map_or(Revision::ZERO, |first| Revision::new(first.revision.get().saturating_sub(1)));
    let became = transactions.iter().map(|transaction| {
        let (mut left, mut reached) = (ours.clone(), newest);
        let mut revisions = Vec::with_capacity(transaction.writes.len());
        for write in &transaction.writes {
            match left.next_if(|row| row.is_of(write)) {
                Some(row) => reached = row.revision,
                // The key was absent, or the whole transaction was refused. In the second case its puts have no rows.
                None if matches!(write, Write::Delete { .. }) => {}
                None => return None,
            }
            revisions.push(reached);
        }
        // A transaction without a row may have been refused. Sending it again gives the same result.
        if reached == newest {
            return None;
        }
        (ours, newest) = (left, reached);
        Some(Committed { revisions })
    });
    Some(became.collect())
}

impl Row {
    fn is_of(&self, write: &Write) -> bool {
        let digest = match write {
            Write::Put { value, .. } => Some(Sha256::digest(value)),
            Write::Delete { .. } => None,
        };
        self.path == write.key().as_str() && self.digest.as_deref() == digest.as_ref().map(|digest| &digest[..])
    }
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreKey;

    use super::*;

    fn put(path: &str, value: &'static str) -> Transaction {
        Transaction::default().put(StoreKey::new(path), value)
    }

    fn delete(path: &str) -> Transaction {
        Transaction::default().delete(StoreKey::new(path))
    }

    fn row(revision: u64, path: &str, value: Option<&str>, by: &str) -> Row {
        let digest = value.map(|value| Sha256::digest(value).to_vec());
        Row { revision: Revision::new(revision), path: path.to_owned(), digest, by: by.to_owned() }
    }

    #[track_caller]
    fn check(transactions: &[Transaction], rows: &[Row], expected: Option<&[Option<&[u64]>]>) {
        let given = judge(&transactions.iter().collect::<Vec<_>>(), rows);
        let numbers = |committed: Committed| committed.revisions.iter().map(|at| at.get()).collect::<Vec<_>>();
        let given: Option<Vec<_>> = given.map(|all| all.into_iter().map(|committed| committed.map(numbers)).collect());
        let expected = expected.map(|all| all.iter().map(|one| one.map(<[u64]>::to_vec)).collect::<Vec<_>>());
        assert_eq!(given, expected);
    }

    #[test]
    fn writes_without_a_row_had_no_effect() {
        check(&[put("a", "1"), delete("b")], &[], Some(&[None, None]));
        // Another server has written the same path since.
        check(&[put("a", "1")], &[row(9, "a", Some("2"), "x")], Some(&[None]));
    }

    #[test]
    fn one_attributed_row_proves_its_whole_group() {
        let sent = [put("a", "1"), delete("b"), put("c", "1"), delete("d").put(StoreKey::new("e"), "1")];
        let rows = [
            row(7, "b", None, "x"),
            row(8, "a", Some("1"), "y"),
            row(9, "b", None, "y"),
            row(10, "e", Some("1"), "y"),
            row(11, "a", Some("2"), "z"),
        ];
        check(&sent, &rows, Some(&[Some(&[8]), Some(&[9]), None, Some(&[9, 10])]));
    }

    #[test]
    fn unattributable_deletions_are_not_attributed() {
        check(&[delete("b")], &[row(7, "b", None, "x")], None);
        check(&[put("a", "1"), delete("b")], &[row(7, "b", None, "x")], None);
        check(
            &[put("a", "1"), delete("b")],
            &[row(7, "b", None, "x"), row(8, "a", Some("1"), "y")],
            Some(&[Some(&[8]), None]),
        );
    }
}
