//! Damaged pages and logs: every damage is an error with the damaged place, and no data is missing silently.
//!
//! The tests change bytes of the files while no server runs.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, ScanRequest, Store, StoreEvent, StoreKey, Transaction};
use keelson_storage_sql::{
    ACCEPTED_LOSS_MARGIN, OpenError, SqliteConfig, SqliteStore, backup, check, restore, unobserved,
};
use rusqlite::Connection;
use tempfile::TempDir;

const OBJECTS: u64 = 600;
const PAGE: usize = 4096;

/// Everything that a client can read.
#[derive(Debug, PartialEq)]
struct VisibleContent {
    entries: Vec<KeyValue>,
    events: Vec<StoreEvent>,
}

async fn visible_content(store: &SqliteStore, after: Revision, until: Revision) -> Result<VisibleContent, String> {
    let range = RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision: None, limit: None };
    let ranges = vec![(range.from.clone(), range.to.clone())];
    let page = store.range(range).await.map_err(|error| error.to_string())?;
    // The scan, which loads the cache, must return the same entries.
    let scan = store.scan(ScanRequest { ranges, revision: until }).expect("the store has a way of its own");
    let mut scanned = scan.try_concat().await.map_err(|error| error.to_string())?;
    scanned.sort_by(|one, other| one.key.cmp(&other.key));
    assert!(scanned == page.entries, "a scan shows something else");
    let mut tail = store.tail(after).await.map_err(|error| error.to_string())?;
    let (mut events, mut reached) = (Vec::new(), after);
    while reached < until {
        let batch = tokio::time::timeout(Duration::from_secs(10), tail.next()).await;
        // A tail that waits for missing changes is also a silent loss.
        let batch = batch.expect("the tail goes on").unwrap().map_err(|error| error.to_string())?;
        reached = batch.watermark;
        events.extend(batch.events);
    }
    Ok(VisibleContent { entries: page.entries, events })
}

/// Creates a store with old and new versions. Returns the oldest and the newest revision of its history, and its
/// content.
async fn store(directory: &Path) -> (Revision, Revision, VisibleContent) {
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
    let shown = visible_content(&store, oldest, newest).await.unwrap();
    (oldest, newest, shown)
}

/// Damages a copy of the database. Checks that reads fail or return exactly the original content. Returns true if they
/// fail.
async fn check_damage(
    whole: &[u8],
    truth: &(Revision, Revision, VisibleContent),
    damage: impl FnOnce(&mut [u8]),
) -> bool {
    let directory = TempDir::new().unwrap();
    let mut damaged = whole.to_vec();
    damage(&mut damaged);
    fs::write(directory.path().join("keelson.db"), &damaged).unwrap();
    let (oldest, newest, expected) = truth;
    let Ok(store) = SqliteStore::open(SqliteConfig::directory(directory.path())) else { return true };
    let Ok(given) = visible_content(&store, *oldest, *newest).await else {
        drop(store);
        let found = check(directory.path(), &mut unobserved);
        assert!(found.as_ref().map_or(true, |found| !found.findings.is_empty()), "{found:?}");
        return true;
    };
    let VisibleContent { entries, events } = expected;
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
        // A page of zeros, a page from another place, half a page, and single bits.
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

/// Damage that SQLite does not detect: an older state of the page with the newest rows.
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
    let findings = check(directory.path(), &mut unobserved).unwrap().findings;
    let named = format!("the row of revision {middle} is missing");
    assert!(findings.iter().any(|finding| finding.contains(&named)), "{findings:?}");
    assert!(
        backup(directory.path(), &directory.path().join("copy"), &mut unobserved).is_err(),
        "a backup of it would be of no use"
    );
}

#[tokio::test]
async fn changed_rows_are_refused_by_name() {
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
    let beside = check(directory.path(), &mut unobserved).unwrap();
    assert!(beside.in_use && beside.findings.len() == 1 && beside.findings[0].contains("/objects/0003"), "{beside:?}");
}

#[tokio::test]
async fn a_whole_store_is_found_whole() {
    let directory = TempDir::new().unwrap();
    let (_, newest, _) = store(directory.path()).await;
    let checked = check(directory.path(), &mut unobserved).unwrap();
    assert!(checked.findings.is_empty() && checked.revision == newest && checked.rows > OBJECTS / 2, "{checked:?}");
    assert!(check(&directory.path().join("nothing"), &mut unobserved).is_err());
    assert!(!directory.path().join("nothing").exists());
}

