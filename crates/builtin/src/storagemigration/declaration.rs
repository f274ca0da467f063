//! The declaration of storage version migrations.
//!
//! A migration names a resource. The migrating controller reports in its status.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "storagemigration.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 15800,
    versions: &[version("v1", 15), version("v1beta1", 9)],
    resources: &[cluster(GROUP, "storageversionmigrations", "storageversionmigration", "StorageVersionMigration")
        .versions(&[served("v1").with(&[STATUS]).since(37), served("v1beta1").with(&[STATUS]).by_default()])
        .stored_as(GROUP, "v1beta1")
        .updated_only_from_a_revision()],
};

pub(crate) const DEPRECATIONS: &[Deprecation] =
    &[goes("v1beta1", &["StorageVersionMigration"], 37).instead("storagemigration.k8s.io/v1 StorageVersionMigration")];
