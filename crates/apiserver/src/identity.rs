//! The identity of a server: its record in a store that it shares, and its lease at the main server.
//!
//! Both are kept until the last request has ended, and taken away then, so that nobody waits for their end.

use std::sync::Arc;

use keelson_registry::Registry;
use keelson_supervision::Supervisor;
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

impl Identity {
    /// Takes away what the server is known by.
    pub(crate) async fn leave(self) {
        if let Some(lease) = self.lease {
            lease.leave().await;
        }
        if let Some(membership) = self.membership {
            membership.leave().await;
        }
    }

    /// Keeps it until it is no longer needed.
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
