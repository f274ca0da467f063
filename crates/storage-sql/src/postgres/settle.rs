//! Makes sure that a new session leads to the history that is known, and begins another where something of it was lost.
//!
//! Whoever finds a loss raises the revision above all it has seen, under a new incarnation: so no client ever sees a
//! revision twice or less than before, and every watch and token from before is told to list anew. Several servers may
//! find it at once: one of them raises, the others find another history above what they saw, or raise again.

use keelson_meta::Revision;
use tokio_postgres::types::ToSql;

use super::error::Trouble;
use super::read;
use super::seen::{Found, Line, Loss, Seen, Verdict, WITNESSES};
use super::session::Session;
use super::statements::number;
use super::stats::{PostgresCounters, count};
use crate::tail::BATCH_BYTES;

/// How often a database is looked at anew because what is known has changed meanwhile, or was just raised.
const LOOKS: usize = 8;

/// Which cluster this is and which timeline of it. Not every hosted database tells.
const LINE: &str = "SELECT c.system_identifier::text, \
    ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer FROM pg_control_system() c";

/// Begins another history above this one, unless somebody else has.
const RAISE: &str = "UPDATE keelson_state SET incarnation = hashtextextended(gen_random_uuid()::text, 0), \
    revision = greatest(revision, $2) + 1000000000, oldest = greatest(revision, $2) + 1000000000 \
    WHERE incarnation = $1 RETURNING revision";

/// Settles a session. Returns its generation.
pub(crate) async fn settle(session: &Session, seen: &Seen, counters: &PostgresCounters) -> Result<u64, Trouble> {
    let line = line(session).await?;
    for _ in 0..LOOKS {
        let expected = seen.expected();
        let revisions: Vec<i64> = expected.witnesses.iter().map(|witness| number(witness.revision)).collect();
        let (state, rows) = read::witnesses(session, &revisions).await?;
        let found = Found { state, line: line.clone(), rows };
        let settled = match expected.judge(&found) {
            Verdict::Same => seen.stand(&expected, &found.line),
            Verdict::Another => {
                let newest = found.state.revision.get().saturating_sub(WITNESSES as u64);
                let begin = found.state.oldest.max(Revision::new(newest));
                let range = (begin, Some(found.state.revision));
                let (_, changes) = read::changes(session, range, (WITNESSES, BATCH_BYTES)).await?;
                seen.adopt(&expected, &found, begin, changes)
            }
            Verdict::Lost(loss) => {
                raise(session, &found, &loss, counters).await?;
                None
            }
            Verdict::Outdated => {
                return Err(Trouble::Doubt(
                    "it is the primary from before a failover, or an older backup: make sure that it takes no connections, or call \
                     keelson_restored() in it"
                        .to_owned(),
                ));
            }
        };
        if let Some(generation) = settled {
            return Ok(generation);
        }
    }
    Err(Trouble::Doubt("its history is exchanged again and again".to_owned()))
}

async fn line(session: &Session) -> Result<Line, Trouble> {
    match session.client.query_one(LINE, &[]).await {
        Ok(row) => Ok(Line { cluster: row.try_get(0)?, number: row.try_get(1)? }),
        Err(error) if error.code().is_some() => Ok(Line::default()),
        Err(error) => Err(error.into()),
    }
}

async fn raise(session: &Session, found: &Found, loss: &Loss, counters: &PostgresCounters) -> Result<(), Trouble> {
    let (incarnation, highest) = (found.state.incarnation, number(loss.seen));
    let parameters: [&(dyn ToSql + Sync); 2] = [&incarnation, &highest];
    if let Some(row) = session.client.query_opt(RAISE, &parameters).await? {
        count(&counters.losses);
        let begins: i64 = row.try_get(0)?;
        tracing::error!(
            seen = %loss.seen, has = %loss.has, keys = ?loss.keys, begins,
            "the database has lost commits, in a failover or because an older state was put back; the history goes on \
             at a higher revision, all clients list anew, and what was lost has to be written again"
        );
    }
    Ok(())
}
