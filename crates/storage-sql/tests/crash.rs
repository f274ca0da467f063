//! Invariant 18: an acknowledged write survives kill -9. Another write is complete or absent.
//!
//! The test starts itself again as a child process, which writes and prints the acknowledged writes, and kills it.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // A test fails by a panic, and the child reports by printing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use keelson_meta::Revision;
use keelson_storage::{Condition, Store, StoreKey, Transaction};
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use keelson_teststores::{DiskFault, FragileDisk};
use tempfile::TempDir;

/// The environment variable of the child with its data directory.
const CHILD_DIRECTORY: &str = "KEELSON_CRASH_TEST_DIRECTORY";

/// The environment variable of a child that must run out of space, with the size of its disk in bytes.
const CHILD_ROOM: &str = "KEELSON_CRASH_TEST_ROOM";

/// The number of writers of the child.
const WRITERS: usize = 16;

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(SqliteConfig::directory(directory)).unwrap()
}

fn key(writer: usize, round: u64, half: &str) -> StoreKey {
    StoreKey::new(format!("/w{writer}/{round}/{half}"))
}

/// The code of the child. Does nothing when the test binary runs normally.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    if let Some(room) = std::env::var_os(CHILD_ROOM) {
        return fill_for_ever(directory.as_ref(), room.to_str().unwrap().parse().unwrap()).await;
    }
    let store = Arc::new(open(directory.as_ref()));
    let compactor = store.clone();
    tokio::spawn(async move {
        loop {
            let newest = compactor.current_revision().await.unwrap();
            compactor.compact(newest).await.unwrap();
        }
    });
    let start = store.current_revision().await.unwrap().get();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write_for_ever(store.clone(), writer, start))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write_for_ever(store: Arc<SqliteStore>, writer: usize, start: u64) {
    for round in start.. {
        let transaction = Transaction::default()
            .when(key(writer, round, "a"), Condition::Absent)
            .put(key(writer, round, "a"), vec![7; 3000])
            .put(key(writer, round, "b"), round.to_string());
        let committed = store.commit(transaction).await.unwrap();
        println!("acknowledged {writer} {round} {}.", committed.revisions[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_acknowledged_writes_survive_kill_9() {
    let directory = TempDir::new().unwrap();
    let mut acknowledged = Vec::new();
    for kill_after in [1, 40, 300, 900] {
        acknowledged.extend(run_child_and_kill_it(directory.path(), None, kill_after));
        let store = open(directory.path());
        let newest = store.current_revision().await.unwrap();
        for (writer, round, revision) in &acknowledged {
            let second = store.get(&key(*writer, *round, "b")).await.unwrap();
            assert_eq!(second.map(|found| found.revision), Some(*revision), "w{writer} round {round} was acknowledged");
            assert_eq!(store.get(&key(*writer, *round, "a")).await.unwrap().unwrap().value.len(), 3000);
            assert!(*revision <= newest);
        }
        assert_no_half_transactions(&store).await;
    }
}

/// Reads lines of the child until there are `kill_after`, kills it with kill -9, and reads the rest of its output.
fn run_child_and_kill_it(directory: &Path, room: Option<u64>, kill_after: usize) -> Vec<(usize, u64, Revision)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child_that_writes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIRECTORY, directory)
        .envs(room.map(|room| (CHILD_ROOM, room.to_string())))
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut acknowledged = Vec::new();
    let mut killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        acknowledged.extend(parse(&line.unwrap()));
        if !killed && acknowledged.len() >= kill_after {
            child.kill().unwrap();
            killed = true;
        }
    }
    assert!(killed, "the child ended by itself");
    child.wait().unwrap();
    acknowledged
}

fn parse(line: &str) -> Option<(usize, u64, Revision)> {
    // The test harness prints text before the first line.
    let (_, rest) = line.split_once("acknowledged ")?;
    // The kill may have cut the last line. Complete lines end in a full stop.
    let mut words = rest.strip_suffix('.')?.split(' ');
    let writer = words.next()?.parse().ok()?;
    let round = words.next()?.parse().ok()?;
    let revision: Revision = words.next()?.parse().ok()?;
    Some((writer, round, revision))
}

/// Repeatedly fills a small disk and frees space again, so that the reserve is released and allocated. Prints `0` for
/// each round that is written, and `1` for each round that is about to be deleted.
async fn fill_for_ever(directory: &Path, room: u64) {
    let disk = FragileDisk::below(directory);
    disk.set(DiskFault::Room(room));
    let config = SqliteConfig { disk: Arc::new(disk), ..SqliteConfig::directory(directory) };
    let store = Arc::new(SqliteStore::open(config).unwrap());
    let compactor = store.clone();
    tokio::spawn(async move {
        loop {
            let oldest = compactor.crowded().await;
            if compactor.compact(oldest).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    });
    let start = store.current_revision().await.unwrap().get();
    let (mut oldest, mut round) = (start, start);
    loop {
        match store.commit(Transaction::default().put(key(0, round, "b"), vec![7; 300_000])).await {
            Ok(committed) => {
                println!("acknowledged 0 {round} {}.", committed.revisions[0]);
                round += 1;
            }
            Err(_) if oldest < round => {
                // The line is printed before the deletion, which may or may not have happened after a kill.
                println!("acknowledged 1 {oldest} 1.");
                let _ = store.commit(Transaction::default().delete(key(0, oldest, "b"))).await;
                oldest += 1;
            }
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_acknowledged_writes_survive_kill_9_on_a_full_disk() {
    let room: u64 = 24 * 1024 * 1024;
    for kill_after in [60, 75, 90, 120, 150, 200] {
        let directory = TempDir::new().unwrap();
        let told = run_child_and_kill_it(directory.path(), Some(room), kill_after);
        let deleted: std::collections::HashSet<u64> =
            told.iter().filter(|(what, ..)| *what == 1).map(|(_, round, _)| *round).collect();
        assert!(kill_after < 120 || !deleted.is_empty(), "the disk was full");
        let disk = FragileDisk::below(directory.path());
        disk.set(DiskFault::Room(room));
        let config = SqliteConfig { disk: Arc::new(disk), ..SqliteConfig::directory(directory.path()) };
        let store = SqliteStore::open(config).unwrap();
        for (_, round, revision) in told.iter().filter(|(what, round, _)| *what == 0 && !deleted.contains(round)) {
            let found = store.get(&key(0, *round, "b")).await.unwrap();
            assert_eq!(found.map(|found| found.revision), Some(*revision), "round {round} was acknowledged");
        }
    }
}

async fn assert_no_half_transactions(store: &SqliteStore) {
    let everything = keelson_storage::RangeRequest {
        from: StoreKey::new("/w"),
        to: StoreKey::prefix_end("/w"),
        revision: None,
        limit: None,
    };
    let entries = store.range(everything).await.unwrap().entries;
    assert_eq!(entries.len() % 2, 0);
    for pair in entries.chunks(2) {
        let first = pair[0].key.as_str().strip_suffix('a').expect("the first half");
        assert_eq!(pair[1].key.as_str().strip_suffix('b'), Some(first));
    }
}
