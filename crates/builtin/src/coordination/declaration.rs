//! The declarations of leases, with which processes elect a leader, and of lease candidates.
//!
//! Leases are written often, each by one holder, so they have no status and no generation.

use keelson_resources::declare::{GroupDeclaration, namespaced, served, version};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "coordination.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16500,
    versions: &[version("v1", 15), version("v1beta1", 13), version("v1alpha2", 12)],
    resources: &[
        namespaced(GROUP, "leasecandidates", "leasecandidate", "LeaseCandidate")
            .versions(&[served("v1beta1"), served("v1alpha2")])
            .stored_as(GROUP, "v1beta1")
            .updated_only_from_a_revision(),
        namespaced(GROUP, "leases", "lease", "Lease").created_by_update().updated_only_from_a_revision(),
    ],
};

pub(crate) const DEPRECATIONS: &[Deprecation] =
    &[goes("v1beta1", &["LeaseCandidate"], 36), goes("v1alpha2", &["LeaseCandidate"], 35)];
