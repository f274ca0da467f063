//! The declarations of roles and bindings.
//!
//! The crate `access` evaluates the stored objects.

use keelson_meta::names::NameRule;
use keelson_resources::declare::{GroupDeclaration, cluster, namespaced, version};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17000,
    versions: &[version("v1", 15)],
    resources: &[
        cluster(GROUP, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
            .names(NameRule::PathSegment)
            .created_by_update(),
        cluster(GROUP, "clusterroles", "clusterrole", "ClusterRole").names(NameRule::PathSegment).created_by_update(),
        namespaced(GROUP, "rolebindings", "rolebinding", "RoleBinding")
            .names(NameRule::PathSegment)
            .created_by_update(),
        namespaced(GROUP, "roles", "role", "Role").names(NameRule::PathSegment).created_by_update(),
    ],
};
