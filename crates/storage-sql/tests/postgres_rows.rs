//! Rows of the history that are deleted by hand.
//!
//! The next start fails. A running server reports the loss and shows clients no deletions. An operator can continue
//! with the remaining rows.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{Store, StoreError, Transaction};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use postgres::{commit, database, drain, everything, key, open, put};
use tokio_postgres::NoTls;

/// The number of objects, each of which is written three times.
const OBJECTS: usize = 200;

/// Runs statements like an operator.
async fn by_hand(url: &str, statements: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(statements).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

/// Fills a store with old and new versions and deletions, with a compaction in between. Returns its newest revision.
async fn filled(store: &PostgresStore) -> Revision {
    let mut newest = Revision::ZERO;
    for round in 0..3 {
        for number in 0..OBJECTS {
            commit(store, put(&format!("{number:04}"), &round.to_string())).await;
        }
        let gone = Transaction::default().delete(key(&format!("{round:04}")));
        newest = commit(store, gone).await;
        if round == 1 {
            store.compact(newest).await.unwrap();
        }
    }
    newest
}

async fn refusal(url: &str) -> String {
    let opened = PostgresStore::open(PostgresConfig::from_url(url).unwrap()).await;
    opened.err().expect("it is refused").to_string()
}

async fn accepting(url: &str) -> PostgresStore {
    let mut config = PostgresConfig::from_url(url).unwrap();
    config.accept_loss = true;
    PostgresStore::open(config).await.unwrap()
}

/// The deleted rows.
const LOSSES: [(&str, &str); 5] = [
    ("every second row", "DELETE FROM keelson_history WHERE revision % 2 = 0"),
    ("the old half", "DELETE FROM keelson_history WHERE revision < 300"),
    ("the new half", "DELETE FROM keelson_history WHERE revision > 500"),
    (
        "one row that compaction has left",
        "DELETE FROM keelson_history WHERE revision = (SELECT min(revision) FROM keelson_history)",
    ),
    ("the newest row", "DELETE FROM keelson_history WHERE revision = (SELECT max(revision) FROM keelson_history)"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rows_stop_the_start_unless_the_loss_is_accepted() {
    for (what, statement) in LOSSES {
        let Some(url) = database() else { return };
        let store = open(&url).await;
        let newest = filled(&store).await;
        drop(store);
        drop(open(&url).await);
        by_hand(&url, statement).await;
        let refused = refusal(&url).await;
        assert!(refused.contains("rows and should have") && refused.contains("--accept-loss"), "{what}: {refused}");
        // The start fails again, and has changed nothing.
        assert_eq!(refusal(&url).await, refused, "{what}");
        let store = accepting(&url).await;
        assert!(store.current_revision().await.unwrap() > newest, "{what}");
        assert!(matches!(store.tail(newest).await, Err(StoreError::Compacted { .. })), "{what}");
        let written = commit(&store, put("after", "1")).await;
        store.compact(written).await.unwrap();
        store.verify().await.unwrap();
        drop(store);
        // The remaining rows are consistent, and the next loss is detected.
        drop(open(&url).await);
        by_hand(&url, "DELETE FROM keelson_history WHERE path LIKE '%after'").await;
        refusal(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_reports_rows_that_are_gone_and_shows_no_deletions() {
    for (what, statement) in LOSSES {
        let Some(url) = database() else { return };
        let store = open(&url).await;
        let newest = filled(&store).await;
        store.verify().await.unwrap();
        by_hand(&url, statement).await;
        // Compaction fails if it would hide a loss. It counts all rows only at intervals, so other losses are found
        // later.
        let compacted = store.compact(newest).await;
        assert!(matches!(compacted, Ok(()) | Err(StoreError::Corrupt(_))), "{what}: {compacted:?}");
        assert!(matches!(store.verify().await, Err(StoreError::Corrupt(_))), "{what}");
        for outcome in [
            store.check().await,
            store.verify().await,
            store.compact(newest).await,
            store.range(everything(None, None)).await.map(drop),
            store.get(&key("0100")).await.map(drop),
        ] {
            assert!(matches!(outcome, Err(StoreError::Corrupt(_))), "{what}: {outcome:?}");
        }
    }
}

/// A row of another server that was deleted before this server has read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_does_not_pass_over_changes_that_are_gone() {
    let Some(url) = database() else { return };
    let store = open(&url).await;
    let before = commit(&store, put("kept", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    by_hand(
        &url,
        "INSERT INTO keelson_history (revision, path, previous, deleted, value)
            SELECT revision + 2, '/registry/things/late', NULL, false, 'v' FROM keelson_state;
        UPDATE keelson_state SET revision = revision + 2",
    )
    .await;
    let told = async {
        while store.check().await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        store.check().await.unwrap_err()
    };
    let error = tokio::time::timeout(std::time::Duration::from_secs(30), told).await.unwrap();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    let next = tokio::time::timeout(std::time::Duration::from_millis(500), tail.next()).await;
    assert!(!matches!(&next, Ok(Some(Ok(batch))) if batch.watermark > before), "{next:?}");
}

/// A database of an older release has no recorded number of rows. It gets one at the next start, and an older server
/// that runs beside keeps it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_an_older_release_is_counted_at_the_next_start() {
    let Some(url) = database() else { return };
    let store = open(&url).await;
    let newest = filled(&store).await;
    drop(store);
    by_hand(&url, "DROP TABLE keelson_rows").await;
    let store = open(&url).await;
    let (mut tail, more) = (store.tail(newest).await.unwrap(), commit(&store, put("more", "1")).await);
    drain(&mut tail, more).await;
    store.compact(more).await.unwrap();
    store.verify().await.unwrap();
    drop(store);
    // A sweep that does not update the table, like that of a role which may not write it.
    by_hand(&url, "UPDATE keelson_rows SET swept = swept - 1").await;
    drop(open(&url).await);
    by_hand(&url, "DELETE FROM keelson_history WHERE path LIKE '%0100'").await;
    let store = open(&url).await;
    let more = commit(&store, put("more", "2")).await;
    store.compact(more).await.unwrap();
    drop(store);
    by_hand(&url, "DELETE FROM keelson_history WHERE path LIKE '%0101'").await;
    refusal(&url).await;
}
