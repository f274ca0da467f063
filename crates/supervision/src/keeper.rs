//! A task that holds a resource and returns it at the end.
//!
//! A keeper holds the server's identity: writes in flight need the identity after the last request has ended, and the
//! server releases it at the end.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Supervisor;

/// The task, which must not end before its token is cancelled. Dropping the keeper aborts the task and drops the
/// resource.
#[derive(Debug)]
pub struct Keeper<T> {
    task: &'static str,
    stopping: CancellationToken,
    keeping: JoinHandle<Option<T>>,
}

impl<T: Send + 'static> Keeper<T> {
    /// Starts the task, which ends when its token is cancelled.
    pub fn start<W: Future<Output = T> + Send + 'static>(
        supervisor: &Supervisor,
        task: &'static str,
        keep: impl FnOnce(CancellationToken) -> W,
    ) -> Self {
        let stopping = CancellationToken::new();
        let keeping = supervisor.spawn(task, &stopping, keep(stopping.clone()));
        Self { task, stopping, keeping }
    }

    /// Ends the task and returns its resource. `None` after a panic.
    pub async fn end(mut self) -> Option<T> {
        self.stopping.cancel();
        match (&mut self.keeping).await {
            Ok(kept) => kept,
            Err(error) => {
                tracing::error!(task = self.task, %error, "a task failed");
                None
            }
        }
    }
}

impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kept_values_return_at_the_end_but_not_after_a_panic() {
        let supervisor = Supervisor::default();
        let keep = |stopping: CancellationToken| async move {
            stopping.cancelled().await;
            7
        };
        assert_eq!(Keeper::start(&supervisor, "identity", keep).end().await, Some(7));
        assert!(supervisor.tasks().iter().all(|(_, failure)| failure.is_none()));
        let panics = Keeper::<()>::start(&supervisor, "lease", |_| async { panic!("no store") });
        assert_eq!(supervisor.failed().await.task, "lease");
        assert_eq!(panics.end().await, None);
    }
}
