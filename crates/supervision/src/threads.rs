//! The threads of blocking work.
//!
//! A server runs blocking work on the runtime's blocking threads. A simulation needs one thread for everything, because
//! the order of threads is never the same twice. It calls [`use_one_thread`] before its first server, and blocking work
//! then is an ordinary task. `cargo xtask tidy` refuses other ways to blocking threads in the crates of a server.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

/// True if the process uses one thread.
static ONE_THREAD: AtomicBool = AtomicBool::new(false);

/// Lets this process start no further threads for the work of servers, from now on. For simulations: work that takes
/// long then blocks everything else.
pub fn use_one_thread() {
    ONE_THREAD.store(true, Ordering::Relaxed);
}

/// Returns true after [`use_one_thread`]. Cost: a relaxed read.
pub fn is_one_thread() -> bool {
    ONE_THREAD.load(Ordering::Relaxed)
}

/// Runs work on a blocking thread of the current runtime. In a process of one thread it is a task.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if is_one_thread() { tokio::spawn(async move { work() }) } else { tokio::task::spawn_blocking(work) }
}

/// Runs a future whose polls take long on a blocking thread of the current runtime. In a process of one thread it is a
/// task.
pub fn spawn_heavy<F: Future<Output: Send> + Send + 'static>(work: F) -> JoinHandle<F::Output> {
    if is_one_thread() {
        return tokio::spawn(work);
    }
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work))
}
