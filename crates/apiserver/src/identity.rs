//! The identity of a server: its record in a store that it shares, and its lease at the main server.
//!
//! Both are kept until the last request has ended, and taken away then, so that nobody waits for their end.

use std::sync::Arc;

use keelson_registry::Registry;
use keelson_supervision::Supervisor;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::main_lease::MainLease;
use crate::membership::Membership;

/// What this server is known by, as far as somebody asks.
pub(crate) struct Identity {
    /// Its record, where others write to the store.
    pub(crate) membership: Option<Membership>,
    /// Its lease, where it publishes anything.
    pub(crate) lease: Option<MainLease>,
}

/// The task that keeps it. Dropping this ends it at once, and leaves both behind.
pub(crate) struct IdentityTask {
    stopping: CancellationToken,
    keeper: JoinHandle<Option<Identity>>,
}

impl IdentityTask {
    pub(crate) fn start(identity: Identity, registry: Arc<Registry>, supervisor: &Supervisor) -> Self {
        let stopping = CancellationToken::new();
        let keeper =
            supervisor.spawn("identity", &stopping, identity.keep(registry, supervisor.clone(), stopping.clone()));
        Self { stopping, keeper }
    }

    /// Takes away what the server is known by.
    pub(crate) async fn end(mut self) {
        self.stopping.cancel();
        // What has panicked ends by itself.
        let Ok(Some(Identity { membership, lease })) = (&mut self.keeper).await else { return };
        if let Some(lease) = lease {
            lease.leave().await;
        }
        if let Some(membership) = membership {
            membership.leave().await;
        }
    }
}

impl Drop for IdentityTask {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Identity {
    async fn keep(self, registry: Arc<Registry>, supervisor: Supervisor, stopping: CancellationToken) -> Self {
        let membership = async {
            match self.membership {
                Some(membership) => Some(membership.run(registry, supervisor, stopping.clone()).await),
                None => None,
            }
        };
        let lease = async {
            match self.lease {
                Some(lease) => Some(lease.run(stopping.clone()).await),
                None => None,
            }
        };
        let (membership, lease) = tokio::join!(membership, lease);
        stopping.cancelled().await;
        Self { membership, lease }
    }
}
