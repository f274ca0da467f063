//! The declarations of evictions and of requests for them.
//!
//! A request names a pod. Controllers create the eviction and report in its status.

use keelson_resources::declare::{GroupDeclaration, STATUS, VersionDeclaration, namespaced, served, version};

const GROUP: &str = "lifecycle.k8s.io";
const VERSIONS: &[VersionDeclaration] = &[served("v1alpha1").with(&[STATUS]).since(37)];

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 15700,
    versions: &[version("v1alpha1", 9)],
    resources: &[
        namespaced(GROUP, "evictionrequests", "evictionrequest", "EvictionRequest")
            .versions(VERSIONS)
            .stored_as(GROUP, "v1alpha1")
            .counts_generations()
            .updated_only_from_a_revision()
            .behind("EvictionRequestAPI"),
        namespaced(GROUP, "evictions", "eviction", "Eviction")
            .versions(VERSIONS)
            .stored_as(GROUP, "v1alpha1")
            .counts_generations()
            .updated_only_from_a_revision()
            .behind("EvictionRequestAPI"),
    ],
};
