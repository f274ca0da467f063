//! Checks that a new session leads to the known history. If the database has lost a part of it, begins a new history.
//!
//! The server that finds a loss raises the revision above all revisions that it has read, under a new incarnation. So
//! no client sees a lower revision than before, and every earlier watch and token must list again. Changes that other
//! servers wrote in place of lost ones are written again above that revision. So no version has the same
//! resourceVersion as a lost version.
//!
//! Several servers may find a loss at the same time. One of them raises the revision. The others then find another
//! history above the revisions that they have read, or raise it again. If a database is empty or has another store, its
//! revision is not raised, and it is not used.

use futures::future::try_join;
use keelson_meta::Revision;
use keelson_supervision::error_repeated;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::error::QueryFault;
use super::read;
use super::rows;
use super::seen::{DatabaseContent, KnownRevisions, Line, Loss, Verdict, WITNESSES};
use super::session::Session;
use super::statements::number;
use super::stats::{PostgresCounters, count};
use crate::tail::BATCH_BYTES;

/// The maximum number of checks of one session. A check is repeated if the known history has changed meanwhile, or
/// after the revision was raised.
const LOOKS: usize = 8;

/// The cluster and its timeline. Not every hosted database reports them.
const LINE: &str = "SELECT c.system_identifier::text, \
    ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer FROM pg_control_system() c";

/// The first step of a new history. Locks the state, unless another server has begun a new history, and returns the
/// revision above which the new one begins. Later statements see the commits of the lock's previous holder. Joins use
/// hashes if possible, since expiries have no index by path.
const BEGIN: &str = "BEGIN; SET LOCAL enable_nestloop = off";
const ABOVE: &str = "SELECT greatest(revision, $2) + 1000000000 FROM keelson_state WHERE incarnation = $1 FOR UPDATE";

/// Writes the versions again that the last changes after a revision have left, with their expiries. Returns the number
/// of versions.
const AGAIN: &str = "WITH again AS MATERIALIZED (\
        SELECT n.path, n.revision AS previous, n.value, $1 + row_number() OVER (ORDER BY n.revision) AS revision FROM (\
            SELECT h.*, sum(octet_length(h.value)) OVER (ORDER BY h.revision DESC ROWS UNBOUNDED PRECEDING) AS bytes \
            FROM (SELECT c.path, c.revision, c.deleted, c.value FROM keelson_history c \
                WHERE c.revision > $2 ORDER BY c.revision DESC LIMIT $3) h \
            JOIN LATERAL (SELECT l.revision FROM keelson_history l \
                WHERE l.path = h.path ORDER BY l.revision DESC LIMIT 1) l ON l.revision = h.revision \
            WHERE NOT h.deleted\
        ) n WHERE n.bytes <= $4\
    ), inserted AS (\
        INSERT INTO keelson_history (revision, path, previous, deleted, value) \
        SELECT a.revision, a.path, a.previous, false, a.value FROM again a\
    ), ending AS (\
        INSERT INTO keelson_expiry (ends, path, revision) SELECT e.ends, e.path, a.revision \
        FROM again a JOIN keelson_expiry e ON e.path = a.path AND e.revision = a.previous\
    ) SELECT count(*) FROM again";

/// The limits of writing again: the number of changes that are examined, and the bytes of their values. Within them it
/// takes some tenths of a second. They are far above the number of changes that other servers write until a loss is
/// found.
const AGAIN_CHANGES: i64 = 10_000;
const AGAIN_BYTES: i64 = 32 * 1024 * 1024;

const EXCHANGE: &str = "UPDATE keelson_state SET incarnation = hashtextextended(gen_random_uuid()::text, 0), \
    revision = $1, oldest = $1";

