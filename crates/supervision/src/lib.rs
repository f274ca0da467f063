//! Supervision of background tasks: the unexpected end of a task becomes a failure of the server.
//!
//! A server depends on tasks and threads that run as long as it does: the tail that feeds the cache, the writers of
//! stores, the compactor, the identity, the controllers. If one panics or returns early, the others would continue with
//! incomplete work.
//!
//! So this crate starts all of them, each under a name. An early end is a [`Failure`], which is logged, fails `/livez`
//! and ends the process. [`Supervisor::fail`] reports other fatal conditions, such as a store whose disk has failed.
//!
//! The watchdog thread detects and names tasks and requests that block a runtime thread.
//!
//! Tasks of one connection or request are not started here. Their callers use [`outcome`]. This crate does not know the
//! work of tasks, and does not end the process: the server does. A [`RepeatLog`] limits log lines about repeated
//! failures.

mod backoff;
mod group;
mod keeper;
mod repeats;
mod running;
mod serving;
mod threads;
pub mod turns;
mod watchdog;

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

pub use backoff::{Backoff, Jitter, Pace};
pub use group::TaskGroup;
pub use keeper::Keeper;
pub use repeats::{LogLine, MAX_SUBJECTS, REPEAT_INTERVAL, RepeatLog};
pub use running::{Mark, unwatched_thread};
pub use serving::Serving;
pub use threads::{is_one_thread, spawn_blocking, spawn_heavy, use_one_thread};
pub use turns::{Turns, TurnsByOwner};
pub use watchdog::HeldThread;

/// The stack of each thread that runs requests. Readers and writers of objects recurse to the maximum depth of a
/// document, which takes more than the usual 2 MiB in unoptimized builds. Only used pages take memory.
pub const STACK_BYTES: usize = 8 << 20;

/// Returns the result of a task.
///
/// Never returns for a cancelled task, since the server is then being torn down.
///
/// # Panics
/// If the task panicked.
pub async fn outcome<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => std::future::pending().await,
    }
}

/// A failure that ends the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fatal: {task} {reason}; the server can't go on without it")]
pub struct Failure {
    /// The name of the task.
    pub task: &'static str,
    /// The rest of a sentence that begins with the task's name.
    pub reason: String,
}

/// Supervises the background tasks of one server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<State>);

#[derive(Debug)]
struct State {
    /// Distinguishes its marks from those of other supervisors in the process.
    number: u64,
    /// The distinct names of all started tasks, in order of start.
    tasks: Mutex<Vec<&'static str>>,
    /// The failures in order. Each task fails at most once.
    failures: watch::Sender<Vec<Failure>>,
    /// The task that a test makes panic.
    killed: OnceLock<&'static str>,
    /// The task that a test makes block its thread, with the duration.
    stalled: Mutex<Option<(&'static str, Duration)>>,
    /// True while `stalled` is set. Each poll of a task reads only this flag.
    is_stalled: AtomicBool,
    /// The blocked threads found by the watchdog.
    held: Mutex<Vec<HeldThread>>,
    holds: AtomicU64,
}

impl Default for State {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            tasks: Mutex::default(),
            failures: watch::Sender::default(),
            killed: OnceLock::new(),
            stalled: Mutex::default(),
            is_stalled: AtomicBool::new(false),
            held: Mutex::default(),
            holds: AtomicU64::new(0),
        }
    }
}

impl Supervisor {
    /// Reports a fatal failure of `task`. `reason` is the rest of a sentence that begins with the task's name.
    ///
    /// Returns at once. The server waits in [`failed`](Self::failed) and shuts down. Until then the caller must refuse
    /// its work.
    pub fn fail(&self, task: &'static str, reason: impl Into<String>) {
        self.note(task);
        let failure = Failure { task, reason: reason.into() };
        let is_new = self.0.failures.send_if_modified(|failures| {
            let is_new = failures.iter().all(|known| known.task != task);
            if is_new {
                failures.push(failure.clone());
            }
            is_new
        });
        if is_new {
            tracing::error!(task, "{failure}");
        }
    }

    /// Makes a task panic at its next poll, for tests. Only the first call has an effect.
    pub fn kill(&self, task: &'static str) {
        let _first = self.0.killed.set(task);
    }

