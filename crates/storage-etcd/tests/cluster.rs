//! Tests of an etcd with three members, one of which is killed, hangs, lags, or is cut off. Invariants 17 and 18.
//!
//! Tests with servers above it are in `keelson/tests/many_servers/etcd_members.rs`.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, commit, follow, key, put, read};
use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::conformance::Factory;
use keelson_storage::{CommitError, Condition, Store, StoreError, StoreEvent, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::{EtcdCluster, EtcdServer};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The maximum time without a success for a client when one member of three is lost. An election takes two seconds, and
/// detecting a hanging member takes two and a half. The rest is for busy machines.
const LONGEST_GAP: Duration = Duration::from_secs(12);
/// The maximum time of a call meanwhile: its own limit, eight seconds on a busy machine, plus the search for the
/// outcome of a write whose answer was lost.
const LONGEST_CALL: Duration = Duration::from_secs(12);

/// The number of writers, each starting on one of the members.
const WRITERS: usize = 6;

/// Opens a store that starts with this member.
async fn open(cluster: &EtcdCluster, first: usize) -> EtcdStore {
    let mut endpoints: Vec<String> = cluster.members().iter().map(EtcdServer::endpoint).collect();
    endpoints.rotate_left(first);
    let url = format!("etcd://{}?order=given", endpoints.join(","));
    EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap()
}

/// Each case has a separate prefix, so that earlier revisions look like those of other programs.
struct OnCluster<'a>(&'a EtcdCluster, usize);

impl Factory for OnCluster<'_> {
    async fn open(&mut self) -> Arc<dyn Store> {
        let url = format!("etcd://{}/conformance/{}", self.0.endpoints(), self.1);
        Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_several_members() {
    let Some(cluster) = EtcdServer::builder().newest().start_cluster(3) else { return };
    let mut cases = 0;
    keelson_storage::conformance::run(|| {
        cases += 1;
        OnCluster(&cluster, cases)
    })
    .await;
}

/// The results of a writer.
#[derive(Default)]
struct Told {
    acknowledged: Vec<(String, Revision)>,
    failures: usize,
    longest_call: Duration,
    longest_gap: Duration,
}

/// Writers that create one key after the other, and tails of all changes, while members are lost and return.
struct Load {
    stores: Vec<EtcdStore>,
    start: Revision,
    done: Arc<AtomicBool>,
    /// The number of successes of each writer.
    acknowledged: Arc<[AtomicUsize; WRITERS]>,
    writers: Vec<JoinHandle<Told>>,
    feeds: Vec<JoinHandle<Vec<StoreEvent>>>,
}

impl Load {
    /// Starts writers on the members of these stores.
    async fn start(stores: Vec<EtcdStore>) -> Self {
        let start = stores[0].current_revision().await.unwrap();
        let (done, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicUsize; WRITERS]>::default());
        let writer = |number: usize| {
            let store = stores[number % stores.len()].clone();
            tokio::spawn(write(store, number, done.clone(), acknowledged.clone()))
        };
        let writers = (0..WRITERS).map(writer).collect();
        let feeds = stores.iter().map(|store| tokio::spawn(feed(store.clone(), start))).collect();
        Self { stores, start, done, acknowledged, writers, feeds }
    }

    /// Waits for `more` further successes of every writer.
    async fn progress(&self, more: usize) {
        let so_far = || self.acknowledged.iter().map(|writer| writer.load(Ordering::SeqCst));
        let before: Vec<usize> = so_far().collect();
        let progress = async {
            while so_far().zip(&before).any(|(now, before)| now < before + more) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, progress).await.expect("writes go on");
    }

    /// Stops the load. Compares the writers' results with the tails and the stored state.
    async fn check(self) -> Vec<Told> {
        self.done.store(true, Ordering::SeqCst);
        let mut told = Vec::new();
        for writer in self.writers {
            told.push(writer.await.unwrap());
        }
        commit(&self.stores[0], put("zz-last", "x")).await;
        let page = read(&self.stores[0]).await;
        let stored: BTreeMap<String, Revision> =
            page.entries.into_iter().map(|entry| (entry.key.to_string(), entry.revision)).collect();
        for feed in self.feeds {
            let events = timeout(PATIENCE, feed).await.expect("the feed gets to its end").unwrap();
            assert!(events.windows(2).all(|pair| pair[0].revision <= pair[1].revision), "in order");
            let fed: BTreeMap<String, Revision> =
                events.iter().map(|event| (event.key.to_string(), event.revision)).collect();
            assert_eq!(fed.len(), events.len(), "each key was created once");
            assert_eq!(fed, stored);
        }
        for (name, revision) in told.iter().flat_map(|told| &told.acknowledged) {
            assert_eq!(stored.get(name), Some(revision), "{name} was acknowledged");
            assert!(*revision > self.start);
        }
        for told in &told {
            assert!(told.longest_call < LONGEST_CALL, "a call took {:?}", told.longest_call);
            assert!(told.longest_gap < LONGEST_GAP, "nothing succeeded for {:?}", told.longest_gap);
        }
        told
    }
}

