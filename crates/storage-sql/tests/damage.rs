//! Damaged pages and logs: every damage is told by name, and nothing is left out without a word.
//!
//! Bytes of the files are changed while no server runs.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, ScanRequest, Store, StoreEvent, StoreKey, Transaction};
use keelson_storage_sql::{OpenError, SqliteConfig, SqliteStore, backup, check};
use rusqlite::Connection;
use tempfile::TempDir;

const OBJECTS: u64 = 600;
const PAGE: usize = 4096;

/// All that a client could be shown.
#[derive(Debug, PartialEq)]
struct Shown {
    entries: Vec<KeyValue>,
    events: Vec<StoreEvent>,
}

async fn shown(store: &SqliteStore, after: Revision, until: Revision) -> Result<Shown, String> {
    let range = RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision: None, limit: None };
    let ranges = vec![(range.from.clone(), range.to.clone())];
    let page = store.range(range).await.map_err(|error| error.to_string())?;
    // What a cache is loaded from must show the same.
    let scan = store.scan(ScanRequest { ranges, revision: until }).expect("the store has a way of its own");
    let mut scanned = scan.try_concat().await.map_err(|error| error.to_string())?;
    scanned.sort_by(|one, other| one.key.cmp(&other.key));
    assert!(scanned == page.entries, "a scan shows something else");
    let mut tail = store.tail(after).await.map_err(|error| error.to_string())?;
    let (mut events, mut reached) = (Vec::new(), after);
    while reached < until {
        let batch = tokio::time::timeout(Duration::from_secs(10), tail.next()).await;
        // A tail that waits for what it should have is as silent as one that leaves it out.
        let batch = batch.expect("the tail goes on").unwrap().map_err(|error| error.to_string())?;
        reached = batch.watermark;
        events.extend(batch.events);
    }
    Ok(Shown { entries: page.entries, events })
}

/// A store with old and new versions, and which revision its history begins after and ends with.
async fn store(directory: &Path) -> (Revision, Revision, Shown) {
    let store = SqliteStore::open(SqliteConfig::directory(directory)).unwrap();
    let mut newest = Revision::ZERO;
    for number in 0..OBJECTS {
        let key = StoreKey::new(format!("/objects/{:04}", number * 7 % OBJECTS));
        let value = format!("{number}").repeat(100);
        newest = store.commit(Transaction::default().put(key, value)).await.unwrap().revisions[0];
        if number == OBJECTS / 2 {
            store.commit(Transaction::default().delete(StoreKey::new("/objects/0007"))).await.unwrap();
            store.compact(newest).await.unwrap();
        }
    }
    let oldest = store.oldest_revision().await.unwrap();
    let shown = shown(&store, oldest, newest).await.unwrap();
    (oldest, newest, shown)
}