/// The files of a store after its process was killed: its log has everything.
async fn killed() -> (TempDir, PathBuf) {
    let (running, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = SqliteStore::open(SqliteConfig::directory(running.path())).unwrap();
    for number in 0..20 {
        let put = Transaction::default().put(StoreKey::new(format!("/objects/{number}")), "v".repeat(500));
        store.commit(put).await.unwrap();
    }
    for name in ["keelson.db", "keelson.db-wal", "keelson.db-mark"] {
        fs::copy(running.path().join(name), directory.path().join(name)).unwrap();
    }
    let log = directory.path().join("keelson.db-wal");
    (directory, log)
}

#[tokio::test]
async fn a_damaged_log_needs_accept_loss() {
    let (directory, log) = killed().await;
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().unwrap();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::Torn { .. }) && text.contains("--accept-loss"), "{text}");
    let findings = check(directory.path(), &mut unobserved).unwrap().findings;
    assert!(findings.iter().any(|finding| finding.contains("write-ahead log is damaged")), "{findings:?}");
    let store = SqliteStore::open(accepting(directory.path())).unwrap();
    let left = count(&store).await;
    assert!((1..20).contains(&left), "{left}");
    assert!(store.current_revision().await.unwrap() > Revision::new(ACCEPTED_LOSS_MARGIN));
    drop(store);
    // After a loss was accepted, the next start does not report it again.
    SqliteStore::open(SqliteConfig::directory(directory.path())).unwrap();
}

#[tokio::test]
async fn a_log_without_its_database_is_refused_and_kept() {
    let (directory, log) = killed().await;
    fs::remove_file(directory.path().join("keelson.db")).unwrap();
    let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().unwrap();
    assert!(refused.to_string().contains("its database is missing"), "{refused}");
    assert!(fs::metadata(log).unwrap().len() > 0, "it is left alone");
}

fn accepting(directory: &Path) -> SqliteConfig {
    SqliteConfig { accept_loss: true, ..SqliteConfig::directory(directory) }
}

async fn count(store: &SqliteStore) -> u64 {
    let all = RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision: None, limit: None };
    store.count(all).await.unwrap()
}

/// The number of objects in the store of `killed`, and the revision of the last one.
const KILLED: u64 = 20;
const ACKNOWLEDGED: u64 = 21;

type Loss<'a> = (&'a str, &'a dyn Fn(&Path));

