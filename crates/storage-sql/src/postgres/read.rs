//! Reads: queries, their rows, and checks of the state that they return.
//!
//! Every result has the state of the history, by which a database that was reset to an older state is detected
//! (`seen`).

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, StoreError, StoreEvent, StoreKey};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::seen::Witness;
use super::session::Session;
use super::statements::{Query, bound, number, revision};
use crate::tail::Changes;

type Answer<T> = Result<T, tokio_postgres::Error>;

/// The first three columns of every result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) incarnation: i64,
    pub(crate) revision: Revision,
    pub(crate) oldest: Revision,
}

impl State {
    fn from_row(row: &Row) -> Answer<Self> {
        Ok(Self {
            incarnation: row.try_get(0)?,
            revision: revision(row.try_get(1)?),
            oldest: revision(row.try_get(2)?),
        })
    }

    /// Checks that this state includes a revision, and that the revision is not compacted.
    pub(crate) fn check_readable(&self, requested: Revision) -> Result<(), StoreError> {
        if requested > self.revision {
            return Err(StoreError::Future { requested, current: self.revision });
        }
        if requested < self.oldest {
            return Err(StoreError::Compacted { requested, oldest: self.oldest });
        }
        Ok(())
    }
}

pub(crate) async fn state(session: &Session) -> Answer<State> {
    State::from_row(&session.client.query_one(session.statement(Query::State), &[]).await?)
}

pub(crate) async fn get(session: &Session, key: &StoreKey) -> Answer<(State, Option<KeyValue>)> {
    let row = session.client.query_one(session.statement(Query::Get), &[&key.as_str()]).await?;
    let (at, value): (Option<i64>, Option<&[u8]>) = (row.try_get(3)?, row.try_get(4)?);
    let found =
        at.zip(value).map(|(at, value)| KeyValue::new(key.clone(), Bytes::copy_from_slice(value), revision(at)));
    Ok((State::from_row(&row)?, found))
}

/// Returns the entries of a range, and true if there are more.
pub(crate) async fn range(session: &Session, request: &RangeRequest) -> Answer<(State, (Vec<KeyValue>, bool))> {
    let (from, to, at) = bounds(request);
    // The query requests one row more than the limit, which shows if there are more.
    let limit = request.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
    let parameters: [&(dyn ToSql + Sync); 4] = [&from, &to, &at, &limit];
    let rows = session.client.query(session.statement(Query::Range), &parameters).await?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in &rows {
        let (path, at, value): (Option<&str>, Option<i64>, Option<&[u8]>) =
            (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        if let (Some(path), Some(at), Some(value)) = (path, at, value) {
            let value = Bytes::copy_from_slice(value);
            entries.push(KeyValue::new(StoreKey::new(path), value, revision(at)));
        }
    }
    let state = State::from_row(first(&rows))?;
    let more = request.limit.is_some_and(|limit| entries.len() > limit);
    entries.truncate(request.limit.unwrap_or(usize::MAX));
    // The rows are in order, but the query plan does not guarantee it. Sorting sorted rows costs little.
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok((state, (entries, more)))
}

/// Returns the revision of the newest row of each path of some ranges, as of a revision. Some of the rows may be
/// deletions.
pub(crate) async fn newest(
    session: &Session,
    ranges: &[(StoreKey, StoreKey)],
    at: Revision,
) -> Answer<(State, Vec<i64>)> {
    let (from, to): (Vec<String>, Vec<String>) = ranges.iter().map(|(from, to)| (bound(from), bound(to))).unzip();
    let parameters: [&(dyn ToSql + Sync); 3] = [&from, &to, &number(at)];
    let rows = session.client.query(session.statement(Query::Newest), &parameters).await?;
    let newest: Answer<Vec<Option<i64>>> = rows.iter().map(|row| row.try_get(3)).collect();
    Ok((State::from_row(first(&rows))?, newest?.into_iter().flatten().collect()))
}

/// Returns the entries that were written at some revisions. Rows that no longer exist, and deletions, are left out.
pub(crate) async fn rows(session: &Session, revisions: &[i64]) -> Answer<(State, Vec<KeyValue>)> {
    let rows = session.client.query(session.statement(Query::Rows), &[&revisions]).await?;
    let entries = events(&rows)?.into_iter();
    let entry = |StoreEvent { key, revision, value, .. }| value.map(|value| KeyValue::new(key, value, revision));
    Ok((State::from_row(first(&rows))?, entries.filter_map(entry).collect()))
}

pub(crate) async fn count(session: &Session, request: &RangeRequest) -> Answer<(State, u64)> {
    let (from, to, at) = bounds(request);
    let limit = request.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let parameters: [&(dyn ToSql + Sync); 4] = [&from, &to, &at, &limit];
    let row = session.client.query_one(session.statement(Query::Count), &parameters).await?;
    let count: i64 = row.try_get(3)?;
    Ok((State::from_row(&row)?, count.unsigned_abs()))
}

/// Returns the changes after one revision up to another, or up to the newest, and the revision that they reach. The
/// limits on their number and bytes may end them earlier.
pub(crate) async fn changes(
    session: &Session,
    (after, until): (Revision, Option<Revision>),
    (max_events, max_bytes): (usize, usize),
) -> Answer<(State, Changes)> {
    let (from, to) = (number(after), until.map(number));
    let count = |bound: usize| i64::try_from(bound).unwrap_or(i64::MAX);
    let (limit, size) = (count(max_events), count(max_bytes));
    let parameters: [&(dyn ToSql + Sync); 4] = [&from, &to, &limit, &size];
    let rows = session.client.query(session.statement(Query::Changes), &parameters).await?;
    let state = State::from_row(first(&rows))?;
    let events = events(&rows)?;
    let bytes: usize = events.iter().filter_map(|event| event.value.as_ref()).map(Bytes::len).sum();
    let cut = events.len() >= max_events || bytes >= max_bytes;
    let reached = match events.last() {
        Some(last) if cut => last.revision,
        _ => until.unwrap_or(state.revision).min(state.revision),
    };
    Ok((state, (events, reached)))
}

/// Returns the changes at some revisions, as far as the table has them.
pub(crate) async fn witnesses(session: &Session, revisions: &[i64]) -> Answer<(State, Vec<Witness>)> {
    let rows = session.client.query(session.statement(Query::Witnesses), &[&revisions]).await?;
    // The column of the value has a digest here.
    let digests = events(&rows)?.into_iter();
    let witness = |StoreEvent { key, revision, value: digest, .. }| Witness { key, revision, digest };
    Ok((State::from_row(first(&rows))?, digests.map(witness).collect()))
}

fn events(rows: &[Row]) -> Answer<Vec<StoreEvent>> {
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let (at, path): (Option<i64>, Option<&str>) = (row.try_get(3)?, row.try_get(4)?);
        if let (Some(at), Some(path)) = (at, path) {
            let value = row.try_get::<_, Option<&[u8]>>(5)?.map(Bytes::copy_from_slice);
            events.push(StoreEvent::new(StoreKey::new(path), revision(at), value));
        }
    }
    Ok(events)
}

