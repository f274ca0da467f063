//! The listener of a server and its background tasks, stopped in two phases or at once.
//!
//! Between the phases and after them, the server does its own shutdown work.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Supervisor, TaskGroup};

/// A listener for requests, and the background tasks. Dropping it stops both at once.
#[derive(Debug)]
pub struct Serving {
    stopping: CancellationToken,
    background: TaskGroup,
    listener: Option<JoinHandle<Option<()>>>,
}

impl Serving {
    /// Starts to listen. Listener and tasks end once `stopping` is cancelled.
    pub fn start(
        stopping: CancellationToken,
        background: TaskGroup,
        listener: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let listener = Some(background.supervisor().spawn("listener", &stopping, listener));
        Self { stopping, background, listener }
    }

    /// The supervisor of the tasks.
    pub fn supervisor(&self) -> &Supervisor {
        self.background.supervisor()
    }

    /// Stops the listener and waits until the last request has its response.
    pub async fn answered(&mut self) {
        self.stopping.cancel();
        if let Some(listener) = self.listener.take()
            && let Err(error) = listener.await
        {
            tracing::error!(%error, "the listener failed");
        }
    }

    /// Waits until the background tasks have ended.
    pub async fn ended(&self) {
        self.background.ended().await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}
