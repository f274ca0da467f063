//! The declaration of runtime classes.
//!
//! A runtime class names the handler that runs a pod, and the overhead of such pods.

use keelson_resources::declare::{GroupDeclaration, cluster, version};

const GROUP: &str = "node.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16300,
    versions: &[version("v1", 15)],
    resources: &[cluster(GROUP, "runtimeclasses", "runtimeclass", "RuntimeClass").updated_only_from_a_revision()],
};
