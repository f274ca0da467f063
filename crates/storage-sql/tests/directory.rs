//! The data directory: a second server, another version, backup and restore.
//!
//! Operators see these errors, so the tests compare their texts.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{RangeRequest, Store, StoreError, StoreKey, Transaction};
use keelson_storage_sql::{OpenError, SqliteConfig, SqliteStore, WorkStage, backup, restore, unobserved};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(directory: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(SqliteConfig::directory(directory))
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().put(StoreKey::new(key), value.to_owned())
}

async fn write(store: &SqliteStore, key: &str, value: &str) -> Revision {
    store.commit(put(key, value)).await.unwrap().revisions[0]
}

fn everything(revision: Option<Revision>) -> RangeRequest {
    RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision, limit: None }
}

#[tokio::test]
async fn a_second_server_is_refused_until_the_first_has_ended() {
    let directory = TempDir::new().unwrap();
    let first = open(directory.path()).unwrap();
    let refused = open(directory.path()).err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("is in use by another keelson server (process "), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    assert!(matches!(StoreError::from(refused), StoreError::Unavailable(_)));
    write(&first, "/a", "1").await;
    drop(first);
    let second = open(directory.path()).unwrap();
    assert!(second.get(&StoreKey::new("/a")).await.unwrap().is_some());
}

/// If the lock file was removed or replaced, a second process still can't open the directory.
#[tokio::test]
async fn a_second_server_is_refused_also_when_the_lock_file_is_gone() {
    let directory = TempDir::new().unwrap();
    let first = open(directory.path()).unwrap();
    let lock = directory.path().join("keelson.lock");
    fs::remove_file(&lock).unwrap();
    assert!(matches!(open(directory.path()), Err(OpenError::InUse { .. })));
    fs::write(&lock, "").unwrap();
    assert!(matches!(open(directory.path()), Err(OpenError::InUse { .. })));
    write(&first, "/a", "1").await;
    drop(first);
    open(directory.path()).unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path()).unwrap());
    let file = directory.path().join("keelson.db");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 3).unwrap();
    let text = open(directory.path()).err().unwrap().to_string();
    assert!(text.contains("has storage format 3, and this keelson knows formats up to 2"), "{text}");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 2).unwrap();
    open(directory.path()).unwrap();
}

#[test]
fn another_programs_file_is_refused() {
    for make in [
        |file: &Path| fs::write(file, "x".repeat(5000)).unwrap(),
        |file: &Path| Connection::open(file).unwrap().execute_batch("CREATE TABLE t (a)").unwrap(),
    ] {
        let directory = TempDir::new().unwrap();
        make(&directory.path().join("keelson.db"));
        let text = open(directory.path()).err().unwrap().to_string();
        assert!(text.ends_with("keelson.db is not a keelson store"), "{text}");
    }
}

#[tokio::test]
async fn a_closed_store_ends_its_tails() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    let mut tail = store.tail(store.current_revision().await.unwrap()).await.unwrap();
    write(&store, "/a", "1").await;
    drop(store);
    assert_eq!(tail.next().await.unwrap().unwrap().events.len(), 1);
    assert!(matches!(tail.next().await, Some(Err(StoreError::Unavailable(_)))));
    assert!(tail.next().await.is_none());
}

/// The log starts over while writers continue, so its size does not grow with the written amount.
#[tokio::test]
async fn the_log_is_moved_while_writers_continue() {
    let directory = TempDir::new().unwrap();
    let config = SqliteConfig { log_bytes: 200_000, ..SqliteConfig::directory(directory.path()) };
    let store = SqliteStore::open(config).unwrap();
    for number in 0..400 {
        let value = vec![number as u8; 50_000];
        store.commit(Transaction::default().put(StoreKey::new(format!("/{number}")), value)).await.unwrap();
    }
    let length = |name| fs::metadata(directory.path().join(name)).unwrap().len();
    assert!(length("keelson.db-wal") < 10_000_000, "the log has {} bytes", length("keelson.db-wal"));
    assert!(length("keelson.db") > 10_000_000);
}

