//! The tables: creates them, converts them to the current format, and detects a copy of a database.
//!
//! Servers that start at the same time run this one after another. A copy (a restored dump, another cluster) begins a
//! new history above the revisions of its origin, so that no client sees a lower revision than before.

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreKey;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::error::{PostgresError, text};
use super::rows;
use super::statements::number;

/// The steps from each format of the tables to the next. The number of steps is the newest format.
const STEPS: [&str; 1] = [include_str!("schema_1.sql")];

/// Additional tables of newer releases, by name, each with the condition for creating it. Older releases ignore them.
const TABLES: [(&str, &str, &str); 2] = [
    ("keelson_name", "true", include_str!("name.sql")),
    // The table comes with a replaced function, which only the owner may replace.
    (
        "keelson_rows",
        "(SELECT pg_has_role(p.proowner, 'USAGE') FROM pg_proc p WHERE p.oid = 'keelson_sweep_1'::regproc)",
        include_str!("rows.sql"),
    ),
];

/// Additional functions of newer releases, by name. Older releases ignore them, so they do not need a new format.
const FUNCTIONS: [(&str, &str); 1] = [("keelson_commit_3", include_str!("commit_3.sql"))];

/// The lock for creating and changing tables: "KLSN".
const SETUP_LOCK: i32 = i32::from_be_bytes(*b"KLSN");

/// The oldest PostgreSQL that has the functions used here.
const OLDEST_SERVER: i32 = 130_000;

/// Creates or updates the tables and functions, and raises the newest revision to at least `least`. If `existing` is
/// true, a database without tables is an error.
pub(crate) async fn prepare(
    client: &Client,
    least: Revision,
    existing: bool,
    first: Option<&(StoreKey, Bytes)>,
    accept_loss: bool,
) -> Result<(), PostgresError> {
    check_server(client).await?;
    let cluster = cluster(client).await?;
    if one(client, "SELECT current_setting('transaction_read_only') = 'on'").await? {
        run(client, "BEGIN").await?;
        check_read_only(client, least, &cluster).await?;
        check_rows(client, accept_loss).await?;
        return run(client, "ROLLBACK").await;
    }
    run(client, &format!("BEGIN; SELECT pg_advisory_xact_lock({SETUP_LOCK}, 0)")).await?;
    let formed: bool = one(client, "SELECT to_regclass('keelson_state') IS NOT NULL").await?;
    if existing && !formed {
        return Err(PostgresError::NoStore);
    }
    // ORDER: the rows are counted under the lock, since a session caches the result of looking at tables that another
    // server is creating. They are counted before a copy begins a new history, since rows before the new history are
    // not compared any more.
    let accepted = formed && check_rows(client, accept_loss).await?;
    let found: i32 = if formed { one(client, "SELECT format FROM keelson_state").await? } else { 0 };
    let step = usize::try_from(found).unwrap_or_default();
    let known = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    if found > known {
        return Err(PostgresError::NewerFormat { found, known });
    }
    for sql in &STEPS[step..] {
        run(client, sql).await?;
    }
    if let Some(first) = first.filter(|_| !formed) {
        put_first(client, first).await?;
    }
    run(client, &format!("UPDATE keelson_state SET format = {known} WHERE format <> {known}")).await?;
    for (name, sql) in FUNCTIONS {
        if one(client, &format!("SELECT to_regproc('{name}') IS NULL")).await? {
            run(client, sql).await?;
        }
    }
    // If the role may not create tables, the store stays without a name.
    if one(client, "SELECT has_schema_privilege(current_schema(), 'CREATE')").await? {
        for (name, condition, sql) in TABLES {
            if one(client, &format!("SELECT to_regclass('{name}') IS NULL AND {condition}")).await? {
                run(client, sql).await?;
            }
        }
    }
    if accepted {
        let begins: i64 = one(client, "SELECT keelson_restored()").await?;
        tracing::warn!(revision = begins, "continuing with the remaining objects at a higher revision");
    }
    note_home(client, &cluster).await?;
    let least = number(least);
    run(client, &format!("UPDATE keelson_state SET revision = {least}, oldest = {least} WHERE revision < {least}"))
        .await?;
    run(client, "COMMIT").await
}

/// Counts the rows of a database that has tables, in a transaction. Returns true for an accepted loss.
async fn check_rows(client: &Client, accept_loss: bool) -> Result<bool, PostgresError> {
    run(client, "SAVEPOINT counting").await?;
    match rows::loss(client).await {
        Ok(None) => Ok(false),
        Ok(Some(loss)) if accept_loss => {
            tracing::warn!(loss, "the loss is accepted");
            Ok(true)
        }
        Ok(Some(loss)) => Err(PostgresError::Lost(loss)),
        // If there are very many rows and the disk is slow, the count takes longer than a statement may.
        Err(error) => {
            tracing::warn!(
                error = text(&error),
                "the rows of the history could not be counted, so a loss of rows is not noticed"
            );
            run(client, "ROLLBACK TO SAVEPOINT counting").await?;
            Ok(false)
        }
    }
}

