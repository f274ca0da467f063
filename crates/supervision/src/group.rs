//! Tasks that are started and awaited together.
//!
//! A server has one group for tasks that run while it serves, and one for controllers that run while it leads.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Supervisor;

/// Supervised tasks with a common cancellation token.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    supervisor: Supervisor,
    stopping: CancellationToken,
    running: TaskTracker,
}

impl TaskGroup {
    /// An empty group, whose tasks may end once `stopping` is cancelled.
    pub fn new(supervisor: &Supervisor, stopping: &CancellationToken) -> Self {
        Self { supervisor: supervisor.clone(), stopping: stopping.clone(), running: TaskTracker::new() }
    }

    /// The token that ends the tasks.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// The supervisor of the tasks.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Starts a task that must not end before the group stops.
    pub fn spawn(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(task, work.boxed());
    }

    /// Starts a task that may end when its work is done.
    pub fn spawn_finite(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed_finite(task, work.boxed());
    }

    /// Waits until all tasks have ended, including those started meanwhile.
    pub async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    fn spawn_boxed(&self, task: &'static str, work: BoxFuture<'static, ()>) {
        self.running.spawn(self.supervisor.watch(task, &self.stopping, work));
    }

    fn spawn_boxed_finite(&self, task: &'static str, work: BoxFuture<'static, ()>) {
        self.running.spawn(self.supervisor.watch_finite(task, work));
    }
}