fn bounds(request: &RangeRequest) -> (String, String, Option<i64>) {
    (bound(&request.from), bound(&request.to), request.revision.map(number))
}

/// Every result has at least one row, since the row of the state is the left side of the join.
fn first(rows: &[Row]) -> &Row {
    rows.first().expect("the state's row is joined from the left")
}

#[cfg(test)]
mod tests {
    use keelson_teststores::PostgresServer;
    use tokio_postgres::{Client, SimpleQueryMessage};

    use super::*;
    use crate::postgres::access::Purpose;
    use crate::postgres::config::PostgresConfig;
    use crate::postgres::session::Connector;
    use crate::postgres::setup;

    /// The number of rows that each scan of a statement returned when the server ran it.
    async fn rows_scanned(client: &Client, query: Query, types: &str, values: &str) -> Vec<u64> {
        let text = format!(
            "PREPARE probe ({types}) AS {}; EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE probe ({values}); DEALLOCATE probe",
            query.sql()
        );
        let mut found = Vec::new();
        for message in client.simple_query(&text).await.unwrap() {
            let SimpleQueryMessage::Row(row) = message else { continue };
            let line = row.get(0).unwrap().to_owned();
            assert!(!line.contains("Seq Scan on keelson_history"), "{line}");
            if line.contains("Scan") && line.contains("keelson_history") {
                let (_, rows) = line.split_once("rows=").unwrap();
                found.push(rows.split(' ').next().unwrap().parse().unwrap());
            }
        }
        found
    }

    /// A chunk reads only its own rows, at the newest revision and at an older one, wherever it begins. A read of
    /// changes reads no rows before its first.
    #[tokio::test]
    async fn a_chunk_reads_a_chunk_and_never_the_rest() {
        let Some(server) = PostgresServer::shared() else { return };
        let config = PostgresConfig::from_url(&server.create_database("plans")).unwrap();
        let connector = Connector::new(&config);
        let (client, _driver) = connector.connect(Purpose::Write).await.unwrap();
        setup::prepare(&client, Revision::ZERO, false, None, false).await.unwrap();
        let fill = "INSERT INTO keelson_history SELECT n, '/registry/pods/' || lpad(n::text, 6, '0'), NULL, false, 'v' \
            FROM generate_series(2, 20001) n; UPDATE keelson_state SET revision = 20001";
        client.batch_execute(fill).await.unwrap();
        for analyzed in [false, true] {
            if analyzed {
                client.batch_execute("ANALYZE").await.unwrap();
            }
            for at in ["NULL", "15000"] {
                for from in ["/registry/pods/", "/registry/pods/009000"] {
                    let values = format!("'{from}', '/registry/pods0', {at}, 501");
                    let scanned = rows_scanned(&client, Query::Range, "text, text, bigint, bigint", &values).await;
                    assert_eq!(scanned.len(), 1);
                    assert!(scanned[0] <= 502, "{scanned:?} with {values}");
                }
            }
            let scanned =
                rows_scanned(&client, Query::Changes, "bigint, bigint, bigint, bigint", "19000, NULL, 100, 1000000")
                    .await;
            assert_eq!(scanned, [100]);
        }
    }
}
