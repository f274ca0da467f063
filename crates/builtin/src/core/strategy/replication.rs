//! Replication controllers: their pods stay when one is deleted without a propagation policy.
//!
//! Older clients rely on this, from the time before garbage collection.

use keelson_registry::strategy::DeleteStrategy;

/// The strategy of replication controllers.
pub(super) struct ReplicationControllers;

impl DeleteStrategy for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }
}
