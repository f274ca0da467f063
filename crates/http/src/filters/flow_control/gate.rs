//! Seats, and the queue of those who wait for some.
//!
//! Users who wait take turns, one request each, and no user has more than its share of all seats, so that there is always a turn
//! for others. No request is overtaken by a smaller one, since a request for many seats would never get them otherwise. When the queue is
//! full, the user with most requests in it loses its newest one to a user with fewer. An answer that takes its seats again waits before
//! the other requests of its user and needs no place in the queue. `listener/answers.rs` bounds the number of such answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::shares::{Holder, UserCounts};

/// The longest time for which a refused client is sent away, in seconds.
const MOST_RETRY_SECONDS: u32 = 8;

/// A number of seats.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    seats: usize,
    most_waiting: usize,
}

#[derive(Debug)]
struct State {
    held: UserCounts,
    /// Those who wait, by user, in the order of their turns. None is empty.
    waiting: VecDeque<(Holder, VecDeque<Waiter>)>,
    /// The number of requests that wait, without answers that take their seats again.
    waiting_count: usize,
    /// Requests that were refused since the queue was full, and since they waited too long.
    queue_full: u64,
    timed_out: u64,
    /// Requests that have seats.
    executing: u64,
    /// Requests that were given seats.
    dispatched: u64,
    /// The times of waiting for seats, of waiting in vain, and of holding seats.
    waits: Times,
    vain_waits: Times,
    executions: Times,
    /// The seats of requests that were given some, and the requests in the queue behind each one that waits.
    costs: Numbers<COST_ENDS>,
    queue_lengths: Numbers<LENGTH_ENDS>,
    /// The last second with refusals, and the number of seconds with refusals up to it.
    refused: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Waiter {
    cost: usize,
    /// True for an answer that takes its seats again.
    is_returning: bool,
    grant: oneshot::Sender<Seats>,
}

/// How full a gate is.
pub(super) struct Counts {
    pub(super) seats: u64,
    pub(super) queue_full: u64,
    pub(super) timed_out: u64,
    pub(super) waiting: u64,
    pub(super) waiting_seats: u64,
    pub(super) taken: u64,
    pub(super) executing: u64,
    pub(super) dispatched: u64,
    pub(super) waits: Times,
    pub(super) vain_waits: Times,
    pub(super) executions: Times,
    pub(super) costs: Numbers<COST_ENDS>,
    pub(super) queue_lengths: Numbers<LENGTH_ENDS>,
}

/// Upper ends of the buckets of times, in seconds: those of kube-apiserver.
const TIME_BUCKETS: [f64; 13] = [0., 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1., 2., 5., 10., 15., 30.];

/// Times of requests, counted under the lock of a gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    counts: [u64; TIME_BUCKETS.len()],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Times {
    fn note(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(bucket) = TIME_BUCKETS.iter().position(|end| seconds <= *end) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// The ends of the buckets with how many times each has that those before have not.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        TIME_BUCKETS.into_iter().zip(self.counts).collect()
    }
}

/// Upper ends of the buckets of seats, and their number: those of kube-apiserver.
const COST_BUCKETS: [f64; COST_ENDS] = [1., 2., 4., 8., 16., 32., 64., 100.];
const COST_ENDS: usize = 8;
/// Upper ends of the buckets of lengths of queues, and their number: those of kube-apiserver.
const LENGTH_BUCKETS: [f64; LENGTH_ENDS] = [0., 10., 25., 50., 100., 250., 500., 1000.];
const LENGTH_ENDS: usize = 8;

/// Numbers of things, counted under the lock of a gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<const N: usize> {
    ends: [f64; N],
    counts: [u64; N],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl<const N: usize> Numbers<N> {
    const fn new(ends: [f64; N]) -> Self {
        Self { ends, counts: [0; N], count: 0, sum: 0. }
    }

    fn note(&mut self, number: usize) {
        let number = number as f64;
        if let Some(bucket) = self.ends.iter().position(|end| number <= *end) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += number;
    }

    /// The ends of the buckets with how many numbers each has that those before have not.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        self.ends.into_iter().zip(self.counts).collect()
    }
}

/// Seats that a request has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seats {
    gate: Arc<Gate>,
    holder: Holder,
    cost: usize,
    waited: Duration,
    granted: Instant,
}

impl Seats {
    /// The time for which the request waited for them.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// The gate, the user and the number of the seats.
    pub(super) fn of_whom(&self) -> (Arc<Gate>, Holder, usize) {
        (self.gate.clone(), self.holder, self.cost)
    }
}

