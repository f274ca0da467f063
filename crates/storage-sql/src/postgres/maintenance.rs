//! Compaction and expiry. Every server may run them, and one server at a time does.
//!
//! The work is divided into small steps, so that all servers can commit between them.

use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, StoreError, StoreKey, Transaction};
use tokio_postgres::types::ToSql;

use super::rows;
use super::statements::{Query, number, revision};
use super::store::PostgresStore;

/// The number of rows that one step of compaction examines: a few milliseconds, and commits continue meanwhile.
const SWEEP_ROWS: i32 = 1000;

/// The number of keys that expire in one step.
const ENDED_ROWS: i64 = 256;

/// The advisory lock of the server that expires keys: "KLSN", and a number.
const EXPIRY_LOCK: &str = "1263293262, 1";

impl PostgresStore {
    /// Raises the oldest readable revision, then deletes unreadable rows unless another server does so.
    pub(super) async fn forget(&self, oldest: Revision) -> Result<(), StoreError> {
        let state = self.state().await?;
        if oldest > state.revision {
            return Err(StoreError::Future { requested: oldest, current: state.revision });
        }
        let maintenance = &self.shared.maintenance;
        if self.shared.loss.is_due() {
            match self.count_rows().await {
                Err(error @ StoreError::Corrupt(_)) => return Err(error),
                Err(error) => tracing::debug!(%error, "counting the rows of the history failed"),
                Ok(()) => {}
            }
        }
        if oldest > state.oldest {
            // ORDER: the rows are counted before compaction deletes some. Afterwards only the number of the remaining
            // rows is compared.
            let loss =
                maintenance.read(|session| async move { rows::loss_below(&session.client, oldest).await }).await?;
            if let Some(loss) = loss {
                return Err(self.shared.loss.record(loss));
            }
            let (incarnation, oldest) = (self.shared.seen().incarnation(), number(oldest));
            let raised = maintenance.read(|session| async move {
                let parameters: [&(dyn ToSql + Sync); 2] = [&incarnation, &oldest];
                session.client.execute(session.statement(Query::Compact), &parameters).await
            });
            raised.await?;
        }
        let sweep = || {
            maintenance.read(|session| async move {
                let row = session.client.query_one(session.statement(Query::Sweep), &[&SWEEP_ROWS]).await?;
                row.try_get::<_, Option<bool>>(0)
            })
        };
        while sweep().await? == Some(true) {}
        Ok(())
    }

    /// Counts the rows of the history and records the result. A recorded loss stays until a count finds no loss.
    pub(super) async fn count_rows(&self) -> Result<(), StoreError> {
        let loss = self.shared.maintenance.read(|session| async move { rows::loss(&session.client).await }).await?;
        self.shared.loss.note(loss)
    }

    /// Deletes the keys that expired at or before `now` (seconds since 1970), unless another server does so.
    pub(super) async fn end(&self, now: i64) -> Result<usize, StoreError> {
        let mut count = 0;
        loop {
            let ended = self.ended(now).await?;
            let more = i64::try_from(ended.len()).is_ok_and(|found| found == ENDED_ROWS);
            if ended.is_empty() || !self.take_turn().await? {
                return Ok(count);
            }
            count += self.delete_ended(&ended).await?;
            self.forget_ended(&ended).await?;
            if !more {
                return Ok(count);
            }
        }
    }

    async fn ended(&self, now: i64) -> Result<Vec<Ended>, StoreError> {
        let found = self.shared.maintenance.read(|session| async move {
            let parameters: [&(dyn ToSql + Sync); 2] = [&now, &ENDED_ROWS];
            let rows = session.client.query(session.statement(Query::Ended), &parameters).await?;
            let ended = rows.iter().map(|row| {
                Ok(Ended {
                    ends: row.try_get(0)?,
                    path: row.try_get(1)?,
                    revision: row.try_get(2)?,
                    newest: row.try_get(3)?,
                })
            });
            ended.collect::<Result<Vec<_>, tokio_postgres::Error>>()
        });
        found.await
    }

    /// Returns true if this server has the lock for expiry. The server keeps it until the connection ends or this is
    /// called again. Losing the lock early is harmless, since deleting expired keys twice has no effect.
    async fn take_turn(&self) -> Result<bool, StoreError> {
        let statement = format!("SELECT pg_try_advisory_lock({EXPIRY_LOCK}) FROM (SELECT pg_advisory_unlock_all()) u");
        let statement = &statement;
        let turn = self.shared.maintenance.read(|session| async move {
            let row = session.client.query_one(statement.as_str(), &[]).await?;
            row.try_get(0)
        });
        turn.await
    }

    /// Deletes expired keys by ordinary transactions. Each compares the revision of its key, so that a newer value is
    /// not deleted.
    async fn delete_ended(&self, ended: &[Ended]) -> Result<usize, StoreError> {
        let mut answers = Vec::with_capacity(ended.len());
        for ended in ended.iter().filter(|ended| ended.newest) {
            let key = StoreKey::new(ended.path.as_str());
            let transaction =
                Transaction::default().delete(key.clone()).when(key, Condition::At(revision(ended.revision)));
            answers.push(self.queue(transaction).await?);
        }
        let mut count = 0;
        for answer in answers {
            match answer.await.map_err(|_| super::error::stopped())? {
                Ok(_) => count += 1,
                Err(CommitError::Compare { .. }) => {}
                Err(CommitError::Store(error)) => return Err(error),
            }
        }
        Ok(count)
    }

    async fn forget_ended(&self, ended: &[Ended]) -> Result<(), StoreError> {
        let ends: Vec<i64> = ended.iter().map(|ended| ended.ends).collect();
        let paths: Vec<&str> = ended.iter().map(|ended| ended.path.as_str()).collect();
        let revisions: Vec<i64> = ended.iter().map(|ended| ended.revision).collect();
        let (ends, paths, revisions) = (&ends, &paths, &revisions);
        let forgotten = self.shared.maintenance.read(|session| async move {
            let parameters: [&(dyn ToSql + Sync); 3] = [ends, paths, revisions];
            session.client.execute(session.statement(Query::ForgetEnded), &parameters).await
        });
        forgotten.await.map(|_| ())
    }
}

/// An expired version of a key.
struct Ended {
    ends: i64,
    path: String,
    revision: i64,
    /// True if its key has no newer version.
    newest: bool,
}
