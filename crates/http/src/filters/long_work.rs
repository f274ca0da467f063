//! Threads for long requests.
//!
//! Every thread of the runtime serves many connections. A request that parses, validates or patches a large object for
//! seconds would block all of them. It therefore runs on a second runtime with its own threads. A request that waits
//! for its body, the store or a webhook occupies no thread.
//!
//! The seats of flow control limit the number of such requests. The requests of one user, with their tasks, use at most
//! half of the threads, and those of a second user fewer, so that no two users have all. Administrators, nodes and
//! controllers have separate threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use keelson_supervision::{STACK_BYTES, TurnsByOwner, is_one_thread, outcome, unwatched_thread};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::metrics::{MetricKind, Sample};
use crate::shares::{Holder, Level};

/// The number of concurrent long requests, for each processor.
const FOR_EACH_PROCESSOR: usize = 2;
/// The minimum number of concurrent long requests. Three users are necessary to occupy all of them.
const LEAST: usize = 4;
/// The requests of one user may use at most one in this many of these threads.
const USER_PART: usize = 2;

/// The threads for long requests, started by the first one.
#[derive(Debug)]
pub(super) struct LongWork {
    threads: OnceLock<Option<Runtime>>,
    /// The threads of administrators, nodes and controllers.
    of_cluster: OnceLock<Option<Runtime>>,
    count: usize,
    turns: TurnsByOwner,
    turns_of_cluster: TurnsByOwner,
    /// The number of long requests begun.
    begun: Arc<AtomicU64>,
}

impl LongWork {
    /// Sizes the thread pools by the number of processors.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (processors * FOR_EACH_PROCESSOR).max(LEAST);
        let [turns, turns_of_cluster] = [(); 2].map(|()| TurnsByOwner::shared(count, count / USER_PART));
        let (threads, of_cluster) = (OnceLock::new(), OnceLock::new());
        Self { threads, of_cluster, count, turns, turns_of_cluster, begun: Arc::default() }
    }

    /// The metrics of these threads.
    pub(super) fn source(&self) -> impl Fn() -> Vec<Sample> + Send + Sync + 'static {
        let begun = self.begun.clone();
        move || {
            vec![Sample {
                name: "keelson_long_work_requests_total",
                help: "Requests answered by the threads for long work",
                kind: MetricKind::Counter,
                labels: Vec::new(),
                value: begun.load(Ordering::Relaxed) as f64,
            }]
        }
    }

    /// Runs the work of a user's request on another thread. Dropping the future cancels the work.
    ///
    /// # Panics
    /// When the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        holder: Holder,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let Some(threads) = self.threads(holder.level) else { return work.await };
        let begun = self.begun.clone();
        let turns = if holder.level.is_of_cluster() { &self.turns_of_cluster } else { &self.turns };
        let work = turns.turns(holder.flow).take(work);
        let counted = async move {
            begun.fetch_add(1, Ordering::Relaxed);
            work.await
        };
        outcome(AbortOnDropHandle::new(threads.spawn(counted))).await
    }

    /// `None` if the system cannot start threads, or the process uses one. The work then runs on the main runtime.
    fn threads(&self, level: Level) -> Option<Handle> {
        if is_one_thread() {
            return None;
        }
        let threads = if level.is_of_cluster() { &self.of_cluster } else { &self.threads };
        let made = threads.get_or_init(|| {
            let runtime = Builder::new_multi_thread()
                .worker_threads(self.count)
                .thread_name("long-work")
                .thread_stack_size(STACK_BYTES)
                // The watchdog ignores these threads, since their work may take long.
                .on_thread_start(unwatched_thread)
                .enable_all()
                .build();
            runtime
                .inspect_err(
                    |error| tracing::error!(%error, "large requests will keep others waiting: no threads for them"),
                )
                .ok()
        });
        made.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for LongWork {
    fn drop(&mut self) {
        // No request waits any more. A runtime must not be shut down blockingly inside another one.
        for runtime in [self.threads.take(), self.of_cluster.take()].into_iter().flatten().flatten() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use tokio::task::JoinHandle;

    const ANN: Holder = Holder { flow: 1, level: Level::Users };
    const BOB: Holder = Holder { flow: 2, level: Level::Users };
    const EVE: Holder = Holder { flow: 3, level: Level::Users };

    #[tokio::test]
    async fn work_keeps_no_thread_of_the_runtime() {
        let long_work = LongWork::new();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel();
        // The test runtime has one thread. If the work blocked it, no other task could end the work.
        let work = long_work.run(ANN, async move {
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
    async fn abandoned_work_is_cancelled() {
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
            LongWork::new().run(ANN, work).await;
        });
        begins.await.unwrap();
        task.abort();
        given_up.await.unwrap();
    }

    #[tokio::test]
    async fn waiting_requests_delay_no_others() {
        let long_work = LongWork::new();
        let mut waiting: Vec<_> =
            (0..4 * long_work.count).map(|_| Box::pin(long_work.run(ANN, std::future::pending::<()>()))).collect();
        for waits in &mut waiting {
            assert!(futures::poll!(waits).is_pending());
        }
        assert_eq!(long_work.run(ANN, async { 7 }).await, 7);
    }

    /// Occupies as many threads as one user may have, until `rest` is stopped.
    fn hold_threads(
        long_work: &Arc<LongWork>,
        holder: Holder,
        stop: &Arc<AtomicBool>,
        begins: usize,
    ) -> Vec<JoinHandle<()>> {
        let (begun, begin) = std::sync::mpsc::channel();
        let holding = (0..2 * long_work.count).map(|_| {
            let (long_work, begun, stop) = (long_work.clone(), begun.clone(), stop.clone());
            tokio::spawn(async move {
                let hold = async move {
                    let _ = begun.send(());
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                };
                long_work.run(holder, hold).await;
            })
        });
        let holding = holding.collect();
        for _ in 0..begins {
            begin.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        holding
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_users_with_work_for_all_threads_leave_some_to_others() {
        let long_work = Arc::new(LongWork::new());
        let stop = Arc::new(AtomicBool::new(false));
        let mut holding = hold_threads(&long_work, ANN, &stop, long_work.count / USER_PART);
        holding.extend(hold_threads(&long_work, BOB, &stop, 1));
        assert_eq!(long_work.run(EVE, async { 7 }).await, 7);
        stop.store(true, Ordering::Relaxed);
        for held in holding {
            held.await.unwrap();
        }
    }
}