    /// Makes a task block its thread at its next poll, for tests of the watchdog.
    pub fn stall(&self, task: &'static str, held: Duration) {
        *self.0.stalled.lock() = Some((task, held));
        self.0.is_stalled.store(true, Ordering::Relaxed);
    }

    /// Returns the mark for polling work of this name. The watchdog reports blocked work by it.
    pub fn mark(&self, name: &'static str) -> Mark {
        Mark::new(self.0.number, name)
    }

    /// Waits for the first failure.
    pub async fn failed(&self) -> Failure {
        let mut failures = self.0.failures.subscribe();
        loop {
            if let Some(first) = failures.borrow_and_update().first() {
                return first.clone();
            }
            if failures.changed().await.is_err() {
                // The sender lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// All started tasks with their failures, in order of start.
    pub fn tasks(&self) -> Vec<(&'static str, Option<Failure>)> {
        let failures = self.0.failures.borrow().clone();
        let names = self.0.tasks.lock().clone();
        names.into_iter().map(|name| (name, failures.iter().find(|failure| failure.task == name).cloned())).collect()
    }

    /// The failure of a task. `None` if it is running, was never started, or ended in order.
    pub fn failure_of(&self, task: &str) -> Option<Failure> {
        self.0.failures.borrow().iter().find(|failure| failure.task == task).cloned()
    }

    /// Supervises a future that must not end before `stopping` is cancelled. Returns `None` after a panic.
    ///
    /// A future that is dropped before its end, for example by an abort, counts as a normal end.
    pub fn watch<W: Future>(
        &self,
        task: &'static str,
        stopping: &CancellationToken,
        work: W,
    ) -> impl Future<Output = Option<W::Output>> + use<W> {
        let (supervisor, stopping) = (self.clone(), stopping.clone());
        let work = self.watch_finite(task, work);
        async move {
            let done = work.await;
            if done.is_some() && !stopping.is_cancelled() {
                supervisor.fail(task, ENDED);
            }
            done
        }
    }

    /// Supervises a future that may end when its work is done. Returns `None` after a panic.
    pub fn watch_finite<W: Future>(
        &self,
        task: &'static str,
        work: W,
    ) -> impl Future<Output = Option<W::Output>> + use<W> {
        self.note(task);
        let (supervisor, mark) = (self.clone(), self.mark(task));
        async move {
            let mut work = pin!(work);
            let work = poll_fn(|context| {
                mark.poll(|| {
                    assert!(supervisor.0.killed.get() != Some(&task), "configured to panic at its next turn");
                    if supervisor.0.is_stalled.load(Ordering::Relaxed) {
                        supervisor.hold_thread_of(task);
                    }
                    work.as_mut().poll(context)
                })
            });
            // The server ends after a panic, so no code uses the state that it left.
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(done) => Some(done),
                Err(panic) => {
                    supervisor.fail(task, panicked(&*panic));
                    None
                }
            }
        }
    }

    /// Starts a task that must not end before `stopping` is cancelled.
    ///
    /// This function and [`TaskGroup`] box the future, so that the runtime's code is compiled once and not for each
    /// task.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: &'static str,
        stopping: &CancellationToken,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        tokio::spawn(self.watch(task, stopping, work.boxed()))
    }

    /// Starts a task that may end when its work is done.
    pub fn spawn_finite<T: Send + 'static>(
        &self,
        task: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        tokio::spawn(self.watch_finite(task, work.boxed()))
    }

    /// Starts a thread with the task's name that must not end before `stopping` is cancelled.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn spawn_thread(
        &self,
        task: &'static str,
        stopping: &CancellationToken,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<thread::JoinHandle<()>> {
        self.note(task);
        let (supervisor, stopping) = (self.clone(), stopping.clone());
        thread::Builder::new().name(task.to_owned()).spawn(move || {
            match std::panic::catch_unwind(AssertUnwindSafe(work)) {
                Ok(()) if stopping.is_cancelled() => {}
                Ok(()) => supervisor.fail(task, ENDED),
                Err(panic) => supervisor.fail(task, panicked(&*panic)),
            }
        })
    }