/// Invariant 17: a restored store starts above all revisions that the lost one has used.
#[tokio::test]
async fn inv17_a_restored_store_starts_above_the_lost_one() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = open(directory.path()).unwrap();
    let first = write(&store, "/a", "kept").await;
    write(&store, "/b", "kept").await;
    let file = elsewhere.path().join("copy.db");
    backup(directory.path(), &file, &mut unobserved).unwrap();
    let lost = write(&store, "/a", "lost").await;

    let restored = elsewhere.path().join("data");
    let start = restore(&file, &restored, 1000, &mut unobserved).unwrap().revision;
    assert!(start > lost);
    let store = open(&restored).unwrap();
    assert_eq!(store.current_revision().await.unwrap(), start);
    assert_eq!(store.oldest_revision().await.unwrap(), start);
    let page = store.range(everything(Some(start))).await.unwrap();
    let found: Vec<_> = page.entries.iter().map(|entry| (entry.key.as_str(), &entry.value[..])).collect();
    assert_eq!(found, [("/a", &b"kept"[..]), ("/b", b"kept")]);
    assert_eq!(page.entries[0].revision, first);
    assert!(matches!(store.range(everything(Some(lost))).await, Err(StoreError::Compacted { .. })));
    assert!(matches!(store.tail(lost).await, Err(StoreError::Compacted { .. })));
    assert!(write(&store, "/c", "new").await > start);
}

/// A directory that lost its store keeps the keys by which clients recognize the server.
#[tokio::test]
async fn a_restore_keeps_other_files_of_the_directory() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    drop(open(directory.path()).unwrap());
    let file = elsewhere.path().join("copy.db");
    backup(directory.path(), &file, &mut unobserved).unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::create_dir(directory.path().join("pki")).unwrap();
    restore(&file, directory.path(), 1, &mut unobserved).unwrap();
    assert!(directory.path().join("pki").exists());
    let opened = open(directory.path()).unwrap();
    let in_use = restore(&file, directory.path(), 1, &mut unobserved);
    assert!(matches!(in_use, Err(OpenError::InUse { .. })), "{in_use:?}");
    drop(opened);
}

#[tokio::test]
async fn restore_refuses_directories_in_use_and_files_that_are_no_backup() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    drop(open(directory.path()).unwrap());
    let file = elsewhere.path().join("copy.db");
    backup(directory.path(), &file, &mut unobserved).unwrap();
    assert!(matches!(restore(&file, directory.path(), 1, &mut unobserved), Err(OpenError::HoldsStore { .. })));
    fs::write(&file, "y".repeat(9000)).unwrap();
    fs::remove_file(elsewhere.path().join("copy.db.sha256")).unwrap();
    let target = elsewhere.path().join("data");
    assert!(matches!(restore(&file, &target, 1, &mut unobserved), Err(OpenError::NotAStore { .. })));
    assert!(!target.exists());
    assert!(backup(&target, &elsewhere.path().join("other.db"), &mut unobserved).is_err());
}

