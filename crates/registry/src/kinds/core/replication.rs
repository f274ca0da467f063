//! Replication controllers: the pods of one stay when it is deleted by somebody who says nothing of them.
//!
//! So it was before there was garbage collection.

use crate::kinds::strategy::Strategy;

/// The strategy of replication controllers.
pub(super) struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn orphans_by_default(&self) -> bool {
        true
    }
}