impl Gate {
    pub(super) fn new(seats: usize, most_waiting: usize) -> Self {
        let state = State {
            held: UserCounts::new(seats),
            waiting: VecDeque::new(),
            waiting_count: 0,
            queue_full: 0,
            timed_out: 0,
            executing: 0,
            dispatched: 0,
            waits: Times::default(),
            vain_waits: Times::default(),
            executions: Times::default(),
            costs: Numbers::new(COST_BUCKETS),
            queue_lengths: Numbers::new(LENGTH_BUCKETS),
            refused: None,
        };
        Self { state: Mutex::new(state), seats, most_waiting }
    }

    /// Takes `cost` seats, or what one user may have at the most, and waits for them for at most `patience`.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
    pub(super) async fn take(self: &Arc<Self>, holder: Holder, cost: usize, patience: Duration) -> Result<Seats, u32> {
        self.wait(holder, cost, patience, false).await
    }

    /// Takes seats again for an answer that had them before.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) async fn take_again(
        self: &Arc<Self>,
        holder: Holder,
        cost: usize,
        patience: Duration,
    ) -> Result<Seats, u32> {
        self.wait(holder, cost, patience, true).await
    }

    async fn wait(
        self: &Arc<Self>,
        holder: Holder,
        cost: usize,
        patience: Duration,
        is_returning: bool,
    ) -> Result<Seats, u32> {
        let cost = cost.clamp(1, holder.level.most_of(self.seats));
        let begun = Instant::now();
        let granted = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.fits(holder, cost) {
                state.waits.note(Duration::ZERO);
                return Ok(self.grant(&mut state, holder, cost, begun));
            }
            if !is_returning && state.waiting_count >= self.most_waiting && !state.displace_for(holder) {
                state.queue_full += 1;
                state.vain_waits.note(Duration::ZERO);
                return Err(state.refuse());
            }
            let (grant, granted) = oneshot::channel();
            state.enqueue(holder, Waiter { cost, is_returning, grant });
            let length = state.waiting_count;
            state.queue_lengths.note(length);
            granted
        };
        let guard = WaitGuard { gate: self, holder };
        // Others may wait because they have their share, beside seats that are free.
        self.grant_waiting();
        let outcome = timeout(patience, granted).await;
        drop(guard);
        let waited = begun.elapsed();
        let mut state = self.state.lock();
        match outcome {
            Ok(Ok(mut seats)) => {
                state.waits.note(waited);
                seats.waited = waited;
                Ok(seats)
            }
            Ok(Err(_)) | Err(_) => {
                // A request that lost its place was displaced by one of another user: the queue was full.
                let count = if outcome.is_ok() { &mut state.queue_full } else { &mut state.timed_out };
                *count += 1;
                state.vain_waits.note(waited);
                Err(state.refuse())
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.state.lock();
        let costs = state.waiting.iter().flat_map(|(_, waiters)| waiters).map(|waiter| waiter.cost as u64);
        Counts {
            seats: self.seats as u64,
            queue_full: state.queue_full,
            timed_out: state.timed_out,
            waiting: state.waiting_count as u64,
            waiting_seats: costs.sum(),
            taken: state.held.taken() as u64,
            executing: state.executing,
            dispatched: state.dispatched,
            waits: state.waits,
            vain_waits: state.vain_waits,
            executions: state.executions,
            costs: state.costs,
            queue_lengths: state.queue_lengths,
        }
    }

    fn grant(self: &Arc<Self>, state: &mut State, holder: Holder, cost: usize, granted: Instant) -> Seats {
        state.held.take(holder, cost);
        state.executing += 1;
        state.dispatched += 1;
        state.costs.note(cost);
        Seats { gate: self.clone(), holder, cost, waited: Duration::ZERO, granted }
    }

    /// Grants seats to those whose turn it is, as long as there are enough.
    fn grant_waiting(self: &Arc<Self>) {
        loop {
            let granted = {
                let mut state = self.state.lock();
                state
                    .next()
                    .map(|(holder, waiter)| (self.grant(&mut state, holder, waiter.cost, Instant::now()), waiter.grant))
            };
            let Some((seats, grant)) = granted else { return };
            // ORDER: without the lock: seats that nobody waits for any more go back through it.
            drop(grant.send(seats));
        }
    }
}

impl State {
    fn fits(&self, holder: Holder, cost: usize) -> bool {
        cost <= self.held.free() && self.held.has_share(holder, cost)
    }

    fn enqueue(&mut self, holder: Holder, waiter: Waiter) {
        self.waiting_count += usize::from(!waiter.is_returning);
        match self.waiting.iter_mut().find(|(known, _)| *known == holder) {
            Some((_, waiters)) if waiter.is_returning => waiters.push_front(waiter),
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.waiting.push_back((holder, VecDeque::from([waiter]))),
        }
    }

