//! A queue of things to look at: each is in it at most once, is worked on by one worker at a time, and comes back later,
//! at growing intervals, when the work did not succeed.
//!
//! So a queue is never longer than there are different things, and one that can't be finished does not keep others waiting.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::hash::Hash;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How the work on one thing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing left to do.
    Done,
    /// It has to be looked at again.
    Again,
}

/// How long a thing waits for its next turn: doubled each time, between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Before the second turn.
    pub first: Duration,
    /// At the most.
    pub longest: Duration,
}

/// The queue.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    /// Told when something may be ready sooner than was known.
    changed: Notify,
    backoff: Backoff,
}

struct State<K> {
    known: HashMap<K, Item>,
    ready: VecDeque<K>,
    /// By when they are due; the number tells apart what is due at once.
    later: BTreeMap<(Instant, u64), K>,
    count: u64,
}

struct Item {
    stands: Stands,
    attempts: u32,
}

#[derive(Clone, Copy)]
enum Stands {
    Ready,
    /// With its place in [`State::later`].
    Later(Instant, u64),
    Running {
        /// It was added again meanwhile.
        again: bool,
    },
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue, to which things come back like this.
    pub fn new(backoff: Backoff) -> Self {
        let state = State { known: HashMap::new(), ready: VecDeque::new(), later: BTreeMap::new(), count: 0 };
        Self { state: Mutex::new(state), changed: Notify::new(), backoff }
    }

    /// Has a thing looked at as soon as possible, also if it was to be looked at later.
    pub fn add(&self, key: K) {
        let mut state = self.state.lock();
        let state = &mut *state;
        match state.known.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Item { stands: Stands::Ready, attempts: 0 });
            }
            Entry::Occupied(mut known) => match known.get().stands {
                Stands::Ready => return,
                Stands::Running { .. } => {
                    known.get_mut().stands = Stands::Running { again: true };
                    return;
                }
                Stands::Later(due, number) => {
                    state.later.remove(&(due, number));
                    known.get_mut().stands = Stands::Ready;
                }
            },
        }
        state.ready.push_back(key);
        self.changed.notify_one();
    }

    /// Works on what is in the queue, on up to `at_once` things at a time, for as long as it is polled.
    pub async fn run<W: Future<Output = Outcome>>(&self, at_once: usize, work: impl Fn(K) -> W) -> Infallible {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((key, outcome)) = running.next() => self.finish(key, outcome),
                key = self.next(), if running.len() < at_once => {
                    let work = work(key.clone());
                    running.push(async move { (key, work.await) });
                }
            }
        }
    }

    /// The next thing that is ready. Dropping the future loses nothing.
    async fn next(&self) -> K {
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
        let Entry::Occupied(mut known) = state.known.entry(key) else { return };
        let item = known.get_mut();
        match (item.stands, outcome) {
            (Stands::Running { again: true }, outcome) => {
                item.attempts = if outcome == Outcome::Done { 0 } else { item.attempts.saturating_add(1) };
                item.stands = Stands::Ready;
                state.ready.push_back(known.key().clone());
                self.changed.notify_one();
            }
            (_, Outcome::Done) => {
                known.remove();
            }
            (_, Outcome::Again) => {
                let due = Instant::now() + self.backoff.after(item.attempts);
                item.attempts = item.attempts.saturating_add(1);
                state.count += 1;
                item.stands = Stands::Later(due, state.count);
                state.later.insert((due, state.count), known.key().clone());
                self.changed.notify_one();
            }
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// A ready thing, now running; or when the next one is due.
    fn take(&mut self) -> Result<K, Option<Instant>> {
        let now = Instant::now();
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.stand(&key, Stands::Ready);
            self.ready.push_back(key);
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.later.keys().next().map(|(due, _)| *due));
        };
        self.stand(&key, Stands::Running { again: false });
        Ok(key)
    }

    fn stand(&mut self, key: &K, stands: Stands) {
        if let Some(item) = self.known.get_mut(key) {
            item.stands = stands;
        }
    }
}

impl Backoff {
    pub(crate) fn after(self, attempts: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(attempts)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(4) };

    /// Works on the queue until `until` is over, and tells what was worked on and when, in seconds.
    async fn check(queue: &Queue<&'static str>, until: u64, outcome: impl Fn(&str) -> Outcome, expect: &[(&str, u64)]) {
        let start = Instant::now();
        let seen = Mutex::new(Vec::new());
        let work = queue.run(2, |key| {
            seen.lock().push((key, start.elapsed().as_secs()));
            std::future::ready(outcome(key))
        });
        assert!(tokio::time::timeout(Duration::from_secs(until), work).await.is_err());
        assert_eq!(*seen.lock(), expect);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thing_is_looked_at_once_however_often_it_was_added() {
        let queue = Queue::new(BACKOFF);
        ["a", "b", "a", "b", "a"].into_iter().for_each(|key| queue.add(key));
        check(&queue, 60, |_| Outcome::Done, &[("a", 0), ("b", 0)]).await;
        assert!(queue.state.lock().known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_comes_back_at_growing_intervals_and_holds_up_nobody() {
        let queue = Queue::new(BACKOFF);
        ["stuck", "a", "b", "c"].into_iter().for_each(|key| queue.add(key));
        let outcome = |key: &str| if key == "stuck" { Outcome::Again } else { Outcome::Done };
        let expect =
            [("stuck", 0), ("a", 0), ("b", 0), ("c", 0), ("stuck", 1), ("stuck", 3), ("stuck", 7), ("stuck", 11)];
        check(&queue, 12, outcome, &expect).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_again_does_not_wait_for_its_time() {
        let queue = Queue::new(BACKOFF);
        queue.add("a");
        check(&queue, 2, |_| Outcome::Again, &[("a", 0), ("a", 1)]).await;
        queue.add("a");
        check(&queue, 60, |_| Outcome::Done, &[("a", 0)]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_while_it_is_worked_on_is_worked_on_again_afterwards() {
        let queue = Queue::new(BACKOFF);
        queue.add("a");
        let seen = Mutex::new(0);
        let work = queue.run(8, |key| {
            let first = {
                let mut seen = seen.lock();
                *seen += 1;
                *seen == 1
            };
            let queue = &queue;
            async move {
                if first {
                    queue.add(key);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Outcome::Done
            }
        });
        assert!(tokio::time::timeout(Duration::from_secs(60), work).await.is_err());
        assert_eq!(*seen.lock(), 2);
    }
}