/// Writes the first object of a new store.
async fn put_first(client: &Client, (key, value): &(StoreKey, Bytes)) -> Result<(), PostgresError> {
    let statement = "WITH raised AS (UPDATE keelson_state SET revision = revision + 1 RETURNING revision) \
        INSERT INTO keelson_history (revision, path, previous, deleted, value) \
        SELECT raised.revision, $1, NULL, false, $2 FROM raised";
    let put = client.execute(statement, &[&key.as_str(), &&value[..]]).await;
    put.map(|_| ()).map_err(|error| failed(&error))
}

/// Checks that the tables of a read-only database can be used without a write.
async fn check_read_only(client: &Client, least: Revision, cluster: &str) -> Result<(), PostgresError> {
    let known = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    if one(client, "SELECT to_regclass('keelson_state') IS NULL").await? {
        return Err(PostgresError::NoStore);
    }
    let found: i32 = one(client, "SELECT format FROM keelson_state").await?;
    if found > known {
        return Err(PostgresError::NewerFormat { found, known });
    }
    let mut is_whole = found == known && home(client, cluster).await?.is_none();
    for (name, _) in FUNCTIONS {
        let is_there: bool = one(client, &format!("SELECT to_regproc('{name}') IS NOT NULL")).await?;
        is_whole &= is_there;
    }
    let newest: i64 = one(client, "SELECT revision FROM keelson_state").await?;
    if !is_whole || newest < number(least) {
        return Err(PostgresError::Statement(
            "the server is read-only, and the tables have to be brought up to date first: set default_transaction_read_only to off"
                .to_owned(),
        ));
    }
    tracing::warn!("PostgreSQL is read-only: what is there is served, and every write is refused");
    Ok(())
}

async fn check_server(client: &Client) -> Result<(), PostgresError> {
    let version: i32 = one(client, "SELECT current_setting('server_version_num')::integer").await?;
    if version < OLDEST_SERVER {
        return Err(PostgresError::Statement(format!(
            "the server is too old ({version}); 13 is the oldest that will do"
        )));
    }
    let encoding: String = one(client, "SELECT current_setting('server_encoding')").await?;
    if encoding != "UTF8" {
        return Err(PostgresError::Encoding(encoding));
    }
    let synced: String = one(client, "SELECT current_setting('fsync')").await?;
    if synced == "off" {
        tracing::warn!("the PostgreSQL server has fsync off: what it has acknowledged may be gone after a power loss");
    }
    Ok(())
}

/// The identity of the cluster and of the database. All replicas belong to the same cluster.
async fn cluster(client: &Client) -> Result<String, PostgresError> {
    let statement = "SELECT c.system_identifier || '/' || d.oid FROM pg_control_system() c, pg_database d \
        WHERE d.datname = current_database()";
    match client.query_one(statement, &[]).await {
        Ok(row) => Ok(row.get(0)),
        // Some hosted databases do not report the cluster. Then only the number of the database is used.
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            one(client, "SELECT '?/' || oid FROM pg_database WHERE datname = current_database()").await
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Records the location of the tables. If they were created in another location, begins a new history.
async fn note_home(client: &Client, cluster: &str) -> Result<(), PostgresError> {
    let Some((home, here)) = home(client, cluster).await? else { return Ok(()) };
    if !home.is_empty() {
        let begins: i64 = one(client, "SELECT keelson_restored()").await?;
        tracing::warn!(revision = begins, "the database is a copy: its history continues at a higher revision");
    }
    let noted = client.execute("UPDATE keelson_state SET home = $1", &[&here]).await;
    noted.map(|_| ()).map_err(|error| failed(&error))
}

/// Returns the recorded location of the tables and the current one. None if both are the same.
async fn home(client: &Client, cluster: &str) -> Result<Option<(String, String)>, PostgresError> {
    let table: String = one(client, "SELECT 'keelson_state'::regclass::oid::text").await?;
    let here = format!("{cluster}/{table}");
    let home: String = one(client, "SELECT home FROM keelson_state").await?;
    Ok((home != here).then_some((home, here)))
}

async fn run(client: &Client, statements: &str) -> Result<(), PostgresError> {
    client.batch_execute(statements).await.map_err(|error| failed(&error))
}

async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(
    client: &Client,
    statement: &str,
) -> Result<T, PostgresError> {
    client.query_one(statement, &[]).await.and_then(|row| row.try_get(0)).map_err(|error| failed(&error))
}

fn failed(error: &tokio_postgres::Error) -> PostgresError {
    PostgresError::Statement(text(error))
}