    /// Takes the newest request of the user with most out of the queue. Returns false if no user has more than this one would have.
    fn displace_for(&mut self, holder: Holder) -> bool {
        let requests = |waiters: &VecDeque<Waiter>| waiters.iter().filter(|waiter| !waiter.is_returning).count();
        let own = self.waiting.iter().find(|(known, _)| *known == holder).map_or(0, |(_, waiters)| requests(waiters));
        let most = self.waiting.iter_mut().max_by_key(|(_, waiters)| requests(waiters));
        let Some((_, waiters)) = most.filter(|(_, waiters)| requests(waiters) > own + 1) else { return false };
        // More than one is left, so that the user keeps its turn. Dropping it tells the request that it is refused.
        let newest = waiters.iter().rposition(|waiter| !waiter.is_returning);
        if newest.and_then(|newest| waiters.remove(newest)).is_none() {
            return false;
        }
        self.waiting_count -= 1;
        true
    }

    /// Takes out who is next, if there are seats. Users who have their share are passed over.
    fn next(&mut self) -> Option<(Holder, Waiter)> {
        let turn = self.waiting.iter().position(|(holder, waiters)| {
            waiters.front().is_some_and(|waiter| self.held.has_share(*holder, waiter.cost))
        })?;
        if self.waiting[turn].1.front()?.cost > self.held.free() {
            return None;
        }
        let (holder, mut waiters) = self.waiting.remove(turn)?;
        let waiter = waiters.pop_front()?;
        self.waiting_count -= usize::from(!waiter.is_returning);
        if !waiters.is_empty() {
            self.waiting.push_back((holder, waiters));
        }
        Some((holder, waiter))
    }

    /// Counts a refusal. The longer there are some, the longer clients are sent away.
    fn refuse(&mut self) -> u32 {
        let now = Instant::now();
        let seconds = match self.refused {
            Some((since, seconds)) if now < since + Duration::from_secs(1) => return seconds,
            Some((since, seconds)) if now < since + Duration::from_secs(2) => (seconds + 1).min(MOST_RETRY_SECONDS),
            Some(_) | None => 1,
        };
        self.refused = Some((now, seconds));
        seconds
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let held = self.granted.elapsed();
        {
            let mut state = self.gate.state.lock();
            state.held.give_back(self.holder, self.cost);
            state.executing -= 1;
            state.executions.note(held);
            if state.waiting.is_empty() {
                return;
            }
        }
        self.gate.clone().grant_waiting();
    }
}

