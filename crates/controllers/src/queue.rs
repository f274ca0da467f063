//! A work queue of keys. Each key is queued at most once, and at most one worker works on it at a time.
//!
//! After a failure, a key waits before its next turn, longer after each further failure. A key that is added during a
//! turn continues the chain of that turn, and in a long chain keys wait as after failures. So keys that add each other
//! can't keep a thread busy. A key that changes constantly gets a limited number of turns a second. A waiting key
//! delays no other.

mod chain;
mod meter;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
pub use keelson_supervision::Backoff;
use keelson_supervision::Jitter;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, debug_span};

pub(crate) use chain::unchained;
use chain::{FREE_LINKS, as_link, current_link};
pub use meter::QueueMeter;

/// The number of turns that a key gets in quick succession before it must wait.
const BURST: u32 = 20;
/// The wait of a key after these turns. A key that changes constantly gets four turns a second.
const PACE: Backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(250) };
/// The time without a turn after which a key's turns are counted from zero again.
const QUIET: Duration = Duration::from_secs(2);

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// The key needs another turn, after a backoff.
    Again,
}

/// The queue.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    /// Notified when a key may be ready sooner than expected.
    changed: Notify,
    backoff: Backoff,
    meter: Arc<QueueMeter>,
    name: &'static str,
}

struct State<K> {
    known: HashMap<K, Item>,
    ready: VecDeque<K>,
    /// Waiting keys by the time when they are due. The number distinguishes keys with equal times.
    later: BTreeMap<(Instant, u64), K>,
    /// Idle keys in the order of their last turns, kept for as long as these turns count.
    resting: VecDeque<(Instant, u64, K)>,
    count: u64,
    jitter: Jitter,
    meter: Arc<QueueMeter>,
}

struct Item {
    stands: ReadyTime,
    /// The number of failed turns in a row.
    attempts: u32,
    /// The length of the chain that leads to the key's turn.
    link: u32,
    /// The number of turns in a row, each less than [`QUIET`] after the one before.
    turns: u32,
    last: Option<Instant>,
    /// The time since when the key is ready for a worker.
    ready_since: Option<Instant>,
}

#[derive(Clone, Copy)]
enum ReadyTime {
    Ready,
    /// The key's place in [`State::later`].
    Later(Instant, u64),
    Running {
        /// The chain length of an addition during the turn, if the key was added.
        again: Option<u32>,
    },
    /// The key's number in [`State::resting`].
    Resting(u64),
}

impl<K: Clone + Debug + Eq + Hash> Queue<K> {
    /// Creates an empty queue with a name for metrics and a backoff for failures.
    pub fn new(name: &'static str, backoff: Backoff) -> Self {
        let meter = QueueMeter::for_queue(name);
        let state = State {
            known: HashMap::new(),
            ready: VecDeque::new(),
            later: BTreeMap::new(),
            resting: VecDeque::new(),
            count: 0,
            jitter: Jitter::default(),
            meter: meter.clone(),
        };
        Self { state: Mutex::new(state), changed: Notify::new(), backoff, meter, name }
    }

    /// Adds a key, which gets a turn soon even if it waits after a failure. A call during a turn, of any queue,
    /// continues the chain of that turn.
    pub fn add(&self, key: K) {
        let link = current_link();
        let mut state = self.state.lock();
        let item = state.known.entry(key.clone()).or_insert_with(Item::new);
        if let ReadyTime::Running { again } = &mut item.stands {
            *again = Some(again.map_or(link, |known| known.min(link)));
            return;
        }
        if matches!(item.stands, ReadyTime::Ready) {
            item.link = item.link.min(link);
            return;
        }
        state.schedule(key, link, self.backoff);
        drop(state);
        self.changed.notify_one();
    }

