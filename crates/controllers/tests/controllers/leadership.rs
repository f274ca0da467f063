//! Tests of leader election with lost responses, dead leaders and different clocks: two servers never lead at once.
//!
//! The clock is simulated, so a test of hours takes a moment.

use keelson_registry::Caller;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use keelson_controllers::Leadership;
use keelson_meta::json::Value;
use keelson_meta::options::GetOptions;
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::setup::{RunningClock, registry_at, target};

const LEASE: &str = "/registry/leases/kube-system/keelson-controllers";
const HOUR: Duration = Duration::from_secs(3600);

/// The leaders in the order of their turns, and the number of leaders now.
#[derive(Default)]
struct Reign {
    leaders: AtomicUsize,
    turns: Mutex<Vec<(String, Instant)>>,
}

struct Candidate {
    way: FaultyStore,
    registry: Arc<keelson_registry::Registry>,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidate {
    async fn start(store: &MemoryStore, reign: &Arc<Reign>, id: &str, holder: &str, now: SystemTime) -> Self {
        Self::start_on(FaultyStore::new(Arc::new(store.clone())), reign, (id, holder), now).await
    }

    async fn start_on(way: FaultyStore, reign: &Arc<Reign>, (id, holder): (&str, &str), now: SystemTime) -> Self {
        let registry = registry_at(Arc::new(way.clone()), RunningClock::set_to(now)).await;
        let leadership = Leadership::new(registry.clone(), id, holder);
        let (stopping, reign, name) = (CancellationToken::new(), reign.clone(), holder.to_owned());
        let stop = stopping.clone();
        let task = tokio::spawn(async move {
            let lead = |leading: CancellationToken| {
                let (reign, name) = (reign.clone(), name.clone());
                async move {
                    assert_eq!(reign.leaders.fetch_add(1, Ordering::SeqCst), 0, "{name} is the second one to lead");
                    reign.turns.lock().push((name, Instant::now()));
                    leading.cancelled().await;
                    reign.leaders.fetch_sub(1, Ordering::SeqCst);
                }
            };
            leadership.run(stop, lead).await;
        });
        Self { way, registry, stopping, task }
    }

    async fn stop(self) {
        self.stopping.cancel();
        self.task.await.unwrap();
    }

    async fn lease(&self) -> Value {
        let leases = target("coordination.k8s.io", "leases", Some("kube-system"));
        let found =
            self.registry.get(&leases, "keelson-controllers", &Caller::server(), &GetOptions::default()).await.unwrap();
        serde_json::from_str(found.object().text().as_ref()).unwrap()
    }
}

impl Reign {
    /// Waits for a leader's turn with this number, counted from 1. Returns the leader and the seconds since `since`.
    async fn turn(&self, number: usize, since: Instant) -> (String, u64) {
        loop {
            if let Some((who, when)) = self.turns.lock().get(number - 1) {
                return (who.clone(), when.duration_since(since).as_secs());
            }
            assert!(since.elapsed() < HOUR, "turn {number} begins");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + HOUR * 1000
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A server that has led for some time and a server that waits. Their clocks are hours apart.
async fn two() -> (MemoryStore, Arc<Reign>, Candidate, Candidate) {
    let (store, reign) = (MemoryStore::new(), Arc::new(Reign::default()));
    let first = Candidate::start(&store, &reign, "one", "one_1", now()).await;
    assert_eq!(reign.turn(1, Instant::now()).await.0, "one_1");
    let second = Candidate::start(&store, &reign, "two", "two_1", now() + HOUR * 5).await;
    pass(60).await;
    assert_eq!(reign.turns.lock().len(), 1, "a leader that renews stays, with any clocks");
    (store, reign, first, second)
}

#[tokio::test(start_paused = true)]
async fn lost_renewal_responses_do_not_end_leadership() {
    let (_store, reign, first, _second) = two().await;
    for lost in 1..4 {
        first.way.lose_answers(LEASE, lost);
        pass(60).await;
    }
    assert_eq!(reign.turns.lock().len(), 1);
    assert_eq!(first.lease().await["spec"]["holderIdentity"], "one_1");
}

/// The leader does not see the response to a renewal, so it counts from the renewal before.
#[tokio::test(start_paused = true)]
async fn a_leader_without_the_store_stops_before_the_next_one_starts() {
    for quiet in 0..8 {
        let (_store, reign, first, _second) = two().await;
        first.way.lose_answers(LEASE, 1);
        pass(quiet).await;
        let cut = Instant::now();
        first.way.set(Fault::Hang);
        let (who, after) = reign.turn(2, cut).await;
        assert_eq!(who, "two_1");
        assert!((5..=20).contains(&after), "{after} s after the leader was cut off");
        first.way.set(Fault::None);
        pass(60).await;
        assert_eq!(reign.turns.lock().len(), 2, "a server that comes back leaves the lease to the leader");
    }
}

#[tokio::test(start_paused = true)]
async fn leadership_is_released_even_after_an_unanswered_renewal() {
    for lost in [0, 1] {
        let (_store, reign, first, second) = two().await;
        first.way.lose_answers(LEASE, lost);
        // Long enough for a renewal whose response is lost, and too short for the next one.
        pass(2).await;
        let stopped = Instant::now();
        first.stop().await;
        let (who, after) = reign.turn(2, stopped).await;
        assert!(who == "two_1" && after <= 3, "{who} after {after} s");
        assert_eq!(second.lease().await["spec"]["leaseTransitions"], 1);
    }
}

/// The other server sees the lease long before the leader gets the answer to its write.
#[tokio::test(start_paused = true)]
async fn a_server_whose_first_answer_is_late_leads_no_longer_than_its_lease() {
    for delay in [1, 9, 11, 14, 16, 30] {
        let (store, reign) = (MemoryStore::new(), Arc::new(Reign::default()));
        let begun = Instant::now();
        let way = FaultyStore::new(Arc::new(store.clone()));
        way.delay_answer(LEASE, Duration::from_secs(delay));
        let first = Candidate::start_on(way, &reign, ("one", "one_1"), now()).await;
        while store.get(&StoreKey::new(LEASE)).await.unwrap().is_none() {
            assert!(begun.elapsed() < HOUR, "the lease is written");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let second = Candidate::start(&store, &reign, "two", "two_1", now()).await;
        pass(60).await;
        assert!(!reign.turns.lock().is_empty(), "a server leads in the end");
        first.stop().await;
        second.stop().await;
    }
}

/// The former leader could not see that another took the lease, and must not release it.
#[tokio::test(start_paused = true)]
async fn a_lease_of_another_holder_is_not_released() {
    let (_store, reign, first, second) = two().await;
    first.way.set_calls(Fault::Hang);
    reign.turn(2, Instant::now()).await;
    first.way.set_calls(Fault::None);
    first.stop().await;
    pass(60).await;
    assert_eq!(second.lease().await["spec"]["holderIdentity"], "two_1");
    assert_eq!(reign.turns.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_need_not_wait_for_its_own_lease() {
    let (store, reign, first, _second) = two().await;
    first.task.abort();
    reign.leaders.fetch_sub(1, Ordering::SeqCst);
    let back = Instant::now();
    let _again = Candidate::start(&store, &reign, "one", "one_2", now() - HOUR).await;
    let (who, after) = reign.turn(2, back).await;
    assert!(who == "one_2" && after <= 1, "{who} after {after} s");
}

#[tokio::test(start_paused = true)]
async fn an_older_process_does_not_take_leadership_from_its_successor() {
    let (store, reign, first, second) = two().await;
    second.stop().await;
    let earlier = Candidate::start(&store, &reign, "two", "two_2", now()).await;
    pass(10).await;
    let _later = Candidate::start(&store, &reign, "two", "two_3", now()).await;
    pass(10).await;
    first.stop().await;
    let (who, _) = reign.turn(2, Instant::now()).await;
    pass(60).await;
    assert_eq!(reign.turns.lock().len(), 2, "{who} stays");
    drop(earlier);
}
