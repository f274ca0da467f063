//! Replication controllers: the pods of one stay when it is deleted by somebody who says nothing of them.
//!
//! So it was before there was garbage collection.

use keelson_registry::strategy::DeleteStrategy;

/// The strategy of replication controllers.
pub(super) struct ReplicationControllers;

impl DeleteStrategy for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }
}