async fn write(
    store: EtcdStore,
    writer: usize,
    done: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicUsize; WRITERS]>,
) -> Told {
    let mut told = Told::default();
    let mut last = Instant::now();
    for round in 0.. {
        if done.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("w{writer}/{round}");
        let begun = Instant::now();
        let written = store.commit(put(&name, "x").when(key(&name), Condition::Absent)).await;
        told.longest_call = told.longest_call.max(begun.elapsed());
        match written {
            Ok(committed) => {
                told.acknowledged.push((key(&name).to_string(), committed.revisions[0]));
                told.longest_gap = told.longest_gap.max(last.elapsed());
                last = Instant::now();
                acknowledged[writer].fetch_add(1, Ordering::SeqCst);
            }
            Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => told.failures += 1,
            Err(error) => panic!("{error}"),
        }
        // Acknowledged writes are visible on every member.
        if let (Some((name, revision)), 0) = (told.acknowledged.last(), round % 8) {
            match store.get(&keelson_storage::StoreKey::new(name.clone())).await {
                Ok(found) => assert_eq!(found.map(|found| found.revision), Some(*revision)),
                Err(StoreError::Unavailable(_)) => told.failures += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    told
}

/// Returns all events from a revision to the last key. The tails may break meanwhile.
async fn feed(store: EtcdStore, start: Revision) -> Vec<StoreEvent> {
    let (mut events, mut watermark): (Vec<StoreEvent>, _) = (Vec::new(), start);
    loop {
        let Ok(mut tail) = store.tail(watermark).await else { continue };
        while let Some(Ok(batch)) = tail.next().await {
            assert!(batch.watermark >= watermark);
            watermark = batch.watermark;
            events.extend(batch.events);
            if events.last().is_some_and(|event| event.key == key("zz-last")) {
                return events;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_killed_members_cost_only_a_pause() {
    let Some(mut cluster) = EtcdCluster::start() else { return };
    let load = Load::start(vec![open(&cluster, 0).await, open(&cluster, 1).await, open(&cluster, 2).await]).await;
    // First the leader, then a follower.
    for leads in [true, false] {
        load.progress(20).await;
        let leader = cluster.leader(&[0, 1, 2]);
        let lost = if leads { leader } else { (leader + 1) % 3 };
        cluster.member(lost).kill();
        load.progress(20).await;
        cluster.member(lost).start_again();
        load.progress(10).await;
    }
    let told = load.check().await;
    assert!(told.iter().map(|told| told.acknowledged.len()).sum::<usize>() >= WRITERS * 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_members_that_hang_are_left_by_writers_readers_and_feeds() {
    let Some(cluster) = EtcdCluster::start() else { return };
    let stores = vec![open(&cluster, 0).await, open(&cluster, 1).await, open(&cluster, 2).await];
    let load = Load::start(stores).await;
    for leads in [false, true] {
        load.progress(20).await;
        let leader = cluster.leader(&[0, 1, 2]);
        let lost = if leads { leader } else { (leader + 1) % 3 };
        cluster.members()[lost].pause();
        load.progress(20).await;
        // The member lags now, and does not report it.
        cluster.members()[lost].resume();
        load.progress(10).await;
    }
    let left: u64 = load.stores.iter().map(|store| store.stats().failovers).sum();
    load.check().await;
    assert!(left >= 2, "{left}");
}

/// One caller detects that the member hangs, and all other callers use the result: the next call starts on another
/// member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_found_out_once_for_all() {
    let Some(cluster) = EtcdCluster::start() else { return };
    let lost = (cluster.leader(&[0, 1, 2]) + 1) % 3;
    let store = open(&cluster, lost).await;
    let before = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    let first = commit(&store, put("a", "2")).await;
    assert_eq!(tail.next().await.unwrap().unwrap().watermark, first);
    // The first call after a watch has opened its connection reads the name of the store.
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().revision, first);

    cluster.members()[lost].pause();
    let begun = Instant::now();
    let (written, name) = (store.commit(put("lost", "x")), key("a"));
    let (written, found) = tokio::join!(written, store.get(&name));
    // The outcome of the write is unknown, since it may take effect once the member continues.
    assert!(matches!(written, Err(CommitError::Store(StoreError::Unknown(_)))), "{written:?}");
    assert_eq!(found.unwrap().unwrap().revision, first);
    assert!(begun.elapsed() < LONGEST_CALL, "{:?}", begun.elapsed());
    assert_eq!(store.stats().failovers, 1);

    let begun = Instant::now();
    let next = commit(&store, put("a", "3")).await;
    let told = timeout(PATIENCE, async {
        loop {
            let batch = tail.next().await.unwrap().unwrap();
            if batch.watermark >= next {
                return batch;
            }
        }
    });
    assert_eq!(told.await.unwrap().events.last().unwrap().revision, next);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((store.stats().failovers, store.stats().watches_broken), (1, 1));
    cluster.members()[lost].resume();
}

/// An isolated member answers, but its state is outdated, and watches on it must not wait forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_leader_is_left_for_those_that_have_one() {
    let Some(cluster) = EtcdCluster::start() else { return };
    let leader = cluster.leader(&[0, 1, 2]);
    let (alone, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let store = open(&cluster, alone).await;
    let before = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    let first = commit(&store, put("a", "2")).await;
    assert_eq!(tail.next().await.unwrap().unwrap().watermark, first);
    drop(tail);

    // While two of three members are away, no write can succeed, and clients get an error in reasonable time.
    for place in [leader, other] {
        cluster.members()[place].pause();
    }
    for _ in 0..3 {
        let begun = Instant::now();
        let refused = store.commit(put("b", "x").when(key("b"), Condition::Absent)).await;
        let open = matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))));
        assert!(open, "{refused:?}");
        assert!(begun.elapsed() < LONGEST_CALL, "{:?}", begun.elapsed());
    }

    // Now the two continue without the third.
    cluster.members()[alone].pause();
    for place in [leader, other] {
        cluster.members()[place].resume();
    }
    cluster.leader(&[leader, other]);
    let begun = Instant::now();
    let next = timeout(PATIENCE, async {
        loop {
            match store.commit(put("c", "x")).await {
                Ok(committed) => return committed.revisions[0],
                Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let next = next.await.unwrap();
    assert!(begun.elapsed() < LONGEST_GAP, "{:?}", begun.elapsed());
    let events = follow(&store, first, next).await;
    assert_eq!(events.last().unwrap().revision, next);
    cluster.members()[alone].resume();
    // A member that returns has missed writes. The store does not return its outdated state.
    let late = open(&cluster, alone).await;
    assert!(late.current_revision().await.unwrap() >= next);
    assert_eq!(follow(&late, first, next).await, events);
    commit(&late, Transaction::default().delete(key("c"))).await;
}
