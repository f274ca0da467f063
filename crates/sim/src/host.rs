//! A machine of a simulation: a runtime of its own with paused time, which runs only when it has its turn.
//!
//! A dropped runtime is a killed process, since all tasks end wherever they are. A machine without turns is a paused
//! process, whose time jumps when it continues.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keelson_server::{Config, Server};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine;

/// A runtime that is run in turns.
pub(crate) struct Machine {
    runtime: Runtime,
    /// The time of its start, since that of the simulation.
    born: Duration,
    /// The time to which it has run.
    ran: Duration,
    start: Instant,
    /// The shift of its wall clock, in seconds.
    pub(crate) shift: i64,
}

impl Machine {
    pub(crate) fn new(now: Duration) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.context("making a runtime")?;
        let start = runtime.block_on(async { Instant::now() });
        Ok(Self { runtime, born: now, ran: now, start, shift: 0 })
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Runs all that is to run up to a time.
    pub(crate) fn run_to(&mut self, now: Duration, step: Duration) {
        machine::set(self.ran, self.shift);
        let missed = now.saturating_sub(step).saturating_sub(self.ran);
        let end = self.start + (now - self.born);
        self.runtime.block_on(async {
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            tokio::time::sleep_until(end).await;
        });
        self.ran = now;
    }

    /// Kills everything that runs.
    pub(crate) fn kill(self) {
        machine::set(self.ran, self.shift);
        drop(self.runtime);
    }
}

/// The state of a server's process, as its machine sees it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub(crate) is_ready: bool,
    /// The reason for which the process has ended.
    pub(crate) ended: Option<String>,
    /// The failure of an essential task.
    pub(crate) failed: Option<String>,
}

/// Runs a server until it is stopped, or ends by itself.
pub(crate) async fn serve(config: Config, standing: Arc<Mutex<Standing>>, stop: CancellationToken) {
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => {
            standing.lock().ended = Some(format!("it did not start: {error:#}"));
            return;
        }
    };
    let ready = async {
        server.ready().await;
        standing.lock().is_ready = true;
        std::future::pending::<()>().await;
    };
    let (ended, failed) = tokio::select! {
        () = stop.cancelled() => ("it was stopped".to_owned(), None),
        advice = server.replaced() => (advice, None),
        failure = server.failed() => (failure.to_string(), Some(failure.to_string())),
        () = ready => return,
    };
    server.shutdown().await;
    let mut standing = standing.lock();
    standing.is_ready = false;
    (standing.ended, standing.failed) = (Some(ended), failed);
}
