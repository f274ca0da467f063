//! The watchdog: a thread that detects tasks and requests that block a runtime thread.
//!
//! A blocked thread polls nothing else. Work in its queue, including other requests, waits, while health checks on
//! other threads succeed. The watchdog logs the blocking task, fails a health check meanwhile, and logs the recovery.
//! It does not detect a poll that itself polls marked futures repeatedly, since each of them changes the thread's slot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::running::{Place, name_of};
use crate::{Supervisor, is_one_thread};

/// The name of the thread.
const WATCHDOG: &str = "watchdog";
/// The maximum duration of a poll, without the time that the thread waits for a processor.
const LONGEST_POLL: Duration = Duration::from_secs(1);
/// The interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A blocked thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldThread {
    /// The name of the thread.
    pub thread: String,
    /// The task or request that blocks it.
    pub task: &'static str,
    /// The duration since the watchdog first saw this poll.
    pub held: Duration,
}

/// The first time that the watchdog saw a poll.
struct ObservedPoll {
    state: u64,
    at: Instant,
    waited_nanos: u64,
    is_told: bool,
}

impl Supervisor {
    /// Starts the watchdog of this supervisor, until `stopping` is cancelled. If the system has no more threads, it
    /// logs this and the server runs without a watchdog. A process of one thread has none.
    pub fn watch_threads(&self, stopping: &CancellationToken) {
        if is_one_thread() {
            return;
        }
        let (supervisor, stop) = (self.clone(), stopping.clone());
        let watch = move || {
            let mut seen = HashMap::new();
            while !stop.is_cancelled() {
                thread::sleep(LOOK_EVERY);
                supervisor.look_at_threads(&mut seen);
            }
            supervisor.0.held.lock().clear();
        };
        if let Err(error) = self.spawn_thread(WATCHDOG, stopping, watch) {
            tracing::error!(%error, "the watchdog for blocked runtime threads could not start a thread");
        }
    }

    /// The threads that are blocked now.
    pub fn held_threads(&self) -> Vec<HeldThread> {
        self.0.held.lock().clone()
    }

    /// The number of blocked threads detected so far.
    pub fn holds(&self) -> u64 {
        self.0.holds.load(Ordering::Relaxed)
    }

    fn look_at_threads(&self, seen: &mut HashMap<usize, ObservedPoll>) {
        let (places, now) = (Place::all(), Instant::now());
        let mut held = Vec::new();
        seen.retain(|address, _| places.iter().any(|place| address_of(place) == *address));
        for place in &places {
            let state = place.state();
            let known = seen.get_mut(&address_of(place));
            if let Some(known) = known
                && known.state == state
            {
                held.extend(self.held_by(place, known, now));
                continue;
            }
            if let Some(before) = seen.remove(&address_of(place)).filter(|before| before.is_told) {
                let task = name_of(before.state).map_or("", |(_, task)| task);
                let held = now.saturating_duration_since(before.at);
                tracing::warn!(task, thread = place.thread(), "a runtime thread was blocked for {held:?}");
            }
            if name_of(state).is_some_and(|(supervisor, _)| supervisor == self.0.number) {
                let waited_nanos = place.waited_nanos();
                seen.insert(address_of(place), ObservedPoll { state, at: now, waited_nanos, is_told: false });
            }
        }
        *self.0.held.lock() = held;
    }

    /// Returns the thread of a poll that the watchdog saw before, if the poll has lasted too long.
    fn held_by(&self, place: &Place, known: &mut ObservedPoll, now: Instant) -> Option<HeldThread> {
        let lasted = now.saturating_duration_since(known.at);
        if lasted < LONGEST_POLL {
            return None;
        }
        let held = lasted.saturating_sub(Duration::from_nanos(place.waited_nanos().saturating_sub(known.waited_nanos)));
        let (_, task) = name_of(known.state).filter(|_| held >= LONGEST_POLL)?;
        let thread = place.thread();
        if !known.is_told {
            known.is_told = true;
            self.0.holds.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                task,
                thread,
                "a runtime thread has been blocked for {held:?}, and other tasks wait for it"
            );
        }
        Some(HeldThread { thread: thread.to_owned(), task, held })
    }
}

fn address_of(place: &Arc<Place>) -> usize {
    Arc::as_ptr(place).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the blocked threads are as expected.
    fn until(supervisor: &Supervisor, expected: &[&str]) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let held: Vec<&str> = supervisor.held_threads().iter().map(|held| held.task).collect();
            if held == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{held:?} instead of {expected:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_blocking_task_is_named_until_it_yields() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (supervisor, other, stopping) = (Supervisor::default(), Supervisor::default(), CancellationToken::new());
        supervisor.watch_threads(&stopping);
        let (news, mut told) = tokio::sync::mpsc::channel(1);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let _in_runtime = runtime.enter();
        other.spawn("idle", &stopping, std::future::pending::<()>());
        supervisor.spawn("idle", &stopping, std::future::pending::<()>());
        supervisor.spawn("busy", &stopping, async move {
            while told.recv().await.is_some() {
                let _released = released.recv();
            }
        });
        until(&supervisor, &[]);
        for holds in 1..=2 {
            news.blocking_send(()).unwrap();
            until(&supervisor, &["busy"]);
            assert!(supervisor.held_threads()[0].held >= LONGEST_POLL && supervisor.holds() == holds);
            assert!(other.held_threads().is_empty());
            release.send(()).unwrap();
            until(&supervisor, &[]);
        }
        stopping.cancel();
    }
}