/// Checks a session. Returns its generation.
pub(crate) async fn settle(
    session: &Session,
    seen: &KnownRevisions,
    counters: &PostgresCounters,
) -> Result<u64, QueryFault> {
    let (line, name) = try_join(line(session), name(session)).await?;
    for _ in 0..LOOKS {
        let expected = seen.expected();
        let revisions: Vec<i64> = expected.witnesses.iter().map(|witness| number(witness.revision)).collect();
        let (state, rows) = read::witnesses(session, &revisions).await?;
        let found = DatabaseContent { state, line: line.clone(), rows, name: name.clone() };
        let settled = match expected.judge(&found) {
            Verdict::Same => seen.stand(&expected, &found.line),
            Verdict::Another => {
                let newest = found.state.revision.get().saturating_sub(WITNESSES as u64);
                let begin = found.state.oldest.max(Revision::new(newest));
                let range = (begin, Some(found.state.revision));
                let (state, changes) = read::changes(session, range, (WITNESSES, BATCH_BYTES)).await?;
                // If the history was exchanged or compacted meanwhile, some of the changes may be gone.
                let whole = state.incarnation == found.state.incarnation && state.oldest <= begin;
                whole.then(|| seen.adopt(&expected, &found, begin, changes)).flatten()
            }
            Verdict::Lost(_) if !holds_objects(session).await? => return Err(exchanged("no objects")),
            Verdict::Foreign => return Err(exchanged("another store")),
            Verdict::Lost(loss) => {
                // Commits that a failover has lost leave no gap. If rows between others are missing, the loss is of
                // another kind, which clients must not see as deletions.
                if let Some(loss) = rows::loss(&session.client).await? {
                    rows::report(&loss);
                    return Err(QueryFault::Unready(loss));
                }
                raise(session, &found, &loss, counters).await?;
                None
            }
            Verdict::Outdated => {
                return Err(QueryFault::Doubt(
                    "it is the primary from before a failover, or an older backup: make sure that it takes no connections, or call \
                     keelson_restored() in it, or restart this server, if the other primary was the wrong one"
                        .to_owned(),
                ));
            }
        };
        if let Some(generation) = settled {
            return Ok(generation);
        }
    }
    Err(QueryFault::Doubt("its history is exchanged again and again".to_owned()))
}

/// The error for a database that has other content than this server has read.
pub(super) fn exchanged(holds: &str) -> QueryFault {
    let why = format!(
        "the database holds {holds} in place of the store that this server has read: restore its backup, or stop all servers, and start \
         them again to go on with what is there now"
    );
    error_repeated!(""; "{why}; requests are refused until then");
    QueryFault::Unready(why)
}

/// The name of the store. Stores of older releases have none.
async fn name(session: &Session) -> Result<Option<String>, QueryFault> {
    match session.client.query_opt("SELECT name FROM keelson_name", &[]).await {
        Ok(row) => Ok(row.map(|row| row.try_get(0)).transpose()?),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn holds_objects(session: &Session) -> Result<bool, QueryFault> {
    let statement = "SELECT EXISTS (SELECT 1 FROM keelson_history WHERE NOT deleted)";
    Ok(session.client.query_one(statement, &[]).await?.try_get(0)?)
}

async fn line(session: &Session) -> Result<Line, QueryFault> {
    match session.client.query_one(LINE, &[]).await {
        Ok(row) => Ok(Line { cluster: row.try_get(0)?, number: row.try_get(1)? }),
        Err(error) if error.code().is_some() => Ok(Line::default()),
        Err(error) => Err(error.into()),
    }
}

/// Begins a new history above this one, unless another server has done so.
async fn raise(
    session: &Session,
    found: &DatabaseContent,
    loss: &Loss,
    counters: &PostgresCounters,
) -> Result<(), QueryFault> {
    let client = &session.client;
    client.batch_execute(BEGIN).await?;
    let parameters: [&(dyn ToSql + Sync); 2] = [&found.state.incarnation, &number(loss.seen)];
    let Some(row) = client.query_opt(ABOVE, &parameters).await? else {
        return Ok(client.batch_execute("ROLLBACK").await?);
    };
    let above: i64 = row.try_get(0)?;
    let parameters: [&(dyn ToSql + Sync); 4] = [&above, &number(loss.common), &AGAIN_CHANGES, &AGAIN_BYTES];
    let again: i64 = client.query_one(AGAIN, &parameters).await?.try_get(0)?;
    let begins = above + again;
    client.execute(EXCHANGE, &[&begins]).await?;
    client.batch_execute("COMMIT").await?;
    count(&counters.losses);
    tracing::error!(
        seen = %loss.seen, has = %loss.has, common = %loss.common, keys = ?loss.keys, begins, again,
        "the database has lost commits, in a failover or because an older state was restored; the history continues at \
         a higher revision, all clients list again, and the lost changes must be written again"
    );
    Ok(())
}
