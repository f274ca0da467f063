//! A running server: its handle for the caller, and its shutdown.
//!
//! A running server reports that it was replaced or has failed, and the caller ends the process. A shutdown closes the
//! components in reverse order of their creation.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_access::pki::Pki;
use keelson_controllers::IdentityLease;
use keelson_http::shutdown::Shutdown;
use keelson_outbound::Outbound;
use keelson_registry::Registry;
use keelson_storage::{Fence, Store};
use keelson_supervision::{Failure, Keeper, Serving, Supervisor};

use super::url;
use crate::audit::RunningAudit;
use crate::controllers::Starting;
use crate::data_directory::OwnDirectory;
use crate::fork::ForkOrigin;
use crate::readiness::Readiness;

/// The interval at which a shutdown checks whether the store is released.
const CLOSE_POLL: Duration = Duration::from_millis(1);
/// The longest wait for that. Connections are closed by then, so only aborted tasks still hold the store.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A server that answers requests until it is shut down. Dropping it stops it at once.
pub struct RunningServer {
    pub(super) addr: SocketAddr,
    /// The origin of forks, if the store is in memory.
    pub(super) origin: Option<ForkOrigin>,
    pub(super) server_id: String,
    pub(super) pki: Pki,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) registry: Arc<Registry>,
    pub(super) outbound: Arc<Outbound>,
    pub(super) starting: Starting,
    pub(super) readiness: Readiness,
    pub(super) store: Arc<dyn Store>,
    pub(super) fence: Arc<Fence>,
    /// True if other servers use the store too, so that this server must not close it.
    pub(super) shared: bool,
    pub(super) audit: RunningAudit,
    pub(super) shutdown: Shutdown,
    /// The longest time until the headers of a response.
    pub(super) request_timeout: Duration,
    pub(super) serving: Serving,
    /// The lease of this server's identity. It outlives the listener, since writes in flight need it.
    pub(super) identity: Option<Keeper<IdentityLease>>,
    /// The lock of the data directory. It outlives all users of the directory.
    pub(super) _directory: OwnDirectory,
}

impl RunningServer {
    /// The address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL for a client on this host.
    pub fn url(&self) -> String {
        url(self.addr)
    }

    /// The name of this server among those on the store.
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    /// The administrator's kubeconfig file, if there is a data directory.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// The certificates and keys of this server.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The origin of forks of this server. `None` if its store is not in memory.
    pub const fn fork_origin(&self) -> Option<&ForkOrigin> {
        self.origin.as_ref()
    }

    /// The verbs, for callers in the same process.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The outgoing calls of this server.
    pub fn outbound(&self) -> &Arc<Outbound> {
        &self.outbound
    }

    /// Waits until the default objects of every cluster exist. The server answers requests earlier. `/readyz` fails
    /// until then.
    pub async fn bootstrapped(&self) {
        self.starting.bootstrap.finished().await;
    }

    /// Waits until `/readyz` is 200 for the first time.
    pub async fn ready(&self) {
        self.readiness.reached().await;
    }

    /// Waits until another process has started with this server's name. Returns the advice for the operator. This
    /// server can write nothing then, and must be shut down.
    pub async fn replaced(&self) -> String {
        self.fence.closed().await
    }

    /// The supervisor of background tasks.
    pub fn supervisor(&self) -> &Supervisor {
        self.serving.supervisor()
    }

    /// Waits until an essential component, such as a background task, has died, and returns its failure. The server is
    /// no longer live then, and must be shut down.
    pub async fn failed(&self) -> Failure {
        self.serving.supervisor().failed().await
    }

    /// Runs the phases of [`Config::shutdown`](crate::Config::shutdown) before the server is shut down. `/readyz` fails
    /// from the first poll on.
    pub async fn drain(&self) {
        self.shutdown.drain(self.request_timeout).await;
    }

    /// Shuts the server down: it accepts no new requests, completes lists in flight, and ends watches cleanly.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.stop())
    }

    async fn stop(mut self) {
        tracing::info!(server_id = self.server_id, "stopping: requests in flight end, watches are closed");
        self.serving.answered().await;
        self.audit.answered.cancel();
        self.serving.ended().await;
        // A task that panicked has ended.
        if let Some(identity) = self.identity.take()
            && let Some(lease) = identity.end().await
        {
            lease.release().await;
        }
        let own = (!self.shared).then(|| self.store.clone());
        drop(self);
        if let Some(store) = own {
            close(store).await;
        }
    }
}

/// Waits until the store is released, and closes it. Another server can open its directory only after that.
async fn close(store: Arc<dyn Store>) {
    let alone = async {
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(CLOSE_POLL).await;
        }
    };
    if tokio::time::timeout(CLOSE_PATIENCE, alone).await.is_err() {
        tracing::warn!("the store is still in use at the end of the shutdown");
    }
}
