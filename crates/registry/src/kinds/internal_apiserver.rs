//! Storage versions: what servers publish of the versions that they store.
//!
//! They are written before a server has published anything, by the server itself.

use super::strategy::{FieldPath, Strategy, metadata_of_status};
use crate::caller::Caller;
use crate::target::Target;

/// The strategy of storage versions.
pub(super) struct StorageVersions;

impl Strategy for StorageVersions {
    /// A server that is the first to publish writes once.
    fn keeps_status_on_create(&self, creator: &Caller) -> bool {
        creator.is_server()
    }

    fn precedes_publication(&self, _target: &Target) -> bool {
        true
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}