/// Damages a copy of the database, and says what becomes of it: refused, or exactly what it was.
async fn check_damage(whole: &[u8], truth: &(Revision, Revision, Shown), damage: impl FnOnce(&mut [u8])) -> bool {
    let directory = TempDir::new().unwrap();
    let mut damaged = whole.to_vec();
    damage(&mut damaged);
    fs::write(directory.path().join("keelson.db"), &damaged).unwrap();
    let (oldest, newest, expected) = truth;
    let Ok(store) = SqliteStore::open(SqliteConfig::directory(directory.path())) else { return true };
    let Ok(given) = shown(&store, *oldest, *newest).await else {
        drop(store);
        let found = check(directory.path());
        assert!(found.as_ref().map_or(true, |found| !found.findings.is_empty()), "{found:?}");
        return true;
    };
    let Shown { entries, events } = expected;
    let lost = entries.iter().filter(|entry| !given.entries.contains(entry)).count();
    assert!(lost == 0 && given.entries.len() == entries.len(), "{lost} of {} are not shown", entries.len());
    assert!(given.events == *events, "changes were left out without a word");
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_damage_is_passed_over_in_silence() {
    let directory = TempDir::new().unwrap();
    let truth = store(directory.path()).await;
    let whole = fs::read(directory.path().join("keelson.db")).unwrap();
    let mut refused = 0;
    for page in 0..whole.len() / PAGE {
        let at = page * PAGE;
        // A page that was never written, one of another place, half of one, and single bits.
        refused += usize::from(check_damage(&whole, &truth, |bytes| bytes[at..at + PAGE].fill(0)).await);
        let other = (page + 1) * PAGE % whole.len();
        let from = whole[other..other + PAGE].to_vec();
        refused += usize::from(check_damage(&whole, &truth, |bytes| bytes[at..at + PAGE].copy_from_slice(&from)).await);
        refused += usize::from(check_damage(&whole, &truth, |bytes| bytes[at + PAGE / 2..at + PAGE].fill(7)).await);
        for bit in 0..3 {
            let place = at + (page * 811 + bit * 1361) % PAGE;
            refused += usize::from(check_damage(&whole, &truth, |bytes| bytes[place] ^= 1 << bit).await);
        }
    }
    assert!(refused > whole.len() / PAGE, "{refused} of {} pages were damaged to no effect", whole.len() / PAGE);
}

/// What SQLite itself takes for whole: a page of the newest rows as it was a while ago.
#[tokio::test]
async fn rows_that_are_gone_from_a_sound_page_are_missed_and_named() {
    let directory = TempDir::new().unwrap();
    let (oldest, newest, _) = store(directory.path()).await;
    let file = directory.path().join("keelson.db");
    let middle = (oldest.get() + newest.get()) / 2;
    Connection::open(&file)
        .unwrap()
        .execute("DELETE FROM history WHERE revision = ?1", [middle.cast_signed()])
        .unwrap();
    let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().unwrap();
    assert!(matches!(refused, OpenError::Damaged { .. }) && refused.to_string().contains("storage check"), "{refused}");
    let findings = check(directory.path()).unwrap().findings;
    let named = format!("the row of revision {middle} is gone");
    assert!(findings.iter().any(|finding| finding.contains(&named)), "{findings:?}");
    assert!(backup(directory.path(), &directory.path().join("copy")).is_err(), "a backup of it would be of no use");
}

#[tokio::test]
async fn a_row_that_says_something_else_is_refused_by_name() {
    let directory = TempDir::new().unwrap();
    store(directory.path()).await;
    let key = StoreKey::new("/objects/0003");
    let file = directory.path().join("keelson.db");
    let changed = "UPDATE history SET value = CAST('other' AS BLOB) WHERE path = '/objects/0003'";
    Connection::open(&file).unwrap().execute(changed, []).unwrap();
    let store = SqliteStore::open(SqliteConfig::directory(directory.path())).unwrap();
    let refused = store.get(&key).await.unwrap_err().to_string();
    assert!(refused.contains("\"/objects/0003\", is damaged") && refused.contains("storage restore"), "{refused}");
    assert!(store.get(&StoreKey::new("/objects/0004")).await.unwrap().is_some(), "the others are served");
    let beside = check(directory.path()).unwrap();
    assert!(beside.in_use && beside.findings.len() == 1 && beside.findings[0].contains("/objects/0003"), "{beside:?}");
}

#[tokio::test]
async fn a_whole_store_is_found_whole() {
    let directory = TempDir::new().unwrap();
    let (_, newest, _) = store(directory.path()).await;
    let checked = check(directory.path()).unwrap();
    assert!(checked.findings.is_empty() && checked.revision == newest && checked.rows > OBJECTS / 2, "{checked:?}");
    assert!(check(&directory.path().join("nothing")).is_err());
    assert!(!directory.path().join("nothing").exists());
}

/// The files of a store as they are when its process is killed: its log holds everything.
async fn killed() -> (TempDir, PathBuf) {
    let (running, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = SqliteStore::open(SqliteConfig::directory(running.path())).unwrap();
    for number in 0..20 {
        let put = Transaction::default().put(StoreKey::new(format!("/objects/{number}")), "v".repeat(500));
        store.commit(put).await.unwrap();
    }
    for name in ["keelson.db", "keelson.db-wal"] {
        fs::copy(running.path().join(name), directory.path().join(name)).unwrap();
    }
    let log = directory.path().join("keelson.db-wal");
    (directory, log)
}

#[tokio::test]
async fn a_log_that_is_damaged_in_the_middle_is_refused_unless_the_loss_is_accepted() {
    let (directory, log) = killed().await;
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().unwrap();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::Torn { .. }) && text.contains("--accept-loss"), "{text}");
    let findings = check(directory.path()).unwrap().findings;
    assert!(findings.iter().any(|finding| finding.contains("write-ahead log is damaged")), "{findings:?}");
    let accepted = SqliteConfig { accept_loss: true, ..SqliteConfig::directory(directory.path()) };
    let left = SqliteStore::open(accepted).unwrap().current_revision().await.unwrap().get();
    assert!((2..21).contains(&left), "{left}");
    // What was accepted once is not asked about again.
    SqliteStore::open(SqliteConfig::directory(directory.path())).unwrap();
}

#[tokio::test]
async fn a_log_whose_database_is_gone_is_not_started_over() {
    let (directory, log) = killed().await;
    fs::remove_file(directory.path().join("keelson.db")).unwrap();
    let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().unwrap();
    assert!(refused.to_string().contains("its database is gone"), "{refused}");
    assert!(fs::metadata(log).unwrap().len() > 0, "it is left alone");
}
