//! The declaration of storage versions: the versions that each API server encodes and decodes (KEP-2339).
//!
//! The servers of a cluster write them for each other, and for storage version migration.

use keelson_meta::names::NameRule;
use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

const GROUP: &str = "internal.apiserver.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16000,
    versions: &[version("v1alpha1", 9)],
    resources: &[cluster(GROUP, "storageversions", "storageversion", "StorageVersion")
        .versions(&[served("v1alpha1").with(&[STATUS]).by_default()])
        .names(NameRule::GroupResource)
        .stored_as(GROUP, "v1alpha1")
        .updated_only_from_a_revision()],
};