/// After a kill, acknowledged writes exist or the store refuses to open. After an accepted loss, it continues at a
/// higher revision.
#[tokio::test]
async fn losses_of_a_killed_store_need_accept_loss() {
    // SIZE: one table of losses.
    let (foreign, _) = killed().await;
    let (foreign, file) = (foreign.path(), |directory: &Path, name: &str| directory.join(name));
    let cut = |directory: &Path, part: usize| {
        let log = file(directory, "keelson.db-wal");
        let bytes = fs::read(&log).unwrap();
        fs::write(log, &bytes[..bytes.len() * part / 3]).unwrap();
    };
    let flip_last = |directory: &Path| {
        let log = file(directory, "keelson.db-wal");
        let mut bytes = fs::read(&log).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(log, bytes).unwrap();
    };
    let take = |directory: &Path, name: &str| {
        fs::copy(file(foreign, name), file(directory, name)).unwrap();
    };
    let losses: [Loss<'_>; 11] = [
        ("keelson.db-wal is missing or empty", &|directory| {
            fs::remove_file(file(directory, "keelson.db-wal")).unwrap();
        }),
        ("keelson.db-wal is missing or empty", &|directory| cut(directory, 0)),
        ("keelson.db-wal is missing or empty", &|directory| {
            for name in ["keelson.db-wal", "keelson.db-mark"] {
                fs::remove_file(file(directory, name)).unwrap();
            }
        }),
        ("were acknowledged", &|directory| cut(directory, 2)),
        ("were acknowledged", &flip_last),
        ("newest acknowledged revision, is missing", &|directory| {
            fs::remove_file(file(directory, "keelson.db-mark")).unwrap();
        }),
        ("newest acknowledged revision, is damaged", &|directory| {
            fs::write(file(directory, "keelson.db-mark"), "keelson-mark 1").unwrap();
        }),
        ("keelson.db is missing or empty beside keelson.db-mark, which records revision 21", &|directory| {
            fs::write(file(directory, "keelson.db"), "").unwrap();
            fs::remove_file(file(directory, "keelson.db-wal")).unwrap();
        }),
        ("belongs to another store", &|directory| take(directory, "keelson.db-wal")),
        ("are of different stores", &|directory| {
            for name in ["keelson.db", "keelson.db-wal"] {
                take(directory, name);
            }
            let mark = fs::read_to_string(file(directory, "keelson.db-mark")).unwrap();
            // The mark has no log, so that the foreign log is accepted as this store's.
            fs::write(file(directory, "keelson.db-mark"), without_log(&mark)).unwrap();
        }),
        ("keelson.db-journal does not belong to this store", &|directory| {
            fs::write(file(directory, "keelson.db-journal"), [7; 600]).unwrap();
        }),
    ];
    for (expected, lose) in losses {
        let (directory, _) = killed().await;
        lose(directory.path());
        let before = contents(directory.path());
        let copies = TempDir::new().unwrap();
        let found = check(directory.path(), &mut unobserved);
        assert!(found.map_or(true, |found| !found.findings.is_empty()), "{expected}");
        assert!(backup(directory.path(), &copies.path().join("backup"), &mut unobserved).is_err(), "{expected}");
        let refused = SqliteStore::open(SqliteConfig::directory(directory.path())).err().expect(expected).to_string();
        assert!(refused.contains(expected) && refused.contains("--accept-loss"), "{expected}: {refused}");
        assert_eq!(contents(directory.path()), before, "{expected}: a store that is refused stays as it was");
        let store = SqliteStore::open(accepting(directory.path())).unwrap();
        let revision = store.current_revision().await.unwrap().get();
        assert!(revision > ACCEPTED_LOSS_MARGIN, "{expected}: {revision}");
        let written = store.commit(Transaction::default().put(StoreKey::new("/after"), "1")).await.unwrap();
        assert!(written.revisions[0].get() > revision);
        drop(store);
        let store = SqliteStore::open(SqliteConfig::directory(directory.path())).expect("it is asked about once");
        assert!(store.get(&StoreKey::new("/after")).await.unwrap().is_some());
    }
    // With a mark of another store, a valid log is not set aside.
    let (marked, _) = killed().await;
    take(marked.path(), "keelson.db-mark");
    let refused = SqliteStore::open(SqliteConfig::directory(marked.path())).err().unwrap().to_string();
    assert!(refused.contains("are of different stores"), "{refused}");
    assert_eq!(count(&SqliteStore::open(accepting(marked.path())).unwrap()).await, KILLED);
    let (whole, _) = killed().await;
    assert!(check(whole.path(), &mut unobserved).unwrap().findings.is_empty());
    let store = SqliteStore::open(SqliteConfig::directory(whole.path())).unwrap();
    assert_eq!((count(&store).await, store.current_revision().await.unwrap().get()), (KILLED, ACKNOWLEDGED));
}

