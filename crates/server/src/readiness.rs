//! The moment from which on `/readyz` is 200, for the log and for the caller that started the server.
//!
//! Knows the checks alone, which tell nothing when they change, so it asks them again and again until all pass.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use keelson_controllers::Progress;
use keelson_http::health::HealthChecks;
use tokio::sync::watch;
use tokio::time::Instant;

/// The first pause between two looks at the checks of a server that starts. Each pause is twice as long as the one before, up to
/// the longest.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(8);
/// The time that a start may take before the log names the checks that it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Becomes true when the server is ready for the first time.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Receiver<bool>);

impl Readiness {
    /// Evaluates the checks of `/readyz` for as long as the future runs, and at once when the `bootstrap` has finished: it is
    /// nearly always the last of them.
    pub(crate) fn follow(
        ready: HealthChecks,
        bootstrap: Arc<Progress>,
        server_id: String,
        addr: SocketAddr,
    ) -> (Self, impl Future<Output = ()>) {
        let (reached, reaches) = watch::channel(false);
        let follow = async move {
            let begun = Instant::now();
            let (mut is_late, mut pause) = (false, FIRST_POLL);
            let mut bootstrapped = pin!(bootstrap.finished().fuse());
            loop {
                let failing = ready.failing();
                if failing.is_empty() {
                    break;
                }
                if !is_late && begun.elapsed() >= PATIENCE {
                    is_late = true;
                    tracing::warn!(server_id, ?failing, "the server is not ready yet: these checks of /readyz fail");
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = LONGEST_POLL.min(pause * 2),
                    () = &mut bootstrapped => pause = FIRST_POLL,
                }
            }
            tracing::info!(server_id, %addr, "the server is ready");
            reached.send_replace(true);
        };
        (Self(reaches), follow)
    }

    /// Waits until the server is ready for the first time. Waits for ever where it stops before.
    pub(crate) async fn reached(&self) {
        if self.0.clone().wait_for(|is_ready| *is_ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