#[tokio::test]
async fn a_backup_never_replaces_a_file() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    drop(open(directory.path()).unwrap());
    let file = elsewhere.path().join("copy.db");
    fs::write(&file, "precious").unwrap();
    let text = backup(directory.path(), &file, &mut unobserved).unwrap_err().to_string();
    assert!(text.ends_with("copy.db exists already: a backup is written to a new file"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

/// A backup reports its content, which a restore verifies by the checksum beside the file.
#[tokio::test]
async fn a_restore_verifies_the_checksum_of_the_backup() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = open(directory.path()).unwrap();
    write(&store, "/a", "1").await;
    write(&store, "/a", "2").await;
    let newest = write(&store, "/b", "1").await;
    let (file, beside) = (elsewhere.path().join("copy.db"), elsewhere.path().join("copy.db.sha256"));
    let mut stages = Vec::new();
    let written = backup(directory.path(), &file, &mut |at| {
        if at.done == at.total {
            stages.push(at.stage);
        }
        ControlFlow::Continue(())
    });
    let written = written.unwrap();
    assert_eq!(stages, [WorkStage::Copying, WorkStage::Verifying, WorkStage::Summing]);
    assert_eq!((written.objects, written.revision), (2, newest));
    assert_eq!(written.bytes, fs::metadata(&file).unwrap().len());
    assert_eq!(fs::read_to_string(&beside).unwrap(), format!("{}  copy.db\n", written.sha256));

    let target = elsewhere.path().join("data");
    let restored = restore(&file, &target, 10, &mut unobserved).unwrap();
    assert!(restored.compared);
    assert_eq!(restored.backup, written);
    fs::write(&beside, "0".repeat(64)).unwrap();
    let other = elsewhere.path().join("other");
    let refused = restore(&file, &other, 10, &mut unobserved);
    assert!(matches!(refused, Err(OpenError::OtherChecksum { .. })), "{refused:?}");
    assert!(!other.exists());
    // A backup of an older release has no such file.
    fs::remove_file(&beside).unwrap();
    assert!(!restore(&file, &other, 10, &mut unobserved).unwrap().compared);
}

/// A backup or restore that is ended at any report leaves no file.
#[tokio::test]
async fn interrupted_work_leaves_nothing() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = open(directory.path()).unwrap();
    write(&store, "/a", "1").await;
    let (file, target) = (elsewhere.path().join("copy.db"), elsewhere.path().join("data"));
    let ended_at = |end: usize| {
        let mut reports = 0;
        move |_| {
            reports += 1;
            if reports > end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    for end in 0..3 {
        let ended = backup(directory.path(), &file, &mut ended_at(end));
        assert!(matches!(ended, Err(OpenError::Interrupted)), "{end}: {ended:?}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
    backup(directory.path(), &file, &mut unobserved).unwrap();
    for end in 0..3 {
        let ended = restore(&file, &target, 1, &mut ended_at(end));
        assert!(matches!(ended, Err(OpenError::Interrupted)), "{end}: {ended:?}");
        assert!(!target.exists());
    }
    restore(&file, &target, 1, &mut unobserved).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn check_private(directory: &Path, at_least: usize) {
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= at_least, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// A store contains Secrets. Only its owner may read it, its log, and its copies.
#[tokio::test]
async fn stores_and_backups_are_for_their_owner_alone() {
    let elsewhere = TempDir::new().unwrap();
    let (data, copy, restored) =
        (elsewhere.path().join("above/data"), elsewhere.path().join("copy.db"), elsewhere.path().join("new/data"));
    let store = open(&data).unwrap();
    write(&store, "/a", "secret").await;
    check_private(&data, 4);
    assert_eq!((mode(&data), mode(data.parent().unwrap())), (0o700, 0o700));
    backup(&data, &copy, &mut unobserved).unwrap();
    check_private(&data, 4);
    assert_eq!((mode(&copy), mode(&elsewhere.path().join("copy.db.sha256"))), (0o600, 0o600));
    restore(&copy, &restored, 1, &mut unobserved).unwrap();
    check_private(&restored, 1);
    assert_eq!(mode(&restored), 0o700);
    let _open = open(&restored).unwrap();
    check_private(&restored, 4);
}

#[tokio::test]
async fn a_store_that_others_can_read_is_closed_to_them() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path()).unwrap());
    for name in ["keelson.db", "keelson.lock", "keelson.db-wal"] {
        let file = directory.path().join(name);
        OpenOptions::new().create(true).append(true).open(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open(directory.path()).unwrap();
    check_private(directory.path(), 4);
}

/// A backup contains every write that was acknowledged before it began, although writers continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_beside_writers_is_of_one_moment() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = std::sync::Arc::new(open(directory.path()).unwrap());
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..300 {
                let both = put("/a", &round.to_string()).put(StoreKey::new("/b"), round.to_string());
                store.commit(both).await.unwrap();
            }
        }
    });
    for number in 0..5 {
        let file = elsewhere.path().join(format!("copy-{number}.db"));
        let acknowledged = write(&store, "/marker", &number.to_string()).await;
        backup(directory.path(), &file, &mut unobserved).unwrap();
        let target = elsewhere.path().join(number.to_string());
        restore(&file, &target, 0, &mut unobserved).unwrap();
        let copy = open(&target).unwrap();
        assert!(copy.current_revision().await.unwrap() >= acknowledged);
        let entries = copy.range(everything(None)).await.unwrap().entries;
        let value = |key: &str| entries.iter().find(|entry| entry.key.as_str() == key).map(|entry| &entry.value);
        assert_eq!(value("/a"), value("/b"));
        assert_eq!(&value("/marker").unwrap()[..], number.to_string().as_bytes());
    }
    writer.await.unwrap();
}