/// A mark without a log, as after a clean stop.
fn without_log(mark: &str) -> String {
    let text = format!("{}{}", &mark[..mark.len() - 26], "0".repeat(16));
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The database and the files beside it, except those that SQLite creates again.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("keelson.db-shm") && !path.ends_with("keelson.lock"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .filter(|(_, content)| !content.is_empty())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_closed_store_needs_only_its_newest_database() {
    let (directory, elsewhere, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let (database, older) = (directory.path().join("keelson.db"), copies.path().join("older"));
    let open = |directory: &Path| SqliteStore::open(SqliteConfig::directory(directory));
    let put = |store: SqliteStore, key: &'static str| async move {
        store.commit(Transaction::default().put(StoreKey::new(key), "1")).await.unwrap().revisions[0].get()
    };
    put(open(directory.path()).unwrap(), "/first").await;
    fs::copy(&database, &older).unwrap();
    let copy = copies.path().join("backup");
    backup(directory.path(), &copy, &mut unobserved).unwrap();
    let newest = put(open(directory.path()).unwrap(), "/second").await;
    fs::copy(&database, elsewhere.path().join("keelson.db")).unwrap();
    assert_eq!(open(elsewhere.path()).unwrap().current_revision().await.unwrap().get(), newest);
    for earlier in [&older, &copy] {
        fs::copy(earlier, &database).unwrap();
        let refused = open(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("keelson.db is older than keelson.db-mark: "), "{refused}");
    }
    // A restore reads from the mark which revisions the lost store has used.
    for name in ["keelson.db", "keelson.db-wal", "keelson.db-shm"] {
        let _ = fs::remove_file(directory.path().join(name));
    }
    assert_eq!(restore(&copy, directory.path(), 10, &mut unobserved).unwrap().revision.get(), newest + 10);
    assert_eq!(open(directory.path()).unwrap().current_revision().await.unwrap().get(), newest + 10);
}

/// An old log, or the log of another store, would overwrite a database that was closed in order.
#[tokio::test]
async fn a_log_that_would_set_a_store_back_is_refused() {
    let (foreign, foreign_log) = killed().await;
    let open = |directory: &Path| SqliteStore::open(SqliteConfig::directory(directory));
    for with_mark in [true, false] {
        let directory = TempDir::new().unwrap();
        let file = |name: &str| directory.path().join(name);
        let store = open(directory.path()).unwrap();
        let put = |key: &str| store.commit(Transaction::default().put(StoreKey::new(key.to_owned()), "1"));
        put("/first").await.unwrap();
        let older = fs::read(file("keelson.db-wal")).unwrap();
        put("/second").await.unwrap();
        drop(store);
        for log in [older, fs::read(&foreign_log).unwrap()] {
            fs::write(file("keelson.db-wal"), log).unwrap();
            if !with_mark {
                let _ = fs::remove_file(file("keelson.db-mark"));
            }
            let before = contents(directory.path());
            let refused = open(directory.path()).err().unwrap().to_string();
            assert!(refused.contains("of different stores, or of different times"), "{with_mark} {refused}");
            assert_eq!(contents(directory.path()), before);
        }
        let store = SqliteStore::open(accepting(directory.path())).unwrap();
        assert_eq!(count(&store).await, 2, "the database has all of it");
    }
    drop(foreign);
}

#[tokio::test]
async fn reading_commands_create_no_store_and_report_its_absence() {
    let directory = TempDir::new().unwrap();
    let (nothing, file) = (directory.path().join("nothing"), directory.path().join("file"));
    let existing = SqliteConfig { existing: true, ..SqliteConfig::directory(&nothing) };
    let said = |error: OpenError| error.to_string();
    for text in [
        said(SqliteStore::open(existing).err().unwrap()),
        said(check(&nothing, &mut unobserved).unwrap_err()),
        said(backup(&nothing, &file, &mut unobserved).unwrap_err()),
    ] {
        assert!(text.contains("there is no embedded store in") && text.contains("keelson.db is missing"), "{text}");
    }
    assert!(restore(&file, &nothing, 1, &mut unobserved).is_err());
    fs::write(&file, "no store").unwrap();
    assert!(restore(&file, &nothing, 1, &mut unobserved).is_err());
    assert!(!nothing.exists() && fs::read_dir(directory.path()).unwrap().count() == 1);
    fs::create_dir(&nothing).unwrap();
    fs::write(nothing.join("keelson.db"), "").unwrap();
    assert!(said(check(&nothing, &mut unobserved).unwrap_err()).contains("keelson.db is empty"));
}

/// Another program deletes rows while a server has the store open.
#[tokio::test]
async fn rows_that_are_gone_from_a_running_store_are_found_by_counting() {
    for statement in ["DELETE FROM history WHERE revision % 2 = 0", "DELETE FROM history WHERE revision = 100"] {
        let directory = TempDir::new().unwrap();
        let open = SqliteStore::open(SqliteConfig::directory(directory.path())).unwrap();
        for number in 0..200 {
            let put = Transaction::default().put(StoreKey::new(format!("/objects/{number:04}")), "v");
            open.commit(put).await.unwrap();
        }
        open.verify().await.unwrap();
        let other = Connection::open(directory.path().join("keelson.db")).unwrap();
        assert!(other.execute(statement, []).unwrap() > 0);
        let error = open.verify().await.unwrap_err();
        assert!(matches!(error, keelson_storage::StoreError::Corrupt(_)), "{error}");
    }
}