    /// Blocks the thread if a test requested it for this task.
    fn hold_thread_of(&self, task: &'static str) {
        let asked = self.0.stalled.lock().take_if(|(stalled, _)| *stalled == task);
        if let Some((_, held)) = asked {
            self.0.is_stalled.store(false, Ordering::Relaxed);
            thread::sleep(held);
        }
    }

    fn note(&self, task: &'static str) {
        let mut tasks = self.0.tasks.lock();
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
}

const ENDED: &str = "has ended unexpectedly";

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("has panicked: {}", text.unwrap_or("it left no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the failure of a task with this work.
    async fn check(work: impl Future<Output = ()> + Send + 'static, expect: &str) {
        let supervisor = Supervisor::default();
        let running = supervisor.spawn("sleeper", &CancellationToken::new(), std::future::pending::<()>());
        supervisor.spawn("compactor", &CancellationToken::new(), work);
        assert_eq!(supervisor.failed().await.to_string(), expect);
        let failed: Vec<_> = supervisor.tasks().into_iter().map(|(name, failure)| (name, failure.is_some())).collect();
        assert_eq!(failed, [("sleeper", false), ("compactor", true)]);
        running.abort();
    }

    #[tokio::test]
    async fn a_task_that_dies_is_reported_by_name() {
        check(
            async { panic!("no {}", "disk") },
            "fatal: compactor has panicked: no disk; the server can't go on without it",
        )
        .await;
        check(async {}, "fatal: compactor has ended unexpectedly; the server can't go on without it").await;
    }

    #[tokio::test]
    async fn a_stopped_or_aborted_task_has_not_failed() {
        let (supervisor, stopping) = (Supervisor::default(), CancellationToken::new());
        let told = supervisor.spawn("told", &stopping, stopping.clone().cancelled_owned());
        let aborted = supervisor.spawn("aborted", &stopping, std::future::pending::<()>());
        let finite = supervisor.watch_finite("finite", async { 7 });
        aborted.abort();
        assert!(aborted.await.is_err());
        stopping.cancel();
        assert_eq!(told.await.unwrap(), Some(()));
        assert_eq!(finite.await, Some(7));
        assert!(supervisor.tasks().into_iter().all(|(_, failure)| failure.is_none()));
    }

    #[tokio::test]
    async fn a_task_can_be_made_to_panic() {
        let (supervisor, stopping) = (Supervisor::default(), CancellationToken::new());
        let (news, mut told) = tokio::sync::mpsc::channel(1);
        supervisor.spawn("idle", &stopping, std::future::pending::<()>());
        supervisor.spawn("busy", &stopping, async move { while told.recv().await.is_some() {} });
        supervisor.kill("busy");
        news.send(()).await.unwrap();
        assert_eq!(
            supervisor.failed().await.to_string(),
            "fatal: busy has panicked: configured to panic at its next turn; the server can't go on without it"
        );
        assert!(news.send(()).await.is_err(), "what it held is gone");
    }

    #[tokio::test]
    async fn a_thread_is_watched_as_a_task_is() {
        let (supervisor, stopping) = (Supervisor::default(), CancellationToken::new());
        supervisor.spawn_thread("writer", &stopping, || panic!("the page is gone")).unwrap().join().unwrap();
        assert_eq!(supervisor.failed().await.reason, "has panicked: the page is gone");
        supervisor.spawn_thread("reader", &stopping, || {}).unwrap().join().unwrap();
        stopping.cancel();
        supervisor.spawn_thread("checkpoint", &stopping, || {}).unwrap().join().unwrap();
        let failed: Vec<_> = supervisor.tasks().into_iter().map(|(name, failure)| (name, failure.is_some())).collect();
        assert_eq!(failed, [("writer", true), ("reader", true), ("checkpoint", false)]);
    }

    #[tokio::test]
    async fn the_first_failure_is_reported() {
        let supervisor = Supervisor::default();
        supervisor.fail("store-writer", "can't sync its file");
        supervisor.fail("cache-tail", "has nothing to follow");
        supervisor.fail("store-writer", "still can't");
        assert_eq!(supervisor.failed().await.task, "store-writer");
        assert_eq!(supervisor.tasks().len(), 2);
    }
}
