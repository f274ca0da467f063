//! Several servers on one PostgreSQL under failures: broken connections, a kill -9, concurrent compactions, a database
//! that is restored or exchanged.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod postgres;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use futures::future::join_all;
use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, Store, StoreError, StoreEvent, Transaction, Write};
use keelson_storage_sql::{PasswordSources, PostgresConfig, PostgresError, PostgresStore};
use keelson_teststores::PostgresServer;

use postgres::{commit, database, drain, everything, key, open, put};

async fn servers(url: &str, count: usize) -> Vec<Arc<PostgresStore>> {
    join_all((0..count).map(|_| async { Arc::new(open(url).await) })).await
}

fn name_of_database(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// The acknowledged writes of one writer, by key.
type Acknowledged = BTreeMap<String, Revision>;

/// Creates keys one after another, and returns the acknowledged ones.
async fn create_until(store: Arc<PostgresStore>, writer: String, done: Arc<AtomicBool>) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    for number in 0.. {
        if done.load(Ordering::Acquire) {
            break;
        }
        let name = format!("{writer}-{number:05}");
        let create = put(&name, &name).when(key(&name), Condition::Absent);
        match store.commit(create).await {
            Ok(committed) => drop(acknowledged.insert(name, committed.revisions[0])),
            // The outcome is unknown. The writer continues with another name.
            Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {}
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// Checks that every tail returns the same events without a gap, and every acknowledged write once.
async fn check_story(stores: &[Arc<PostgresStore>], start: Revision, acknowledged: &Acknowledged) {
    let end = commit(&*stores[0], put("end", "1")).await;
    let mut story: Option<Vec<StoreEvent>> = None;
    for store in stores {
        let events = drain(&mut store.tail(start).await.unwrap(), end).await;
        let revisions: Vec<u64> = events.iter().map(|event| event.revision.get()).collect();
        assert_eq!(revisions, (start.get() + 1..=end.get()).collect::<Vec<_>>());
        assert_eq!(*story.get_or_insert_with(|| events.clone()), events);
    }
    let mut told = BTreeMap::new();
    for event in story.unwrap() {
        assert_eq!(told.insert(event.key.clone(), event.revision), None, "{} was created twice", event.key);
    }
    for (name, revision) in acknowledged {
        assert_eq!(told.get(&key(name)), Some(revision), "{name} was acknowledged");
    }
}

/// Runs writers on all servers while `trouble` runs.
async fn under_writers(stores: &[Arc<PostgresStore>], trouble: impl Future<Output = ()>) -> Acknowledged {
    let done = Arc::new(AtomicBool::new(false));
    let writers = (0..stores.len() * 3).map(|writer| {
        let store = stores[writer % stores.len()].clone();
        tokio::spawn(create_until(store, format!("w{writer}"), done.clone()))
    });
    let writers: Vec<_> = writers.collect();
    trouble.await;
    done.store(true, Ordering::Release);
    let mut acknowledged = Acknowledged::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    acknowledged
}

/// Waits until a server has committed more writes, so that a failure happens under load.
async fn progress(store: &PostgresStore, more: u64) {
    let from = loop {
        match store.current_revision().await {
            Ok(revision) => break revision,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let until = Revision::new(from.get() + more);
    while store.current_revision().await.is_ok_and(|revision| revision < until) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A host that accepts connections and does not answer, like one whose disk hangs.
async fn silent_host() -> (tokio::net::TcpListener, u16) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn a_hanging_host_does_not_block_the_next_one() {
    let Some(url) = database() else { return };
    let (_listener, port) = silent_host().await;
    let (before, place) = url.rsplit_once('@').unwrap();
    let both = format!("{before}@127.0.0.1:{port},{place}?connect_timeout=3");
    let config = PostgresConfig::from_url(&both).unwrap();
    let store = PostgresStore::open(config).await.unwrap();
    commit(&store, put("a", "1")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv16_all_servers_send_the_same_events_without_gaps() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 3).await;
    let start = stores[0].current_revision().await.unwrap();
    let mut waiting = stores[2].tail(start).await.unwrap();
    let acknowledged = under_writers(&stores, progress(&stores[1], 400)).await;
    assert!(acknowledged.len() >= 400);
    let seen = drain(&mut waiting, *acknowledged.values().max().unwrap()).await;
    assert!(seen.windows(2).all(|pair| pair[0].revision.next() == pair[1].revision));
    check_story(&stores, start, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv15_servers_see_writes_acknowledged_by_others() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 2).await;
    for round in 0..50 {
        let revision = commit(&*stores[round % 2], put("a", &round.to_string())).await;
        let other = &stores[(round + 1) % 2];
        assert_eq!(other.current_revision().await.unwrap(), revision);
        assert_eq!(other.get(&key("a")).await.unwrap().unwrap().revision, revision);
        assert_eq!(other.range(everything(None, None)).await.unwrap().revision, revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_connections_that_break_lose_and_repeat_nothing() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 2).await;
    let start = stores[0].current_revision().await.unwrap();
    let mut through = stores[1].tail(start).await.unwrap();
    let trouble = async {
        for _ in 0..8 {
            progress(&stores[0], 40).await;
            PostgresServer::shared().unwrap().sql(
                "postgres",
                &format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
                    name_of_database(&url)
                ),
            );
        }
        progress(&stores[0], 40).await;
    };
    let acknowledged = under_writers(&stores, trouble).await;
    let seen = drain(&mut through, *acknowledged.values().max().unwrap()).await;
    assert!(seen.windows(2).all(|pair| pair[0].revision.next() == pair[1].revision));
    check_story(&stores, start, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_a_killed_postgresql_has_lost_nothing_that_was_acknowledged() {
    let Some(mut server) = PostgresServer::start() else { return };
    let stores = servers(&server.url(), 2).await;
    let start = stores[0].current_revision().await.unwrap();
    let mut through = stores[1].tail(start).await.unwrap();
    let observer = stores[0].clone();
    let trouble = async {
        for _ in 0..3 {
            progress(&observer, 60).await;
            tokio::task::block_in_place(|| {
                server.kill();
                server.start_again();
            });
        }
        progress(&observer, 60).await;
    };
    let acknowledged = under_writers(&stores, trouble).await;
    let seen = drain(&mut through, *acknowledged.values().max().unwrap()).await;
    assert!(seen.windows(2).all(|pair| pair[0].revision.next() == pair[1].revision));
    check_story(&stores, start, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_synchronous_replica_takes_over_without_a_loss() {
    let Some(mut first) = PostgresServer::start() else { return };
    let second = first.replica();
    let url = format!("postgres://keelson@127.0.0.1:{},127.0.0.1:{}/keelson", first.port(), second.port());
    let stores = servers(&url, 2).await;
    let start = stores[0].current_revision().await.unwrap();
    let mut through = stores[1].tail(start).await.unwrap();
    let observer = stores[0].clone();
    let trouble = async {
        progress(&observer, 100).await;
        tokio::task::block_in_place(|| {
            first.kill();
            second.promote();
        });
        progress(&observer, 100).await;
    };
    let acknowledged = under_writers(&stores, trouble).await;
    let seen = drain(&mut through, *acknowledged.values().max().unwrap()).await;
    assert!(seen.windows(2).all(|pair| pair[0].revision.next() == pair[1].revision));
    check_story(&stores, start, &acknowledged).await;
    // A server that starts now finds the same history, and does not treat it as a copy.
    let newest = stores[0].current_revision().await.unwrap();
    assert!(stores.iter().all(|store| store.counters().read().exchanges == 0));
    assert_eq!(open(&url).await.current_revision().await.unwrap(), newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv20_two_servers_may_compact_at_once() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 2).await;
    for round in 0..300 {
        let transaction = (0..10).fold(Transaction::default(), |so_far, of| {
            let name = format!("k{}", (round * 10 + of) % 40);
            if (round + of) % 11 == 0 { so_far.delete(key(&name)) } else { so_far.put(key(&name), round.to_string()) }
        });
        stores[round % 2].commit(transaction).await.unwrap();
    }
    let page = stores[0].range(everything(None, None)).await.unwrap();
    let later = commit(&*stores[0], put("later", "1")).await;
    let (one, other) = tokio::join!(stores[0].compact(page.revision), stores[1].compact(page.revision));
    one.unwrap();
    other.unwrap();
    // The second server may have found that the first is compacting. Then it has nothing to do.
    stores[1].compact(page.revision).await.unwrap();
    for store in &stores {
        assert_eq!(store.range(everything(Some(page.revision), None)).await.unwrap(), page);
        assert!(matches!(
            store.range(everything(Some(Revision::new(2)), None)).await,
            Err(StoreError::Compacted { oldest, .. }) if oldest == page.revision
        ));
    }
    let rows = PostgresServer::shared().unwrap().sql(name_of_database(&url), "SELECT count(*) FROM keelson_history");
    assert_eq!(rows, (page.entries.len() + 1).to_string(), "what only older revisions showed is gone");
    assert_eq!(stores[1].current_revision().await.unwrap(), later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_end_once() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 2).await;
    let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for number in 0..600 {
        let value = bytes::Bytes::from_static(b"v");
        let write = Write::Put { key: key(&format!("e{number:03}")), value, expires: Some(ends) };
        commit(&*stores[0], Transaction { writes: vec![write], ..Transaction::default() }).await;
    }
    let start = stores[0].current_revision().await.unwrap();
    let (one, other) = tokio::join!(stores[0].expire(ends), stores[1].expire(ends));
    assert_eq!(one.unwrap() + other.unwrap(), 600);
    let now = stores[1].current_revision().await.unwrap();
    assert_eq!(now.get() - start.get(), 600);
    assert_eq!(stores[0].expire(ends).await.unwrap() + stores[1].expire(ends).await.unwrap(), 0);
    assert!(stores[1].range(everything(None, None)).await.unwrap().entries.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_restored_database_is_another_history_above_the_old_one() {
    let Some(url) = database() else { return };
    let store = open(&url).await;
    let before = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    PostgresServer::shared().unwrap().sql(name_of_database(&url), "SELECT keelson_restored()");
    let refused = store.commit(put("a", "2")).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    assert!(matches!(tail.next().await, Some(Err(StoreError::Compacted { .. }))));
    let restarted = open(&url).await;
    let now = restarted.current_revision().await.unwrap();
    assert!(now.get() >= before.get() + 1_000_000_000);
    for store in [&store, &restarted] {
        assert_eq!(store.current_revision().await.unwrap(), now);
        assert_eq!(store.get(&key("a")).await.unwrap().unwrap().revision, before);
        assert!(matches!(store.tail(before).await, Err(StoreError::Compacted { .. })));
    }
    assert!(commit(&store, put("a", "2")).await > now);
    assert_eq!(store.counters().read().losses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_copy_of_a_database_continues_above_it() {
    let Some(url) = database() else { return };
    let server = PostgresServer::shared().unwrap();
    let original = name_of_database(&url);
    let store = open(&url).await;
    let before = commit(&store, put("a", "1")).await;
    drop(store);
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{original}'");
    server.sql("postgres", &end);
    while server.sql("postgres", &format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{original}'")) != "0"
    {
    }
    server.sql("postgres", &format!("CREATE DATABASE {original}_copy TEMPLATE {original}"));
    let copy = open(&server.url_of(&format!("{original}_copy"))).await;
    assert!(copy.current_revision().await.unwrap().get() > before.get() + 999_999_999);
    assert_eq!(copy.get(&key("a")).await.unwrap().unwrap().revision, before);
    assert_eq!(open(&url).await.current_revision().await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_restored_dump_continues_above_its_source() {
    let Some(url) = database() else { return };
    let server = PostgresServer::shared().unwrap();
    let store = open(&url).await;
    let before = commit(&store, put("a", "1").put(key("b/ü"), "2")).await;
    let directory = tempfile::TempDir::new().unwrap();
    let dump = directory.path().join("dump");
    assert!(
        server.program("pg_dump").args(["--format=custom", "--file"]).arg(&dump).arg(&url).status().unwrap().success()
    );
    commit(&store, put("a", "lost")).await;
    let name = format!("{}_restored", name_of_database(&url));
    let restored = server.create_database(&name);
    assert!(server.program("pg_restore").arg("--dbname").arg(&restored).arg(&dump).status().unwrap().success());
    let store = open(&restored).await;
    assert!(store.current_revision().await.unwrap().get() > before.get() + 999_999_999);
    let entries = store.range(everything(None, None)).await.unwrap().entries;
    let values: Vec<&[u8]> = entries.iter().map(|entry| &*entry.value).collect();
    assert_eq!(values, [b"1", b"2"]);
    assert!(commit(&store, put("a", "2").when(key("a"), Condition::At(entries[0].revision))).await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_once_make_one_store() {
    let Some(url) = database() else { return };
    let stores = servers(&url, 6).await;
    let revision = commit(&*stores[0], put("a", "1")).await;
    for store in stores {
        assert_eq!(store.get(&key("a")).await.unwrap().unwrap().revision, revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_format_is_refused() {
    let Some(url) = database() else { return };
    drop(open(&url).await);
    PostgresServer::shared().unwrap().sql(name_of_database(&url), "UPDATE keelson_state SET format = 99");
    let refused = PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.map(|_| ());
    assert!(matches!(refused, Err(PostgresError::NewerFormat { found: 99, .. })), "{refused:?}");
}

/// The function is missing, as after a failover that lost it, or after an older dump was restored.
const WITHOUT: &str = "DROP FUNCTION keelson_commit_3";

fn end_connections(server: &PostgresServer, database: &str) {
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
    server.sql("postgres", &end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_the_database_has_lost_is_made_again() {
    let Some(url) = database() else { return };
    let server = PostgresServer::shared().unwrap();
    let name = name_of_database(&url);
    let stores = servers(&url, 2).await;
    for store in &stores {
        commit(&**store, put("a", "1")).await;
    }
    // Once with all connections ended, and once with the connections kept.
    for ended in [true, false] {
        server.sql(name, WITHOUT);
        if ended {
            end_connections(server, name);
        }
        for store in &stores {
            let refused = |error: &CommitError| matches!(error, CommitError::Store(StoreError::Unavailable(_)));
            // The first write may fail because of the missing function or an ended connection.
            let tries = [store.commit(put("a", "2")).await, store.commit(put("a", "3")).await];
            assert!(tries[0].as_ref().err().is_none_or(refused) && tries[1].is_ok(), "{tries:?}");
        }
        assert_eq!(server.sql(name, "SELECT to_regproc('keelson_commit_3') IS NOT NULL"), "t");
    }
    assert!(stores.iter().all(|store| store.counters().read().exchanges == 0), "the history is the same");
}

/// A store whose tables are gone is lost. A running server does not create empty tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_the_database_has_lost_are_not_made_again() {
    let Some(url) = database() else { return };
    let server = PostgresServer::shared().unwrap();
    let name = name_of_database(&url);
    let store = open(&url).await;
    commit(&store, put("a", "1")).await;
    server.sql(name, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    for ended in [false, true] {
        if ended {
            end_connections(server, name);
        }
        for _ in 0..2 {
            assert!(store.commit(put("a", "2")).await.is_err());
            assert_eq!(server.sql(name, "SELECT to_regclass('keelson_state') IS NULL"), "t");
        }
    }
    let mut existing = PostgresConfig::from_url(&url).unwrap();
    existing.existing = true;
    let refused = PostgresStore::open(existing).await.map(|_| ());
    assert!(matches!(refused, Err(PostgresError::NoStore)), "{refused:?}");
    assert_eq!(server.sql(name, "SELECT to_regclass('keelson_state') IS NULL"), "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_may_not_be_made_again_is_named() {
    let Some(url) = database() else { return };
    let server = PostgresServer::shared().unwrap();
    let name = name_of_database(&url);
    server.sql(name, &format!("CREATE ROLE tenant LOGIN; ALTER DATABASE {name} OWNER TO tenant"));
    let store = open(&url.replace("keelson@", "tenant@")).await;
    commit(&store, put("a", "1")).await;
    server.sql(
        name,
        &format!("ALTER SCHEMA public OWNER TO keelson; REVOKE CREATE ON SCHEMA public FROM PUBLIC; {WITHOUT}"),
    );
    let mut errors = Vec::new();
    for _ in 0..2 {
        errors.push(store.commit(put("a", "2")).await.unwrap_err().to_string());
    }
    assert!(errors[1].contains("keelson_commit_3") && errors[1].contains("permission denied for schema"), "{errors:?}");
    server.sql(name, "GRANT CREATE ON SCHEMA public TO tenant");
    let again = async { while store.commit(put("a", "2")).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_does_not_fail_its_group() {
    let Some(url) = database() else { return };
    let store = Arc::new(open(&url).await);
    // The text exceeds the maximum size of an index row and can't be compressed.
    let mut seed = 1u64;
    let mut letter = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + (seed >> 33) as u8 % 26)
    };
    let long: String = (0..20_000).map(|_| letter()).collect();
    let commits = (0..40).map(|number| {
        let (store, name) = (store.clone(), if number == 20 { long.clone() } else { format!("n{number}") });
        tokio::spawn(async move { store.commit(put(&name, "v")).await.map(|_| ()) })
    });
    let answers: Vec<_> = join_all(commits.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
    let refused: Vec<usize> = (0..40).filter(|number| answers[*number].is_err()).collect();
    assert_eq!(refused, [20], "{answers:?}");
    assert_eq!(store.range(everything(None, None)).await.unwrap().entries.len(), 39);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_named() {
    let Some(server) = PostgresServer::shared() else { return };
    let refused = PostgresStore::open(PostgresConfig::from_url(&server.url_of("nowhere")).unwrap()).await.map(|_| ());
    assert!(refused.unwrap_err().to_string().contains("\"nowhere\" does not exist"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_role_with_a_password_that_owns_the_database_is_enough() {
    let hba = "host all keelson 127.0.0.1/32 trust\nhost all plain 127.0.0.1/32 scram-sha-256\n";
    let Some(server) = PostgresServer::builder().file("pg_hba.conf", hba).start() else { return };
    server.sql("postgres", "CREATE ROLE plain LOGIN PASSWORD 'a b+c'");
    server.sql("postgres", "CREATE DATABASE plain OWNER plain");
    let url = |password: &str| format!("postgres://plain:{password}@127.0.0.1:{}/plain", server.port());
    let store = open(&url("a%20b%2Bc")).await;
    let revision = commit(&store, put("a", "1")).await;
    store.compact(revision).await.unwrap();
    assert_eq!(store.expire(SystemTime::now()).await.unwrap(), 0);
    drop(store);
    assert_eq!(open(&url("a%20b%2Bc")).await.current_revision().await.unwrap(), revision);
    let refused = async |config| PostgresStore::open(config).await.map(|_| ()).unwrap_err().to_string();
    let wrong = refused(PostgresConfig::from_url(&url("wrong")).unwrap()).await;
    assert!(wrong.contains("password authentication failed") && wrong.contains("PGPASSWORD"), "{wrong}");
    // A login that can't succeed is not repeated, and the error lists the sources of passwords.
    let without = PostgresConfig::from_url(&format!("postgres://plain@127.0.0.1:{}/plain", server.port())).unwrap();
    let missing = refused(without.clone()).await;
    assert!(missing.contains("password missing") && missing.contains("PGPASSWORD"), "{missing}");
    let sources = PasswordSources { variable: Some("a b+c".to_owned()), ..PasswordSources::default() };
    let store = PostgresStore::open(without.with_password_from(&sources).unwrap()).await.unwrap();
    assert_eq!(store.current_revision().await.unwrap(), revision);
}

/// Checks the errors while every write is refused, and that reads work.
async fn check_refusing(store: &PostgresStore, words: &str) {
    let refused = store.commit(put("b", "1")).await.unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL takes no writes: ") && error.contains(words), "{error}");
    assert!(store.counters().read().refusing);
    assert!(store.get(&key("a")).await.unwrap().is_some());
    assert_eq!(store.range(everything(None, None)).await.unwrap().entries.len(), 1);
}

async fn check_taking(store: &PostgresStore) {
    commit(store, put("b", "1")).await;
    store.check().await.unwrap();
    let stats = store.counters().read();
    assert!(!stats.refusing && stats.refused > 0, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_fails_while_the_disk_is_full() {
    let Some(url) = database() else { return };
    let Some(server) = PostgresServer::shared() else { return };
    let store = open(&url).await;
    commit(&store, put("a", "1")).await;
    let fill = "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS \
        'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''53100''; END'; \
        CREATE TRIGGER no_room BEFORE INSERT ON keelson_history EXECUTE FUNCTION no_room()";
    server.sql(name_of_database(&url), fill);
    check_refusing(&store, "could not extend file").await;
    let refused = store.commit(put("b", "1")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Store(StoreError::Full(_))), "{refused}");
    server.sql(name_of_database(&url), "DROP TRIGGER no_room ON keelson_history");
    check_taking(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_fails_while_postgresql_is_read_only() {
    let Some(server) = PostgresServer::start() else { return };
    let url = server.create_database("case");
    let store = open(&url).await;
    commit(&store, put("a", "1")).await;
    store.range(everything(None, None)).await.unwrap();
    let settings = server.data_directory().join("postgresql.auto.conf");
    let set = |text: &str| {
        std::fs::write(&settings, text).unwrap();
        server.sql("postgres", "SELECT pg_reload_conf()");
    };
    set("default_transaction_read_only = on\n");
    let reading = || async { server.sql("postgres", "SHOW default_transaction_read_only") == "on" };
    while !reading().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_refusing(&store, "PostgreSQL is read-only").await;
    // New connections also use this server, and a server that starts can read.
    end_connections(&server, "case");
    let started = open(&url).await;
    for store in [&store, &started] {
        let found = async {
            while store.get(&key("a")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), found).await.expect("reads go on");
        assert_eq!(store.range(everything(None, None)).await.unwrap().entries.len(), 1);
        let refused = store.commit(put("b", "1")).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(StoreError::ReadOnly(_))), "{refused}");
    }
    set("");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while store.commit(put("c", "1")).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it takes writes again");
    }
    check_taking(&store).await;
}

/// A standby may lack acknowledged commits, so the store does not read from it, and the error says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_from_a_standby() {
    let Some(mut first) = PostgresServer::start() else { return };
    let second = first.asynchronous_replica();
    let url = format!("postgres://keelson@127.0.0.1:{},127.0.0.1:{}/keelson", first.port(), second.port());
    let store = open(&url).await;
    commit(&store, put("a", "1")).await;
    tokio::task::block_in_place(|| first.kill());
    let refused = store.get(&key("a")).await.unwrap_err();
    assert!(refused.to_string().contains("it is a standby"), "{refused}");
}

/// The store looked damaged or away to clients, and to operators who read its log.
#[tokio::test]
async fn keys_that_postgresql_does_not_hold_are_the_error_of_their_write() {
    let Some(url) = database() else { return };
    let store = Arc::new(open(&url).await);
    let mut seed = 1_u64;
    let mut letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEF"[(seed >> 40) as usize % 32])
    };
    let long: String = (0..5000).map(&mut letter).collect();
    for odd in [&long, "a\0b"] {
        let fine = (0..20).map(|number| store.commit(put(&format!("{}-{number}", odd.len()), "fine")));
        let (fine, refused) = tokio::join!(join_all(fine), store.commit(put(odd, "odd")));
        assert!(fine.iter().all(Result::is_ok), "other writes pass");
        assert!(matches!(refused, Err(CommitError::Store(StoreError::Unstorable(_)))), "{refused:?}");
        assert!(store.get(&key(odd)).await.unwrap().is_none());
    }
    assert!(store.check().await.is_ok() && store.refusal().is_none());
}
