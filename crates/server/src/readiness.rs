//! Reports when `/readyz` first returns 200, to the log and to the caller that started the server.
//!
//! Checks send no notifications when they change, so this module polls them until all pass.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use keelson_controllers::Progress;
use keelson_http::health::HealthChecks;
use tokio::sync::watch;
use tokio::time::Instant;

/// The first pause between two polls of the checks during a start. Each pause is twice as long as the one before, up to
/// the maximum.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(8);
/// If a start takes longer than this, the log names the failing checks.
const PATIENCE: Duration = Duration::from_secs(30);

/// Becomes true when the server is ready for the first time.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Receiver<bool>);

impl Readiness {
    /// Polls the checks of `/readyz` while the future runs, and at once after the `bootstrap`, which is nearly always
    /// the last to pass.
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

    /// Waits until the server is ready for the first time. Never returns if the server stops before that.
    pub(crate) async fn reached(&self) {
        if self.0.clone().wait_for(|is_ready| *is_ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
