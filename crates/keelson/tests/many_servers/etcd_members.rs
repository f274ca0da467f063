//! Tests of three servers on an etcd of three members: one member dies or hangs, and clients of the servers continue.
//!
//! The crate of the engine tests the engine alone on such a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keelson_testkit::{EtcdCluster, Raw};

use crate::cluster::{Cluster, SERVERS, stored_at};
use crate::engines::Engine;
use crate::watches::{Watcher, history};
use crate::{CONFIG_MAPS, config_map, items, revision, until};

/// The longest time without a successful request of a client. An election takes two seconds, and a hanging member is
/// detected in two and a half. The rest is for busy machines.
const LONGEST_GAP: Duration = Duration::from_secs(15);

/// The results of one server's clients so far.
#[derive(Default)]
struct Client {
    created: AtomicUsize,
    listed: AtomicUsize,
}

/// Repeats a request until it is stopped. Returns the longest time between two successes.
async fn longest_gap<F: Future<Output = bool>>(
    done: &AtomicBool,
    successes: &AtomicUsize,
    act: impl Fn() -> F,
) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    while !done.load(Ordering::SeqCst) {
        if act().await {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            successes.fetch_add(1, Ordering::SeqCst);
        }
    }
    longest
}

/// Creates objects one after the other, and repeats each create until the object exists.
async fn create(raw: Raw, number: usize, client: Arc<Client>, done: Arc<AtomicBool>) -> Duration {
    longest_gap(&done, &client.created, || async {
        let created = client.created.load(Ordering::SeqCst);
        let name = format!("m{number}-{created:05}");
        let answer = raw.post(CONFIG_MAPS, &config_map(&name, 0)).await;
        // A repeated create gets 409 if the response of the first one was lost.
        assert!([201, 409, 503, 504].contains(&answer.status), "{}", answer.text());
        [201, 409].contains(&answer.status)
    })
    .await
}

/// Sends consistent lists.
async fn list(raw: Raw, client: Arc<Client>, done: Arc<AtomicBool>) -> Duration {
    longest_gap(&done, &client.listed, || async {
        let created = client.created.load(Ordering::SeqCst);
        let answer = raw.get(CONFIG_MAPS).await;
        assert!([200, 503, 504].contains(&answer.status), "{}", answer.text());
        if answer.status == 200 {
            assert!(items(&answer.json()).len() >= created, "what was acknowledged is listed");
        }
        answer.status == 200
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_dead_or_hanging_etcd_members_cause_a_short_pause() {
    let Some(mut etcd) = EtcdCluster::start() else { return };
    let cluster = Cluster::start(Engine::EtcdMembers(format!("etcd://{}", etcd.endpoints()))).await;
    let mut watchers = Vec::new();
    for number in 0..SERVERS {
        let watcher = Watcher::begin(&cluster.clients(), number).await;
        watchers.push(tokio::spawn(watcher.follow(cluster.clients(), usize::MAX, "zz-last")));
    }
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<Arc<Client>> = (0..SERVERS).map(|_| Arc::default()).collect();
    let mut gaps = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        gaps.push(tokio::spawn(create(cluster.raw(number), number, client.clone(), done.clone())));
        gaps.push(tokio::spawn(list(cluster.raw(number), client.clone(), done.clone())));
    }
    let progress = async |more: usize| {
        let now = || clients.iter().flat_map(|client| [&client.created, &client.listed]);
        let enough: Vec<usize> = now().map(|number| number.load(Ordering::SeqCst) + more).collect();
        let enough = &enough;
        until("progress at every server", || async {
            now().zip(enough).all(|(now, enough)| now.load(Ordering::SeqCst) >= *enough)
        })
        .await;
    };
    progress(10).await;
    let leader = etcd.leader(&[0, 1, 2]);
    etcd.member(leader).kill();
    progress(10).await;
    etcd.member(leader).start_again();
    for follows in [1, 0] {
        let hangs = (etcd.leader(&[0, 1, 2]) + follows) % 3;
        etcd.members()[hangs].pause();
        progress(10).await;
        etcd.members()[hangs].resume();
        progress(3).await;
    }
    done.store(true, Ordering::SeqCst);
    for gap in gaps {
        let gap = gap.await.unwrap();
        assert!(gap < LONGEST_GAP, "a client was without an answer that helps it for {gap:?}");
    }
    let last = cluster.raw(0).post(CONFIG_MAPS, &config_map("zz-last", 0)).await.expect(201).json();
    for watcher in watchers {
        let watcher = watcher.await.unwrap();
        let mut expected = history(&*cluster.store, watcher.begun).await;
        expected.retain(|(at, ..)| *at <= revision(&last));
        assert!(watcher.told == expected, "nothing is lost or told twice, and nobody is told 410");
        assert_eq!(watcher.copy.into_iter().collect::<Vec<_>>(), stored_at(&*cluster.store, revision(&last)).await);
    }
}