/// Takes a request out of the queue when it no longer waits.
struct WaitGuard<'a> {
    gate: &'a Arc<Gate>,
    holder: Holder,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let Some(turn) = state.waiting.iter().position(|(holder, _)| *holder == self.holder) else { return };
        let waiters = &mut state.waiting[turn].1;
        let (mut gone, mut requests) = (0, 0);
        waiters.retain(|waiter| {
            let is_gone = waiter.grant.is_closed();
            gone += usize::from(is_gone);
            requests += usize::from(is_gone && !waiter.is_returning);
            !is_gone
        });
        let left = waiters.len();
        state.waiting_count -= requests;
        if left == 0 {
            state.waiting.remove(turn);
        }
        drop(state);
        if gone > 0 {
            // It may have kept others waiting.
            self.gate.grant_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Level;
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    const PATIENCE: Duration = Duration::from_secs(15);

    fn of(flow: u64) -> Holder {
        Holder { flow, level: Level::Exempt }
    }

    fn take(gate: &Arc<Gate>, flow: u64, cost: usize) -> BoxFuture<'static, Result<Seats, u32>> {
        let gate = gate.clone();
        async move { gate.take(of(flow), cost, PATIENCE).await }.boxed()
    }

    #[tokio::test]
    async fn users_who_wait_take_turns() {
        let gate = Arc::new(Gate::new(1, 10));
        let held = take(&gate, 1, 1).await.unwrap();
        let mut waiting: Vec<_> = [2, 2, 3].map(|flow| take(&gate, flow, 1)).into();
        for waiter in &mut waiting {
            assert!(waiter.now_or_never().is_none());
        }
        drop(held);
        let mut order = Vec::new();
        for expect in [0, 2, 1] {
            let granted: Vec<_> = waiting.iter_mut().map(futures::FutureExt::now_or_never).collect();
            let at = granted.iter().position(Option::is_some).unwrap();
            order.push(at);
            assert_eq!(at, expect, "{order:?}");
            waiting[at] = futures::future::pending().boxed();
            drop(granted);
        }
        assert_eq!(gate.counts().taken, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_it_may_or_behind_too_many() {
        let gate = Arc::new(Gate::new(1, 1));
        let held = take(&gate, 1, 1).await.unwrap();
        let mut first = take(&gate, 2, 1);
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(take(&gate, 3, 1).await.err(), Some(1));
        let started = Instant::now();
        assert_eq!(first.await.err(), Some(1));
        assert_eq!(started.elapsed(), PATIENCE);
        let counts = gate.counts();
        assert_eq!((counts.waiting, counts.queue_full + counts.timed_out), (0, 2));
        drop(held);
        assert!(take(&gate, 3, 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_for_long_is_sent_away_for_longer() {
        let gate = Arc::new(Gate::new(1, 0));
        let _held = take(&gate, 1, 1).await.unwrap();
        for expect in [1, 2, 3, 4, 5, 6, 7, 8, 8] {
            assert_eq!(take(&gate, 2, 1).await.err(), Some(expect));
            assert_eq!(take(&gate, 2, 1).await.err(), Some(expect));
            tokio::time::advance(Duration::from_millis(1500)).await;
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(take(&gate, 2, 1).await.err(), Some(1));
    }

    #[tokio::test]
    async fn a_user_that_waits_at_its_share_keeps_nobody_from_free_seats() {
        let gate = Arc::new(Gate::new(8, 2));
        let mut held = Vec::new();
        while held.len() < Level::Exempt.most_of(8) {
            held.push(take(&gate, 1, 1).await.unwrap());
        }
        let mut waiting = [take(&gate, 1, 1), take(&gate, 1, 1)];
        for request in &mut waiting {
            assert!(request.now_or_never().is_none());
        }
        assert!(take(&gate, 2, 1).now_or_never().is_some_and(|taken| taken.is_ok()));
        assert!(take(&gate, 3, 1).now_or_never().is_some_and(|taken| taken.is_ok()));
    }

    #[tokio::test]
    async fn no_user_has_all_places_and_what_needs_many_is_not_overtaken() {
        let gate = Arc::new(Gate::new(8, 10));
        let large = take(&gate, 1, 100).await.unwrap();
        assert_eq!(large.cost, 6);
        assert!(take(&gate, 1, 1).now_or_never().is_none(), "it has its share");
        let mut many = take(&gate, 2, 4);
        let mut few = take(&gate, 3, 1);
        assert!((&mut many).now_or_never().is_none() && (&mut few).now_or_never().is_none());
        drop(large);
        assert!(many.now_or_never().is_some() && few.now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_leaves_the_queue_lets_others_pass() {
        let gate = Arc::new(Gate::new(4, 10));
        let held = take(&gate, 1, 2).await.unwrap();
        let mut many = take(&gate, 2, 3);
        let mut few = take(&gate, 3, 1);
        assert!((&mut many).now_or_never().is_none() && (&mut few).now_or_never().is_none());
        drop(many);
        assert!(few.now_or_never().is_some());
        drop(held);
        assert_eq!((gate.counts().waiting, gate.counts().taken), (0, 0));
    }

    #[tokio::test]
    async fn a_user_that_fills_the_queue_loses_places_to_users_with_fewer() {
        let gate = Arc::new(Gate::new(1, 3));
        let held = take(&gate, 1, 1).await.unwrap();
        let mut many: Vec<_> = (0..3).map(|_| take(&gate, 2, 1)).collect();
        for waiter in &mut many {
            assert!(waiter.now_or_never().is_none());
        }
        assert!(take(&gate, 2, 1).now_or_never().is_some_and(|refused| refused.is_err()), "it has most");
        let mut other = take(&gate, 3, 1);
        assert!((&mut other).now_or_never().is_none());
        assert!((&mut many[2]).now_or_never().is_some_and(|refused| refused.is_err()), "its newest gave way");
        assert!(take(&gate, 3, 1).now_or_never().is_some_and(|refused| refused.is_err()), "both have as many");
        assert_eq!(gate.counts().waiting, 3);
        drop(held);
        assert!((&mut many[0]).now_or_never().is_some_and(|granted| granted.is_ok()));
        assert!((&mut other).now_or_never().is_some_and(|granted| granted.is_ok()));
        drop((many, other));
        assert_eq!((gate.counts().waiting, gate.counts().taken), (0, 0));
    }

    #[tokio::test]
    async fn an_answer_that_goes_on_comes_before_the_other_requests_of_its_user() {
        let gate = Arc::new(Gate::new(1, 1));
        let held = take(&gate, 1, 1).await.unwrap();
        let mut request = take(&gate, 2, 1);
        assert!((&mut request).now_or_never().is_none());
        let again = gate.clone();
        let mut answer = async move { again.take_again(of(2), 1, PATIENCE).await }.boxed();
        assert!((&mut answer).now_or_never().is_none());
        drop(held);
        assert!((&mut request).now_or_never().is_none() && answer.now_or_never().is_some());
        assert!(request.now_or_never().is_some());
    }
}
