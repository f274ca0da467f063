//! The listener of a server, and what runs beside its requests: stopped in order, or at once.
//!
//! What has to be done between the two, and after both, is for the server.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Supervisor, TaskGroup};

/// A listener that takes requests, and the tasks beside it. Dropping this stops all of it at once.
#[derive(Debug)]
pub struct Serving {
    stopping: CancellationToken,
    background: TaskGroup,
    listener: Option<JoinHandle<Option<()>>>,
}

impl Serving {
    /// Starts to listen. Both the listener and the tasks end once `stopping` is cancelled.
    pub fn start(
        stopping: CancellationToken,
        background: TaskGroup,
        listener: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let listener = Some(background.supervisor().spawn("listener", &stopping, listener));
        Self { stopping, background, listener }
    }

    /// What watches over the tasks.
    pub fn supervisor(&self) -> &Supervisor {
        self.background.supervisor()
    }

    /// Tells everything to stop, and waits until the last request has been answered.
    pub async fn answered(&mut self) {
        self.stopping.cancel();
        if let Some(listener) = self.listener.take()
            && let Err(error) = listener.await
        {
            tracing::error!(%error, "the listener ended badly");
        }
    }

    /// Waits until what runs beside requests has ended too.
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
