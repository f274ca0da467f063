//! A queue of keys to work on: each is in it at most once, and one worker at a time has it.
//!
//! Nothing comes back without a backoff. A key whose work failed waits longer each time. A key that a turn adds, its own or another's,
//! is one more link of a chain, and long chains wait as failures do. So keys that add each other can't keep a thread busy. A key that
//! changes all the time has a bounded number of turns a second. A key that waits keeps no other from its turn.

mod chain;
mod meter;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
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

pub(crate) use chain::unchained;
use chain::{FREE_LINKS, as_link, current_link};
pub use meter::QueueMeter;

/// The turns that a key has in a row, each soon after the last, before it has to wait for more.
const BURST: u32 = 20;
/// The wait of a key that has had them. One that changes all the time has four turns a second.
const PACE: Backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(250) };
/// The rest after which the next turn of a key counts as the first again.
const QUIET: Duration = Duration::from_secs(2);

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// The key has to be worked on again, after a backoff.
    Again,
}

/// The queue.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    /// Notified when a key may be ready sooner than was known.
    changed: Notify,
    backoff: Backoff,
    meter: Arc<QueueMeter>,
}

struct State<K> {
    known: HashMap<K, Item>,
    ready: VecDeque<K>,
    /// By when they are due; the number keeps keys apart that are due at the same time.
    later: BTreeMap<(Instant, u64), K>,
    /// Keys at rest, in the order of their ends, until their turns no longer count.
    resting: VecDeque<(Instant, u64, K)>,
    count: u64,
    jitter: Jitter,
    meter: Arc<QueueMeter>,
}

struct Item {
    stands: Stands,
    /// The turns in a row that have failed.
    attempts: u32,
    /// The turns that led to this one since something outside of the queues did.
    link: u32,
    /// The turns up to now, each less than [`QUIET`] behind the one before.
    turns: u32,
    last: Option<Instant>,
    /// The time since which it is ready.
    ready_since: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Stands {
    Ready,
    /// With its place in [`State::later`].
    Later(Instant, u64),
    Running {
        /// The link by which it was added again meanwhile.
        again: Option<u32>,
    },
    /// With its number in [`State::resting`].
    Resting(u64),
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue, which metrics know by this name and in which failures wait like this.
    pub fn new(name: &'static str, backoff: Backoff) -> Self {
        let meter = QueueMeter::of(name);
        let state = State {
            known: HashMap::new(),
            ready: VecDeque::new(),
            later: BTreeMap::new(),
            resting: VecDeque::new(),
            count: 0,
            jitter: Jitter::default(),
            meter: meter.clone(),
        };
        Self { state: Mutex::new(state), changed: Notify::new(), backoff, meter }
    }

    /// Has a key worked on soon, also if it waits after a failure. Called within a turn, of this queue or another, it adds a link to the
    /// chain of that turn.
    pub fn add(&self, key: K) {
        let link = current_link();
        let mut state = self.state.lock();
        let item = state.known.entry(key.clone()).or_insert_with(Item::new);
        if let Stands::Running { again } = &mut item.stands {
            *again = Some(again.map_or(link, |known| known.min(link)));
            return;
        }
        if matches!(item.stands, Stands::Ready) {
            item.link = item.link.min(link);
            return;
        }
        state.schedule(key, link, self.backoff);
        drop(state);
        self.changed.notify_one();
    }

    /// Works on what is in the queue, on up to `at_once` keys at a time, for as long as it is polled.
    pub async fn run<W: Future<Output = Outcome>>(&self, at_once: usize, work: impl Fn(K) -> W) -> Infallible {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((key, outcome)) = running.next() => self.finish(key, outcome),
                (key, link) = self.next(), if running.len() < at_once => {
                    let work = as_link(link + 1, work(key.clone()));
                    let turn = self.meter.begin();
                    running.push(async move {
                        let _turn = turn;
                        (key, work.await)
                    });
                }
            }
            // Work that never waits leaves the thread to others now and then.
            consume_budget().await;
        }
    }

    /// The next key that is ready, and its link. Dropping the future loses nothing.
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
        let Stands::Running { again } = item.stands else { return };
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
    /// A ready key, now running, with its link; or when the next one is due.
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

    /// Gives a key that neither runs nor is ready its place, sooner than it had one at the most.
    fn schedule(&mut self, key: K, link: u32, backoff: Backoff) {
        let now = Instant::now();
        let Some(item) = self.known.get_mut(&key) else { return };
        let mut wait = item.pace(now);
        if link > FREE_LINKS {
            wait = wait.max(backoff.after(link - FREE_LINKS - 1));
        }
        if let Stands::Later(due, number) = item.stands {
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
            item.stands = Stands::Later(due, self.count);
            self.later.insert((due, self.count), key);
        }
    }

    /// Keeps how many turns a key had for a while.
    fn rest(&mut self, key: K) {
        self.count += 1;
        if let Some(item) = self.known.get_mut(&key) {
            item.stands = Stands::Resting(self.count);
            self.resting.push_back((Instant::now() + QUIET, self.count, key));
        }
    }

    fn forget_rested(&mut self, now: Instant) {
        while let Some((_, number, key)) = self.resting.pop_front_if(|(until, ..)| *until <= now) {
            if let Entry::Occupied(known) = self.known.entry(key)
                && matches!(known.get().stands, Stands::Resting(own) if own == number)
            {
                known.remove();
            }
        }
    }
}

impl Item {
    fn new() -> Self {
        // In no place yet; the caller gives it one.
        Self { stands: Stands::Resting(0), attempts: 0, link: 0, turns: 0, last: None, ready_since: None }
    }

    fn become_ready(&mut self, now: Instant) {
        self.stands = Stands::Ready;
        self.ready_since = Some(now);
    }

    fn begin(&mut self, now: Instant) {
        self.stands = Stands::Running { again: None };
        let is_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET);
        self.turns = if is_soon { self.turns.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }

    /// The wait of a key for the turns that it has had.
    fn pace(&self, now: Instant) -> Duration {
        let is_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET);
        if is_soon && self.turns >= BURST { PACE.after(self.turns - BURST) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests;
