//! The identity of a server: its record in a shared store, and its lease at the main server.
//!
//! Record and lease are kept until the last request has ended, and then deleted, so that no other server waits for
//! their expiry.

use std::sync::Arc;

use keelson_registry::Registry;
use keelson_supervision::Supervisor;
use tokio_util::sync::CancellationToken;

use crate::main_lease::MainLease;
use crate::membership::Membership;

/// The registrations of this server.
pub(crate) struct Identity {
    /// The record, in a store with several servers.
    pub(crate) membership: Option<Membership>,
    /// The lease, if the server publishes anything.
    pub(crate) lease: Option<MainLease>,
}

impl Identity {
    /// Deletes the registrations.
    pub(crate) async fn leave(self) {
        if let Some(lease) = self.lease {
            lease.leave().await;
        }
        if let Some(membership) = self.membership {
            membership.leave().await;
        }
    }

    /// Keeps the registrations until they are no longer needed.
    pub(crate) async fn keep(
        self,
        registry: Arc<Registry>,
        supervisor: Supervisor,
        stopping: CancellationToken,
    ) -> Self {
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
