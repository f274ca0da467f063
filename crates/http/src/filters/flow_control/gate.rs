//! Seats, and the queue of those who wait for some.
//!
//! Users who wait take turns, one request each, and no user has more than a part of all seats, so that there is always a turn
//! for others. Nobody is overtaken by a smaller request: what needs many seats would never get them otherwise.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The part of all seats that one user may have: so many of [`USER_PARTS`].
const USER_SHARE: usize = 3;
const USER_PARTS: usize = 4;
/// The longest time for which a refused client is sent away, in seconds.
const MOST_RETRY_SECONDS: u32 = 8;

/// A user, by a hash of its name. Two that share one also share their turns.
type Flow = u64;

/// A number of seats.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    seats: usize,
    most_for_one: usize,
    most_waiting: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    held: HashMap<Flow, usize>,
    /// Those who wait, by user, in the order of their turns. None is empty.
    waiting: VecDeque<(Flow, VecDeque<Waiter>)>,
    waiting_count: usize,
    rejected: u64,
    /// The last second in which somebody was refused, and in how many seconds up to it.
    refused: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Waiter {
    cost: usize,
    grant: oneshot::Sender<Seats>,
}

/// How full a gate is.
pub(super) struct Counts {
    pub(super) rejected: u64,
    pub(super) waiting: u64,
    pub(super) taken: u64,
}

/// Seats that a request has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seats {
    gate: Arc<Gate>,
    flow: Flow,
    cost: usize,
}

impl Gate {
    pub(super) fn new(seats: usize, most_waiting: usize) -> Self {
        let state = State {
            free: seats,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_count: 0,
            rejected: 0,
            refused: None,
        };
        let most_for_one = (seats * USER_SHARE / USER_PARTS).max(1);
        Self { state: Mutex::new(state), seats, most_for_one, most_waiting }
    }

    /// Takes `cost` seats, or what one user may have at the most, and waits for them for at most `patience`.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
    pub(super) async fn take(self: &Arc<Self>, flow: Flow, cost: usize, patience: Duration) -> Result<Seats, u32> {
        let cost = cost.clamp(1, self.most_for_one);
        let granted = {
            let mut state = self.state.lock();
            if state.waiting_count == 0 && self.fits(&state, flow, cost) {
                return Ok(self.grant(&mut state, flow, cost));
            }
            if state.waiting_count >= self.most_waiting {
                return Err(state.refuse());
            }
            let (grant, granted) = oneshot::channel();
            state.enqueue(flow, Waiter { cost, grant });
            granted
        };
        let guard = WaitGuard { gate: self, flow };
        let outcome = timeout(patience, granted).await;
        drop(guard);
        match outcome {
            Ok(Ok(seats)) => Ok(seats),
            Ok(Err(_)) | Err(_) => Err(self.state.lock().refuse()),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.state.lock();
        let taken = (self.seats - state.free) as u64;
        Counts { rejected: state.rejected, waiting: state.waiting_count as u64, taken }
    }

    fn fits(&self, state: &State, flow: Flow, cost: usize) -> bool {
        cost <= state.free && state.held.get(&flow).copied().unwrap_or_default() + cost <= self.most_for_one
    }

    fn grant(self: &Arc<Self>, state: &mut State, flow: Flow, cost: usize) -> Seats {
        state.free -= cost;
        *state.held.entry(flow).or_default() += cost;
        Seats { gate: self.clone(), flow, cost }
    }

    /// Grants seats to those whose turn it is, as long as there are enough.
    fn grant_waiting(self: &Arc<Self>) {
        loop {
            let granted = {
                let mut state = self.state.lock();
                state.next(self).map(|(flow, waiter)| (self.grant(&mut state, flow, waiter.cost), waiter.grant))
            };
            let Some((seats, grant)) = granted else { return };
            // ORDER: without the lock: seats that nobody waits for any more go back through it.
            drop(grant.send(seats));
        }
    }
}

impl State {
    fn enqueue(&mut self, flow: Flow, waiter: Waiter) {
        self.waiting_count += 1;
        match self.waiting.iter_mut().find(|(known, _)| *known == flow) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.waiting.push_back((flow, VecDeque::from([waiter]))),
        }
    }

    /// Takes out who is next, if there are seats. Users who have their share are passed over.
    fn next(&mut self, gate: &Gate) -> Option<(Flow, Waiter)> {
        let share_left =
            |flow: &Flow, cost: usize| self.held.get(flow).copied().unwrap_or_default() + cost <= gate.most_for_one;
        let turn = self
            .waiting
            .iter()
            .position(|(flow, waiters)| waiters.front().is_some_and(|waiter| share_left(flow, waiter.cost)))?;
        if self.waiting[turn].1.front()?.cost > self.free {
            return None;
        }
        let (flow, mut waiters) = self.waiting.remove(turn)?;
        let waiter = waiters.pop_front()?;
        self.waiting_count -= 1;
        if !waiters.is_empty() {
            self.waiting.push_back((flow, waiters));
        }
        Some((flow, waiter))
    }

    /// Counts a refusal. The longer there are some, the longer clients are sent away.
    fn refuse(&mut self) -> u32 {
        self.rejected += 1;
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
        {
            let mut state = self.gate.state.lock();
            state.free += self.cost;
            let left = state.held.get_mut(&self.flow).map(|held| {
                *held -= self.cost;
                *held
            });
            if left == Some(0) {
                state.held.remove(&self.flow);
            }
            if state.waiting_count == 0 {
                return;
            }
        }
        self.gate.clone().grant_waiting();
    }
}

/// Takes a request out of the queue when it no longer waits.
struct WaitGuard<'a> {
    gate: &'a Arc<Gate>,
    flow: Flow,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let Some(turn) = state.waiting.iter().position(|(flow, _)| *flow == self.flow) else { return };
        let waiters = &mut state.waiting[turn].1;
        let before = waiters.len();
        waiters.retain(|waiter| !waiter.grant.is_closed());
        let (left, gone) = (waiters.len(), before - waiters.len());
        state.waiting_count -= gone;
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
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    const PATIENCE: Duration = Duration::from_secs(15);

    fn take(gate: &Arc<Gate>, flow: Flow, cost: usize) -> BoxFuture<'static, Result<Seats, u32>> {
        let gate = gate.clone();
        async move { gate.take(flow, cost, PATIENCE).await }.boxed()
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
        assert_eq!((gate.counts().waiting, gate.counts().rejected), (0, 2));
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
}
