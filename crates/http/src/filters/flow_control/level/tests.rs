//! A level as its requests use it: waiting, refusals, and cancelled requests.
//!
//! Helpers create levels without objects.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use keelson_fairness::Queuing;

use super::*;
use crate::shares::Level as Kind;

const PATIENCE: Duration = Duration::from_secs(15);

impl Level {
    /// A level with this many seats, in which this many requests may wait.
    pub(in crate::filters::flow_control) fn of_seats(seats: usize, waiting: u32) -> Arc<Self> {
        let queuing = Queuing { queues: 1, hand_size: 1, queue_length: waiting };
        let spec = PriorityLevel {
            name: "level".to_owned(),
            uid: String::new(),
            shares: 1,
            lendable_percent: 0,
            borrowing_percent: None,
            kind: LevelKind::Queue(queuing),
        };
        let seats = LevelSeats { nominal: seats, lower: seats, upper: seats };
        let level = Arc::new(Self::new(spec, seats, Instant::now()));
        level.slots(["schema"].into_iter());
        level
    }
}

impl SeatRequest {
    pub(in crate::filters::flow_control) fn of_test(holder: Holder) -> Self {
        let uri = Uri::from_static("/api/v1/pods");
        let about = RequestSummary { user: Arc::new(User::anonymous()), method: Method::GET, uri, is_watch: false };
        Self { slot: 0, flow: holder.flow, seats: 1, holder, about }
    }
}

fn take(level: &Arc<Level>, flow: u64, seats: usize) -> BoxFuture<'static, Result<Seats, u32>> {
    let level = level.clone();
    let asked = SeatRequest { seats, ..SeatRequest::of_test(Holder { flow, level: Kind::Users }) };
    async move { level.take(asked, PATIENCE).await }.boxed()
}

fn totals(level: &Arc<Level>) -> (usize, usize) {
    let totals = level.lock().queues.totals();
    (totals.executing, totals.waiting)
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_it_may_or_behind_too_many() {
    let level = Level::of_seats(1, 1);
    let held = take(&level, 1, 1).await.unwrap();
    let mut first = take(&level, 2, 1);
    assert!((&mut first).now_or_never().is_none());
    assert_eq!(take(&level, 3, 1).await.err(), Some(1));
    let started = Instant::now();
    assert_eq!(first.await.err(), Some(1));
    assert_eq!(started.elapsed(), PATIENCE);
    assert_eq!(totals(&level), (1, 0));
    {
        let state = level.lock();
        let (_, numbers) = state.flows().next().unwrap();
        let rejected = Rejection::ALL.map(|(why, _)| numbers.rejected(why));
        assert_eq!((rejected, numbers.waiting, numbers.executing), ([0, 1, 1, 0], 0, 1));
    }
    drop(held);
    assert!(take(&level, 3, 1).await.is_ok());
}

#[tokio::test]
async fn a_cancelled_request_frees_its_place_in_the_queue() {
    let level = Level::of_seats(4, 10);
    let held: Vec<_> = (0..2).map(|_| take(&level, 1, 1).now_or_never().unwrap().unwrap()).collect();
    let mut many = take(&level, 2, 1);
    let two: Vec<_> = (0..2).map(|_| take(&level, 1, 1).now_or_never().unwrap().unwrap()).collect();
    let mut few = take(&level, 3, 1);
    assert!((&mut many).now_or_never().is_none() && (&mut few).now_or_never().is_none());
    drop(many);
    assert_eq!(totals(&level), (4, 1));
    drop(held);
    assert!(few.now_or_never().is_some());
    drop(two);
    assert_eq!(totals(&level), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn level_metrics_count_utilization_and_requests_without_accommodation() {
    let level = Level::of_seats(8, 10);
    let held: Vec<_> = (0..7).map(|_| take(&level, 1, 1).now_or_never().unwrap().unwrap()).collect();
    let mut two = take(&level, 2, 2);
    assert!((&mut two).now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(1)).await;
    {
        let state = level.lock();
        let (_, numbers) = state.flows().next().unwrap();
        assert_eq!((numbers.waiting, numbers.blocked), (1, 1));
        let used = state.utilization;
        let close = |sum: f64, part: f64| (sum / 1e9 - part).abs() < 1e-6;
        assert!(close(used.seats.sum, 7. / 8.) && close(used.executing.sum, 7. / 8.), "{used:?}");
        assert!(close(used.waiting.sum, 1. / 10.) && used.waiting.count == 1_000_000_000, "{used:?}");
    }
    drop(held);
    assert!(two.now_or_never().is_some());
}

/// A cancelled request returns its seats, whenever it is cancelled.
#[tokio::test]
async fn seats_granted_to_a_cancelled_request_are_returned() {
    let level = Level::of_seats(1, 10);
    let held = take(&level, 1, 1).await.unwrap();
    let (mut second, mut third) = (take(&level, 2, 1), take(&level, 3, 1));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    drop(held);
    // Its seats are in the channel.
    drop(second);
    assert!(third.now_or_never().is_some_and(|seats| seats.is_ok()));
    assert_eq!(totals(&level), (0, 0));
}

#[tokio::test]
async fn a_request_takes_a_part_of_the_seats_at_most() {
    let level = Level::of_seats(40, 10);
    let large = take(&level, 1, 1_000).await.unwrap();
    assert_eq!(large.origin().1.seats, 10);
}

#[tokio::test]
async fn added_seats_dispatch_waiting_requests() {
    let level = Level::of_seats(1, 10);
    let _held = take(&level, 1, 1).await.unwrap();
    let mut other = take(&level, 2, 1);
    assert!((&mut other).now_or_never().is_none());
    level.limit(2);
    assert!(other.now_or_never().is_some());
}

#[tokio::test]
async fn slots_of_deleted_flow_schemas_are_reused() {
    let level = Level::of_seats(10, 10);
    let held = take(&level, 1, 1).await.unwrap();
    let (spec, seats) = {
        let state = level.lock();
        (state.spec.clone(), state.seats)
    };
    level.configure(spec.clone(), seats, false);
    assert_eq!(level.slots(["a", "b"].into_iter()), [1, 2], "the first has a request");
    drop(held);
    for _ in 0..1_000 {
        level.configure(spec.clone(), seats, false);
        let slots = level.slots(["c", "d"].into_iter());
        assert!(slots.iter().all(|slot| *slot < 5), "{slots:?}");
        level.configure(spec.clone(), seats, false);
        level.slots(["e"].into_iter());
    }
}
