//! A store on a disk that loses unsynced data at a power loss, fails, or is full.
//!
//! The tests implement this disk below SQLite. It loses the same data as a real disk may lose.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, Disk, RangeRequest, Relief, Store, StoreError, StoreKey, Transaction};
use keelson_storage_sql::{OpenError, SpaceStats, SqliteConfig, SqliteStore};
use keelson_supervision::Supervisor;
use keelson_teststores::{DiskFault, FragileDisk};
use parking_lot::Mutex;
use tempfile::TempDir;

/// The file that records the newest acknowledged revision.
const MARK: &str = "keelson.db-mark";
/// The number of concurrent writers.
const WRITERS: usize = 4;
/// The number of power losses.
const LOSSES: u64 = 24;
/// A short log, which is moved into the database often, so that power losses also happen during that.
const LOG_BYTES: usize = 256 * 1024;

fn open(directory: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(SqliteConfig { log_bytes: LOG_BYTES, ..SqliteConfig::directory(directory) })
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().put(StoreKey::new(key), value.to_owned())
}

/// Pseudorandom numbers.
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 63 == 1
    }
}

type Acknowledged = Arc<Mutex<BTreeMap<String, Revision>>>;

/// Writes pairs of keys until `done` is set, each pair in one transaction.
async fn write(store: Arc<SqliteStore>, writer: usize, acknowledged: Acknowledged, done: Arc<AtomicBool>) {
    let value = "v".repeat(3000);
    for number in 0.. {
        if done.load(Ordering::SeqCst) {
            return;
        }
        let (first, second) = (format!("/a/{writer}-{number}"), format!("/b/{writer}-{number}"));
        let pair = put(&first, &value).put(StoreKey::new(second.as_str()), value.clone());
        let revisions = store.commit(pair).await.unwrap().revisions;
        acknowledged.lock().extend([(first, revisions[0]), (second, revisions[1])]);
        if number % 50 == 49 {
            let old = store.current_revision().await.unwrap().get().saturating_sub(100);
            store.compact(Revision::new(old)).await.unwrap();
        }
    }
}

/// Returns the content after a power loss, or the reason for which the store can't be opened.
async fn left(directory: &Path) -> Result<BTreeMap<String, Revision>, String> {
    let store = open(directory).map_err(|error| error.to_string())?;
    let range = RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision: None, limit: None };
    let page = store.range(range).await.map_err(|error| error.to_string())?;
    Ok(page.entries.into_iter().map(|entry| (entry.key.to_string(), entry.revision)).collect())
}

/// Loses the power repeatedly under load. Returns the number of losses of acknowledged writes.
async fn lose_power(fault: DiskFault) -> u64 {
    let directory = TempDir::new().unwrap();
    let disk = FragileDisk::below(directory.path());
    let store = Arc::new(open(directory.path()).unwrap());
    disk.set(fault);
    let (acknowledged, done) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(store.clone(), writer, acknowledged.clone(), done.clone())))
        .collect();
    let mut lost = 0;
    for number in 1..=LOSSES {
        let enough = usize::try_from(number).unwrap() * 40;
        while acknowledged.lock().len() < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let after = TempDir::new().unwrap();
        let before = acknowledged.lock().clone();
        let mut luck = Luck(number);
        // In some rounds no unsynced data has reached the disk, in others about half of it.
        // ORDER: the mark is not on the disk of this test. It is copied first, since after a power loss it is never newer
        // than the other files.
        std::fs::copy(directory.path().join(MARK), after.path().join(MARK)).unwrap();
        tokio::task::block_in_place(|| disk.power_off(after.path(), || number % 3 != 0 && luck.next()));
        let left = match left(after.path()).await {
            Ok(left) => left,
            Err(refused) => {
                assert_eq!(fault, DiskFault::SyncsNothing, "{refused}");
                lost += 1;
                continue;
            }
        };
        if before.iter().any(|(key, revision)| left.get(key) != Some(revision)) {
            lost += 1;
        }
        if fault == DiskFault::None {
            for (key, revision) in left.iter().filter(|(key, _)| key.starts_with("/a/")) {
                let other = left.get(&key.replace("/a/", "/b/"));
                assert_eq!(other, Some(&revision.next()), "{key} is half of a transaction");
            }
        }
    }
    done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_acknowledged_writes_survive_a_power_loss() {
    assert_eq!(lose_power(DiskFault::None).await, 0);
}

