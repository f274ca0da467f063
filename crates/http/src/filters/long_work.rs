//! Threads for requests whose work takes long.
//!
//! Every thread of the runtime serves many connections, and one that parses, checks or patches something large for seconds would keep all
//! of them waiting. Such requests are answered on threads of their own, a bounded number at a time, which the system lets run beside
//! those of the runtime. Who waits for one has a place already, so the number of those who wait is bounded too.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How many requests do long work at once, for each thread of the runtime. Some of them wait for the store meanwhile.
const FOR_EACH_THREAD: usize = 2;

/// The threads for long work.
#[derive(Debug)]
pub(super) struct LongWork {
    threads: Arc<Semaphore>,
}

impl LongWork {
    /// As many as fit the runtime.
    pub(super) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * FOR_EACH_THREAD;
        Self { threads: Arc::new(Semaphore::new(threads)) }
    }

    /// Does the work on another thread. It is given up when the result is no longer waited for.
    ///
    /// # Panics
    /// When the work does.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let thread = self.threads.clone().acquire_owned().await.ok();
        let given_up = CancellationToken::new();
        let _give_up = given_up.clone().drop_guard();
        let runtime = Handle::current();
        let working = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            runtime.block_on(given_up.run_until_cancelled_owned(work))
        });
        match working.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(Some(done)) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Nobody waits any more, or the server is being torn down.
            Ok(None) | Err(Err(_)) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn work_keeps_no_thread_of_the_runtime() {
        let long_work = LongWork::new();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel();
        // This runtime has one thread: were it held, nothing could tell the work to end.
        let work = long_work.run(async move {
            begun.send(()).unwrap();
            ends.recv_timeout(Duration::from_secs(30))
        });
        let other = async {
            begins.await.unwrap();
            end.send(()).unwrap();
        };
        assert!(tokio::join!(work, other).0.is_ok());
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_given_up() {
        struct Gone(Option<tokio::sync::oneshot::Sender<()>>);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = self.0.take().map(|gone| gone.send(()));
            }
        }
        let (gone, given_up) = tokio::sync::oneshot::channel();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let work = async move {
                let _gone = Gone(Some(gone));
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            };
            LongWork::new().run(work).await;
        });
        begins.await.unwrap();
        task.abort();
        given_up.await.unwrap();
    }
}
