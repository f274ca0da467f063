//! Failovers that lose commits which servers have already returned to clients. The first server that detects the loss
//! begins a new history above every revision that it has read, and all others follow.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use futures::future::join_all;
use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, Store, StoreError, Tail, Transaction, Write};
use keelson_storage_sql::PostgresStore;
use keelson_teststores::PostgresServer;
use tokio::net::{TcpListener, TcpStream};

use postgres::{commit, database, drain, everything, key, open, put};

/// A revision that a test does not reach by its writes.
const RAISED: u64 = 1_000_000_000;

/// A primary and an asynchronous replica.
fn pair() -> Option<(PostgresServer, PostgresServer)> {
    let first = PostgresServer::start()?;
    let second = first.asynchronous_replica();
    Some((first, second))
}

fn both(first: u16, second: u16) -> String {
    format!("postgres://keelson@127.0.0.1:{first},127.0.0.1:{second}/keelson")
}

/// Kills the primary and promotes the replica, which lacks some commits.
fn fail_over(first: &mut PostgresServer, second: &PostgresServer) {
    tokio::task::block_in_place(|| {
        first.kill();
        second.promote();
    });
}

/// Repeats the request until the store answers again.
async fn revision(store: &PostgresStore) -> Revision {
    let answer = async {
        loop {
            match store.current_revision().await {
                Ok(revision) => return revision,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap()
}

/// Checks that the tail ends with an error, and returns no changes of another history before.
async fn check_ends(tail: &mut Tail, seen: Revision) {
    let end = async {
        loop {
            match tail.next().await.unwrap() {
                Ok(batch) => assert!(batch.watermark <= seen, "{batch:?} after {seen}"),
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(60), end).await.unwrap();
    assert!(matches!(error, StoreError::Compacted { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_server_continues_above_revisions_lost_by_a_failover() {
    let Some((mut first, second)) = pair() else { return };
    let store = open(&both(first.port(), second.port())).await;
    let kept = commit(&store, put("kept", "1")).await;
    tokio::task::block_in_place(|| first.leave_behind(&second));
    commit(&store, put("kept", "2")).await;
    let lost = commit(&store, put("lost", "1")).await;
    let mut tail = store.tail(kept).await.unwrap();
    drain(&mut tail, lost).await;
    fail_over(&mut first, &second);
    let now = revision(&store).await;
    assert!(now.get() > lost.get() + RAISED - 1, "{now}");
    check_ends(&mut tail, lost).await;
    // Tails do not continue where changes may be missing. Reads of existing objects work.
    for at in [kept, lost] {
        assert!(matches!(store.tail(at).await, Err(StoreError::Compacted { .. })));
        assert!(matches!(store.range(everything(Some(at), None)).await, Err(StoreError::Compacted { .. })));
    }
    let page = store.range(everything(None, None)).await.unwrap();
    assert_eq!((page.entries.len(), page.entries[0].revision), (1, kept));
    let again = put("lost", "2").when(key("lost"), Condition::Absent);
    assert!(commit(&store, again).await > now);
    let stats = store.counters().read();
    assert_eq!((stats.losses, stats.exchanges), (1, 1));
}

/// Forwards connections on a port to another port.
async fn forward(listener: TcpListener, to: u16) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await
        });
    }
}

/// A proxy between one server and the replica. It is closed until other servers have written to the replica.
struct ReplicaProxy(u16);

impl ReplicaProxy {
    async fn open(self, second: &PostgresServer) {
        tokio::spawn(forward(TcpListener::bind(("127.0.0.1", self.0)).await.unwrap(), second.port()));
    }
}

async fn open_without_way(first: &PostgresServer) -> (PostgresStore, ReplicaProxy) {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    (open(&both(first.port(), port)).await, ReplicaProxy(port))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_replaced_revisions_after_a_failover_are_detected() {
    let Some((mut first, second)) = pair() else { return };
    let (late, way) = open_without_way(&first).await;
    let before = commit(&late, put("kept", "1")).await;
    tokio::task::block_in_place(|| first.leave_behind(&second));
    let lost = commit(&late, put("lost", "1")).await;
    let mut of_late = late.tail(before).await.unwrap();
    drain(&mut of_late, lost).await;
    fail_over(&mut first, &second);
    let early = open(&second.url()).await;
    let mut of_early = early.tail(before).await.unwrap();
    let mut newest = before;
    for number in 0..10 {
        newest = commit(&early, put("other", &number.to_string())).await;
    }
    assert!(newest > lost, "others have written past what was lost");
    drain(&mut of_early, newest).await;
    way.open(&second).await;

    let now = revision(&late).await;
    assert!(now.get() > newest.get() + RAISED - 1, "{now}");
    check_ends(&mut of_late, lost).await;
    assert!(late.get(&key("lost")).await.unwrap().is_none());
    // The other server saw no loss, but its clients may have used the first server before.
    assert!(revision(&early).await >= now);
    check_ends(&mut of_early, newest).await;
    assert!(matches!(early.tail(newest).await, Err(StoreError::Compacted { .. })));
    let (late_stats, early_stats) = (late.counters().read(), early.counters().read());
    assert_eq!((late_stats.losses, late_stats.exchanges), (1, 1));
    assert_eq!((early_stats.losses, early_stats.exchanges), (0, 1));
    let mut tail = early.tail(revision(&early).await).await.unwrap();
    let after = commit(&late, put("after", "1")).await;
    assert_eq!(drain(&mut tail, after).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_the_revision_of_a_lost_version_holds_for_no_other_one() {
    let Some((mut first, second)) = pair() else { return };
    let (late, way) = open_without_way(&first).await;
    let kept = commit(&late, put("kept", "1")).await;
    tokio::task::block_in_place(|| first.leave_behind(&second));
    let lost = commit(&late, put("k", "lost")).await;
    fail_over(&mut first, &second);
    let early = open(&second.url()).await;
    let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let write = Write::Put { key: key("k"), value: "other".into(), expires: Some(ends) };
    let other = commit(&early, Transaction { writes: vec![write], ..Transaction::default() }).await;
    assert_eq!(other, lost, "one revision, two versions");
    commit(&early, put("gone", "1")).await;
    let newest = commit(&early, Transaction::default().delete(key("gone"))).await;
    way.open(&second).await;

    let now = revision(&late).await;
    assert_eq!(now.get(), newest.get() + RAISED + 1, "the one value that others have left is written again");
    let refused = late.commit(put("k", "mine").when(key("k"), Condition::At(lost))).await;
    let Err(CommitError::Compare { current: Some(current), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((&*current.value, current.revision), (&b"other"[..], now));
    let entries = late.range(everything(None, None)).await.unwrap().entries;
    assert_eq!(entries.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [now, kept]);
    // The key expires at its original time, and compaction removes all of its rows.
    assert_eq!(late.expire(ends).await.unwrap(), 1);
    late.compact(revision(&late).await).await.unwrap();
    assert_eq!(second.sql("keelson", "SELECT path FROM keelson_history"), key("kept").as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_several_servers_that_find_a_loss_at_once_agree() {
    let Some((mut first, second)) = pair() else { return };
    let url = both(first.port(), second.port());
    let stores = join_all((0..4).map(|_| async { Arc::new(open(&url).await) })).await;
    let kept = commit(&*stores[0], put("kept", "1")).await;
    tokio::task::block_in_place(|| first.leave_behind(&second));
    let mut lost = kept;
    for store in &stores {
        lost = commit(&**store, put("lost", "1")).await;
    }
    for store in &stores {
        drain(&mut store.tail(kept).await.unwrap(), lost).await;
    }
    fail_over(&mut first, &second);
    for revision in join_all(stores.iter().map(|store| revision(store))).await {
        assert!(revision.get() > lost.get() + RAISED - 1, "{revision}");
    }
    // The last server that detects the loss may raise the revision once more. Then all agree.
    let agreed = async {
        loop {
            let revisions = join_all(stores.iter().map(|store| revision(store))).await;
            if revisions.iter().all(|revision| *revision == revisions[0]) {
                return revisions[0];
            }
        }
    };
    let agreed = tokio::time::timeout(Duration::from_secs(60), agreed).await.unwrap();
    let mut newest = agreed;
    for store in &stores {
        newest = commit(&**store, put("after", "1")).await;
    }
    for store in &stores {
        assert_eq!(drain(&mut store.tail(agreed).await.unwrap(), newest).await.len(), stores.len());
    }
    assert_eq!(stores.iter().map(|store| store.counters().read().losses).sum::<u64>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_comes_back_after_a_failover_is_not_used() {
    let Some((mut first, second)) = pair() else { return };
    let store = open(&both(first.port(), second.port())).await;
    let kept = commit(&store, put("kept", "1")).await;
    tokio::task::block_in_place(|| first.leave_behind(&second));
    fail_over(&mut first, &second);
    assert!(revision(&store).await >= kept);
    commit(&store, put("after", "1")).await;
    // The old primary is the first host of the URL, has everything up to the failover, and accepts writes.
    tokio::task::block_in_place(|| first.start_again());
    for round in 0..3 {
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keelson'";
        second.sql("postgres", terminate);
        revision(&store).await;
        let name = format!("round{round}");
        while let Err(error) = store.commit(put(&name, "1")).await {
            assert!(error.to_string().contains("unavailable"), "{error}");
        }
        let question = format!("SELECT count(*) FROM keelson_history WHERE path = '{}'", key(&name).as_str());
        assert_eq!((first.sql("keelson", &question), second.sql("keelson", &question)), ("0".into(), "1".into()));
    }
    assert_eq!(store.counters().read().losses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_restored_database_continues_above_shown_revisions() {
    let Some(url) = database() else { return };
    let store = open(&url).await;
    let mut newest = Revision::ZERO;
    for round in 0..5 {
        newest = commit(&store, put("a", &round.to_string())).await;
    }
    PostgresServer::shared().unwrap().sql(
        url.rsplit('/').next().unwrap(),
        "DELETE FROM keelson_history WHERE revision > 3; UPDATE keelson_state SET revision = 3",
    );
    assert!(revision(&store).await.get() > newest.get() + RAISED - 1);
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, "1");
    store.check().await.unwrap();
}

/// When a long read is dropped, its connection returns to the pool, and PostgreSQL cancels the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_no_client_waits_for_any_more_holds_no_connection() {
    let Some(url) = database() else { return };
    let store = Arc::new(open(&url).await);
    commit(&*store, put("a", "1")).await;
    let (locking, driver) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(driver);
    // Each connection of the pool has prepared the statement before the table is locked.
    join_all((0..3).map(|_| store.range(everything(None, None)))).await;
    // The lock makes reads wait until the end of the transaction.
    locking.batch_execute("BEGIN; LOCK TABLE keelson_history").await.unwrap();
    let server = PostgresServer::shared().unwrap();
    let question = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock' \
         AND query LIKE '%DISTINCT ON%'",
        url.rsplit('/').next().unwrap()
    );
    let until = |count: &'static str| {
        let question = &question;
        async move {
            while server.sql("postgres", question) != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let reads = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.range(everything(None, None)).await.map(|page| page.entries.len()) })
    });
    let reads: Vec<_> = reads.collect();
    // As many reads as connections.
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, until("3")).await.unwrap_or(());
    reads.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::timeout(patience, until("0")).await.expect("reads end soon after whoever asked has gone");
    locking.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.range(everything(None, None)).await.unwrap().entries.len(), 1);
}

/// The database is dropped, and another store is created under its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_recreated_is_not_taken_for_the_one_before() {
    let Some(server) = PostgresServer::start() else { return };
    let url = server.create_database("case");
    let store = open(&url).await;
    let mut seen = Revision::ZERO;
    for number in 0..3 {
        seen = commit(&store, put("kept", &number.to_string())).await;
    }
    let refused = |words: &'static str| {
        let store = &store;
        async move {
            let asked = async {
                loop {
                    match store.current_revision().await {
                        Err(StoreError::Unavailable(text)) if text.contains(words) => return text,
                        Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                        other => panic!("{other:?}"),
                    }
                }
            };
            let text = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
            assert!(text.contains("restore its backup, or stop all servers"), "{text}");
            assert!(store.range(everything(None, None)).await.is_err() && store.get(&key("kept")).await.is_err());
            assert!(store.commit(put("mine", "x")).await.is_err() && store.tail(seen).await.is_err());
        }
    };
    server.sql("postgres", "DROP DATABASE \"case\" WITH (FORCE)");
    server.create_database("case");
    refused("holds no tables of keelson").await;
    // Another server creates the new store, and writes more than the old one had.
    let other = open(&url).await;
    for number in 0..10 {
        commit(&other, put("other", &number.to_string())).await;
    }
    refused("holds another store").await;
    assert!(other.get(&key("mine")).await.unwrap().is_none(), "nothing is written into it");
    assert!(other.current_revision().await.unwrap().get() < RAISED, "nor is it raised");
}