/// Shows that the test above can fail: a store without syncs (`synchronous=OFF` of SQLite) loses acknowledged writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_syncs_loses_acknowledged_writes() {
    assert!(lose_power(DiskFault::SyncsNothing).await > LOSSES / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_sync_no_write_happens_and_the_server_ends() {
    let directory = TempDir::new().unwrap();
    let disk = FragileDisk::below(directory.path());
    let supervisor = Supervisor::default();
    let config = SqliteConfig { supervisor: supervisor.clone(), ..SqliteConfig::directory(directory.path()) };
    let store = SqliteStore::open(config).unwrap();
    let before = store.commit(put("/before", "1")).await.unwrap().revisions[0];
    disk.set(DiskFault::SyncFails);
    let failed = store.commit(put("/during", "1")).await;
    // The write may be on the disk.
    assert!(matches!(failed, Err(CommitError::Store(StoreError::Unknown(_)))), "{failed:?}");
    let why = tokio::time::timeout(Duration::from_secs(10), supervisor.failed()).await.unwrap().to_string();
    assert!(why.contains("can't make writes durable, since the disk has failed"), "{why}");
    disk.set(DiskFault::None);
    let writes = disk.writes();
    let refused = store.commit(put("/after", "1")).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    assert!(store.check().await.is_err());
    assert!(store.get(&StoreKey::new("/during")).await.unwrap().is_none(), "what may be gone is not shown");
    drop(store);
    assert_eq!(disk.writes(), writes, "not even the log was moved when it was closed");
    let left = left(directory.path()).await.unwrap();
    assert_eq!(left.get("/before"), Some(&before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let directory = TempDir::new().unwrap();
    let disk = FragileDisk::below(directory.path());
    let store = open(directory.path()).unwrap();
    store.commit(put("/before", "1")).await.unwrap();
    store.check().await.unwrap();
    disk.set(DiskFault::Full);
    let refused = store.commit(put("/during", "1")).await;
    assert!(
        matches!(&refused, Err(CommitError::Store(StoreError::Unavailable(why))) if why.contains("full")),
        "{refused:?}"
    );
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    disk.set(DiskFault::None);
    store.check().await.unwrap();
    store.commit(put("/after", "1")).await.unwrap();
    drop(store);
    let left = left(directory.path()).await.unwrap();
    assert_eq!(left.keys().map(String::as_str).collect::<Vec<_>>(), ["/after", "/before"]);
}

/// The size of the small disk, in bytes.
const SMALL_DISK: u64 = 48 * 1024 * 1024;
/// The maximum time for background work.
const PATIENCE: Duration = Duration::from_secs(60);

fn small_disk(directory: &TempDir) -> FragileDisk {
    let disk = FragileDisk::below(directory.path());
    disk.set(DiskFault::Room(SMALL_DISK));
    disk
}

fn on_disk(directory: &TempDir, disk: &FragileDisk) -> SqliteConfig {
    SqliteConfig { disk: Arc::new(disk.clone()), ..SqliteConfig::directory(directory.path()) }
}

/// Compacts like a server: when the store reports that history uses too much space.
fn compacting(store: &Arc<SqliteStore>) -> tokio::task::JoinHandle<()> {
    let store = Arc::downgrade(store);
    tokio::spawn(async move {
        loop {
            let Some(store) = store.upgrade() else { return };
            let Ok(oldest) = tokio::time::timeout(Duration::from_millis(100), store.crowded()).await else { continue };
            if store.compact(oldest).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
}

fn large(key: &str) -> Transaction {
    Transaction::default().put(StoreKey::new(key), vec![7; 400_000])
}

/// Creates objects until one is refused. Returns their number and the refusal.
async fn fill(store: &SqliteStore) -> (usize, String) {
    let mut number = 0;
    for _ in 0..500 {
        match store.commit(large(&format!("/full/{number}"))).await {
            Ok(_) => number += 1,
            // The write that finds the disk full may be repeated, since it may have been a deletion.
            Err(CommitError::Store(StoreError::Unavailable(_))) => {}
            Err(CommitError::Store(StoreError::Full(why))) => return (number, why),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk takes more than it has");
}

async fn delete_all(store: &SqliteStore, count: usize) {
    for number in 0..count {
        let delete = Transaction::default().delete(StoreKey::new(format!("/full/{number}")));
        match store.commit(delete.clone()).await {
            // The deletion has found the disk full. The reserve is released now.
            Err(CommitError::Store(StoreError::Unavailable(_))) => store.commit(delete).await.map(drop).unwrap(),
            deleted => drop(deleted.unwrap()),
        }
    }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, found: impl Fn() -> F) -> T {
    let polling = async {
        loop {
            match found().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("{what}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_one_key_do_not_fill_a_disk() {
    let directory = TempDir::new().unwrap();
    let disk = small_disk(&directory);
    let store = Arc::new(SqliteStore::open(on_disk(&directory, &disk)).unwrap());
    let compactor = compacting(&store);
    let key = StoreKey::new("/one");
    store.commit(large("/one")).await.unwrap();
    // The test writes many times the size of the disk.
    for _ in 0..600 {
        store.commit(large("/one").when(key.clone(), Condition::Exists)).await.unwrap();
    }
    assert!(store.gauges().read().cuts > 0);
    assert!(!store.gauges().read().full);
    compactor.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_left_by_deleting() {
    let directory = TempDir::new().unwrap();
    let disk = small_disk(&directory);
    let store = Arc::new(SqliteStore::open(on_disk(&directory, &disk)).unwrap());
    let compactor = compacting(&store);
    let (count, why) = fill(&store).await;
    assert!(count > 40, "{count} objects fill the disk");
    assert!(why.contains("delete objects, or make room on the disk"), "{why}");
    assert!(store.gauges().read().full);
    // The store answers, and accepts the writes that free space.
    store.check().await.unwrap();
    store.get(&StoreKey::new("/full/1")).await.unwrap().unwrap();
    assert!(store.commit(put("/more", "x")).await.is_err(), "whatever adds is refused");
    let taken = put("/full/1", "x").when(StoreKey::new("/full/1"), Condition::Absent);
    let taken = store.commit(taken).await.unwrap_err();
    assert!(
        matches!(taken, CommitError::Compare { index: 0, .. }),
        "a name that is taken is no matter of room: {taken}"
    );
    store.commit(Transaction { relief: Relief::Upkeep, ..put("/lease", "x") }).await.unwrap();
    let before = disk.room(directory.path()).unwrap().free;
    delete_all(&store, count).await;
    until("the room comes back", || async { (!store.gauges().read().full).then_some(()) }).await;
    store.commit(large("/more")).await.unwrap();
    let room = || async {
        let free = disk.room(directory.path()).unwrap().free;
        (free > before + SMALL_DISK / 4).then_some(())
    };
    until("the disk gets its room back", room).await;
    assert!(store.gauges().read().reserve > 0, "the reserve is there for the next time");
    compactor.abort();
}

/// Other files fill the disk to the last byte while no server runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_a_full_disk_opens_and_is_left_by_deleting() {
    let directory = TempDir::new().unwrap();
    let disk = small_disk(&directory);
    let store = Arc::new(SqliteStore::open(on_disk(&directory, &disk)).unwrap());
    let (count, _) = fill(&store).await;
    drop(store);
    let free = disk.room(directory.path()).unwrap().free;
    std::fs::write(directory.path().join("of-others"), vec![0; usize::try_from(free).unwrap()]).unwrap();
    let store = Arc::new(SqliteStore::open(on_disk(&directory, &disk)).unwrap());
    let compactor = compacting(&store);
    assert_eq!(left_in(&store).await, count);
    assert!(store.commit(large("/more")).await.is_err());
    delete_all(&store, count).await;
    until("the room comes back", || async { (!store.gauges().read().full).then_some(()) }).await;
    store.commit(large("/more")).await.unwrap();
    assert_eq!(left_in(&store).await, 1);
    compactor.abort();
}

/// If there is no space at a start to record that the store is open, the store accepts no writes until there is some. A
/// log without this record would look like one of an earlier start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_after_a_start_without_room_for_its_note_loses_nothing() {
    let (directory, crashed) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let disk = FragileDisk::below(directory.path());
    let config = || SqliteConfig { reserve_bytes: Some(0), ..on_disk(&directory, &disk) };
    let store = SqliteStore::open(config()).unwrap();
    store.commit(put("/kept", "x")).await.unwrap();
    drop(store);
    disk.set(DiskFault::Full);
    let store = SqliteStore::open(config()).unwrap();
    assert!(store.commit(put("/refused", "x")).await.is_err() && store.check().await.is_err());
    disk.set(DiskFault::None);
    store.check().await.unwrap();
    store.commit(put("/later", "x")).await.unwrap();
    // The files are those after kill -9.
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), crashed.path().join(entry.file_name())).unwrap();
    }
    let found = SqliteStore::open(SqliteConfig::directory(crashed.path())).unwrap();
    assert_eq!(left_in(&found).await, 2);
    // A lost log is still detected.
    drop(found);
    std::fs::copy(directory.path().join("keelson.db"), crashed.path().join("keelson.db")).unwrap();
    std::fs::copy(directory.path().join("keelson.db-mark"), crashed.path().join("keelson.db-mark")).unwrap();
    let lost = SqliteStore::open(SqliteConfig::directory(crashed.path())).map(|_| ());
    assert!(matches!(lost, Err(OpenError::Lost { .. })), "{lost:?}");
}

/// The configured reserve is larger than half of the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_with_a_large_reserve_is_left_by_deleting() {
    let directory = TempDir::new().unwrap();
    let disk = small_disk(&directory);
    let config = SqliteConfig { reserve_bytes: Some(SMALL_DISK / 8 * 5), ..on_disk(&directory, &disk) };
    let store = Arc::new(SqliteStore::open(config).unwrap());
    let compactor = compacting(&store);
    let (count, _) = fill(&store).await;
    delete_all(&store, count).await;
    until("the room comes back", || async { (!store.gauges().read().full).then_some(()) }).await;
    store.commit(large("/more")).await.unwrap();
    compactor.abort();
}

async fn left_in(store: &SqliteStore) -> usize {
    let range = RangeRequest { from: StoreKey::new("/"), to: StoreKey::prefix_end("/"), revision: None, limit: None };
    store.range(range).await.unwrap().entries.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_at_its_quota_accepts_only_deletions() {
    let directory = TempDir::new().unwrap();
    let quota = 20 * 1024 * 1024;
    let config = SqliteConfig { quota_bytes: Some(quota), ..SqliteConfig::directory(directory.path()) };
    let store = Arc::new(SqliteStore::open(config.clone()).unwrap());
    let compactor = compacting(&store);
    let (count, why) = fill(&store).await;
    assert!((40..=60).contains(&count), "{count} objects of 400 KB make 20 MiB");
    assert!(why.contains("20 MiB that --store-quota allows") && why.contains("delete objects"), "{why}");
    let stats = store.gauges().read();
    assert!(stats.full && stats.refused > 0 && stats.used >= quota && stats.file < quota * 2, "{stats:?}");
    // The store is still full after a restart.
    compactor.abort();
    let _ = compactor.await;
    drop(store);
    let store = Arc::new(SqliteStore::open(config).unwrap());
    let compactor = compacting(&store);
    until("it is measured", || async { store.gauges().read().full.then_some(()) }).await;
    assert!(store.commit(large("/more")).await.is_err());
    delete_all(&store, count / 2).await;
    until("the room comes back", || async { (!store.gauges().read().full).then_some(()) }).await;
    store.commit(large("/more")).await.unwrap();
    compactor.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_above_its_share_is_cut_and_no_more_than_that() {
    let directory = TempDir::new().unwrap();
    let config = SqliteConfig { history_bytes: 8 * 1024 * 1024, ..SqliteConfig::directory(directory.path()) };
    let store = Arc::new(SqliteStore::open(config).unwrap());
    let key = StoreKey::new("/one");
    store.commit(large("/one")).await.unwrap();
    for _ in 0..30 {
        store.commit(large("/one").when(key.clone(), Condition::Exists)).await.unwrap();
    }
    let newest = store.current_revision().await.unwrap();
    // The space is measured after the answer of the last write, so the early compaction may come later and for a
    // slightly higher revision.
    let cut = async {
        while store.gauges().read().cuts == 0 {
            let oldest = store.crowded().await;
            assert!(oldest < newest);
            store.compact(oldest).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.unwrap();
    let stats = store.gauges().read();
    assert!((4_000_000..8_000_000).contains(&stats.history), "{stats:?}");
}

/// Creates small objects as upkeep until one is refused. Returns their number.
async fn keep_up(store: &SqliteStore) -> usize {
    let mut number = 0;
    for _ in 0..20_000 {
        let small = Transaction::default().put(StoreKey::new(format!("/upkeep/{number}")), vec![7; 4000]);
        match store.commit(Transaction { relief: Relief::Upkeep, ..small }).await {
            Ok(_) => number += 1,
            // A compaction removes replaced versions first.
            Err(CommitError::Store(StoreError::Unavailable(_))) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(CommitError::Store(StoreError::Full(_))) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("a full store takes whatever is called upkeep");
}

/// The test runs on a full disk, and at a quota without a reserve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_leaves_room_for_deletions() {
    for quota in [None, Some(20 * 1024 * 1024)] {
        let directory = TempDir::new().unwrap();
        let config = match quota {
            None => on_disk(&directory, &small_disk(&directory)),
            Some(_) => {
                SqliteConfig { quota_bytes: quota, reserve_bytes: Some(0), ..SqliteConfig::directory(directory.path()) }
            }
        };
        let store = Arc::new(SqliteStore::open(config).unwrap());
        let compactor = compacting(&store);
        let (count, _) = fill(&store).await;
        let small = keep_up(&store).await;
        assert!((100..=300).contains(&small), "{small} objects of 4 KB");
        let renewal = || async {
            let key = StoreKey::new("/upkeep/1");
            let same = Transaction::default().when(key.clone(), Condition::Exists).put(key, vec![8; 4000]);
            match store.commit(Transaction { relief: Relief::Upkeep, ..same }).await {
                Ok(_) => Some(()),
                Err(CommitError::Store(StoreError::Unavailable(_))) => None,
                Err(other) => panic!("{other}"),
            }
        };
        for _ in 0..100 {
            until("what adds nothing passes", renewal).await;
        }
        delete_all(&store, count).await;
        until("the room comes back", || async { (!store.gauges().read().full).then_some(()) }).await;
        store.commit(large("/more")).await.unwrap();
        compactor.abort();
    }
}

/// Returns the space after a measurement.
async fn measured(store: &SqliteStore) -> SpaceStats {
    // The second answer is sent after the measurement for the first.
    for _ in 0..2 {
        store.check().await.unwrap();
    }
    store.gauges().read()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_keeps_a_share_of_the_free_space() {
    let directory = TempDir::new().unwrap();
    let quota = 40 * 1024 * 1024;
    let config = SqliteConfig { quota_bytes: Some(quota), ..SqliteConfig::directory(directory.path()) };
    let store = SqliteStore::open(config).unwrap();
    let version = || Transaction::default().put(StoreKey::new("/one"), vec![7; 100_000]);
    store.commit(version()).await.unwrap();
    for number in 0.. {
        store.commit(large(&format!("/full/{number}"))).await.unwrap();
        if measured(&store).await.used >= quota / 10 * 9 {
            break;
        }
    }
    let update = || store.commit(version().when(StoreKey::new("/one"), Condition::Exists));
    for _ in 0..5 {
        update().await.unwrap();
    }
    let stats = measured(&store).await;
    assert!(stats.history >= 500_000 && !stats.full, "{stats:?}");
    let cut = tokio::time::timeout(Duration::from_millis(50), store.crowded()).await;
    assert!(cut.is_err(), "it is less than its part");
    for _ in 0..20 {
        update().await.unwrap();
    }
    let oldest = tokio::time::timeout(PATIENCE, store.crowded()).await.unwrap();
    assert!(!store.gauges().read().full && oldest < store.current_revision().await.unwrap());
}
