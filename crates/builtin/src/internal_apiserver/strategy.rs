//! Strategy of storage versions, in which servers publish the versions that they store.
//!
//! A server writes them before it has published a version of its own.

use keelson_registry::strategy::{
    CreateStrategy, FieldPath, Strategies, UpdateStrategy, WriteStrategy, metadata_of_status,
};
use keelson_registry::{Caller, Target};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "storageversions" => {
            &const { Strategies::ORDINARY.write(&StorageVersions).create(&StorageVersions).update(&StorageVersions) }
        }
        _ => &Strategies::ORDINARY,
    }
}

/// The strategy of storage versions.
pub(super) struct StorageVersions;

impl WriteStrategy for StorageVersions {
    fn precedes_publication(&self, _target: &Target) -> bool {
        true
    }
}

impl CreateStrategy for StorageVersions {
    /// The status is kept on create, so that the first server to publish needs only one write.
    fn keeps_status_on_create(&self, creator: &Caller) -> bool {
        creator.is_server()
    }
}

impl UpdateStrategy for StorageVersions {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}
