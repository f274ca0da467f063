//! Tasks that are started and waited for together.
//!
//! A server has one group for what runs as long as it serves, and one for the controllers that run as long as it leads.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Supervisor;

/// Watched tasks that end after the same token is cancelled.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    supervisor: Supervisor,
    stopping: CancellationToken,
    running: TaskTracker,
}

impl TaskGroup {
    /// A group without tasks, all of which may end once `stopping` is cancelled.
    pub fn new(supervisor: &Supervisor, stopping: &CancellationToken) -> Self {
        Self { supervisor: supervisor.clone(), stopping: stopping.clone(), running: TaskTracker::new() }
    }

    /// Cancelled when the tasks are to end.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// What watches over the tasks.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Starts a task that must not end before the group is to stop.
    pub fn spawn(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(task, work.boxed());
    }

    /// Starts a task that may end when its work is done.
    pub fn spawn_finite(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed_finite(task, work.boxed());
    }

    /// Waits until all tasks have ended, those included that are started meanwhile.
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