    /// Works on up to `at_once` keys concurrently. Never returns.
    pub async fn run<W: Future<Output = Outcome>>(&self, at_once: usize, work: impl Fn(K) -> W) -> Infallible {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((key, outcome)) = running.next() => self.finish(key, outcome),
                (key, link) = self.next(), if running.len() < at_once => {
                    let span = debug_span!(parent: None, "controller step", controller = self.name, key = ?key);
                    let work = as_link(link + 1, work(key.clone())).instrument(span);
                    let turn = self.meter.begin();
                    running.push(async move {
                        let _turn = turn;
                        (key, work.await)
                    });
                }
            }
            // Work that never waits would hold the thread. This yields to other tasks now and then.
            consume_budget().await;
        }
    }

    /// Waits for the next ready key, and returns it with its chain length. Cancel safe.
    async fn next(&self) -> (K, u32) {
        loop {
            let due = match self.state.lock().take() {
                Ok(key) => return key,
                Err(due) => due,
            };
            let sleep = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn finish(&self, key: K, outcome: Outcome) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(item) = state.known.get_mut(&key) else { return };
        let ReadyTime::Running { again } = item.stands else { return };
        let failed = item.attempts;
        item.attempts = if outcome == Outcome::Done { 0 } else { failed.saturating_add(1) };
        match (again, outcome) {
            (Some(link), _) => state.schedule(key, link, self.backoff),
            (None, Outcome::Done) => state.rest(key),
            (None, Outcome::Again) => {
                self.meter.retries.increment();
                let wait = state.jitter.spread(self.backoff.after(failed));
                state.put_later(key, wait);
            }
        }
        self.changed.notify_one();
    }
}

impl<K> Drop for Queue<K> {
    fn drop(&mut self) {
        let ready = self.state.get_mut().ready.len();
        self.meter.add_ready(-i64::try_from(ready).unwrap_or_default());
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Takes a ready key with its chain length, or returns the time when the next key is due.
    fn take(&mut self) -> Result<(K, u32), Option<Instant>> {
        let now = Instant::now();
        self.forget_rested(now);
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            if let Some(item) = self.known.get_mut(&key) {
                item.become_ready(now);
                self.meter.add_ready(1);
                self.ready.push_back(key);
            }
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.later.keys().next().map(|(due, _)| *due));
        };
        let item = self.known.entry(key.clone()).or_insert_with(Item::new);
        item.begin(now);
        self.meter.add_ready(-1);
        if let Some(since) = item.ready_since.take() {
            self.meter.waits.observe_duration(now.saturating_duration_since(since));
        }
        let link = item.link;
        Ok((key, link))
    }

    /// Schedules a key that is neither running nor ready. If it is already scheduled earlier, that time is kept.
    fn schedule(&mut self, key: K, link: u32, backoff: Backoff) {
        let now = Instant::now();
        let Some(item) = self.known.get_mut(&key) else { return };
        let mut wait = item.pace(now);
        if link > FREE_LINKS {
            wait = wait.max(backoff.after(link - FREE_LINKS - 1));
        }
        if let ReadyTime::Later(due, number) = item.stands {
            if due <= now + wait {
                return;
            }
            self.later.remove(&(due, number));
        }
        item.link = link;
        self.meter.adds.increment();
        if wait.is_zero() {
            item.become_ready(now);
            self.meter.add_ready(1);
            self.ready.push_back(key);
        } else {
            let wait = self.jitter.spread(wait);
            self.put_later(key, wait);
        }
    }

    fn put_later(&mut self, key: K, wait: Duration) {
        let due = Instant::now() + wait;
        self.count += 1;
        if let Some(item) = self.known.get_mut(&key) {
            item.stands = ReadyTime::Later(due, self.count);
            self.later.insert((due, self.count), key);
        }
    }

    /// Marks a key as idle and keeps its number of turns for [`QUIET`].
    fn rest(&mut self, key: K) {
        self.count += 1;
        if let Some(item) = self.known.get_mut(&key) {
            item.stands = ReadyTime::Resting(self.count);
            self.resting.push_back((Instant::now() + QUIET, self.count, key));
        }
    }

    fn forget_rested(&mut self, now: Instant) {
        while let Some((_, number, key)) = self.resting.pop_front_if(|(until, ..)| *until <= now) {
            if let Entry::Occupied(known) = self.known.entry(key)
                && matches!(known.get().stands, ReadyTime::Resting(own) if own == number)
            {
                known.remove();
            }
        }
    }
}

impl Item {
    fn new() -> Self {
        // The caller replaces this place.
        Self { stands: ReadyTime::Resting(0), attempts: 0, link: 0, turns: 0, last: None, ready_since: None }
    }

    fn become_ready(&mut self, now: Instant) {
        self.stands = ReadyTime::Ready;
        self.ready_since = Some(now);
    }

    fn begin(&mut self, now: Instant) {
        self.stands = ReadyTime::Running { again: None };
        let is_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET);
        self.turns = if is_soon { self.turns.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }

    /// The time that a key must wait because of its turns so far.
    fn pace(&self, now: Instant) -> Duration {
        let is_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET);
        if is_soon && self.turns >= BURST { PACE.after(self.turns - BURST) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests;
