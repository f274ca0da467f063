//! Container runtimes.
//!
//! A runtime class says which handler of a node runs a pod, and what that costs.

use keelson_resources::declare::{GroupDeclaration, cluster, version};

const GROUP: &str = "node.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16300,
    versions: &[version("v1", 15)],
    resources: &[cluster(GROUP, "runtimeclasses", "runtimeclass", "RuntimeClass").updated_only_from_a_revision()],
};
