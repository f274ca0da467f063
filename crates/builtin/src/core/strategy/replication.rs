//! Strategy of replication controllers: deleting one without a propagation policy orphans its pods.
//!
//! Older clients, from before garbage collection, rely on this.

use keelson_registry::strategy::DeleteStrategy;

/// The strategy of replication controllers.
pub(super) struct ReplicationControllers;

impl DeleteStrategy for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }
}
