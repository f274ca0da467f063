//! Defaults of role bindings.
//!
//! The group of a role is always `rbac.authorization.k8s.io`. The group of a subject depends on its kind.

use keelson_meta::json::Map;

use crate::defaulting::type_defaults::Rule::{Always, Each, Text};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, text};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The defaults of a kind of `rbac.authorization.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    matches!(kind, "RoleBinding" | "ClusterRoleBinding").then_some(&BINDING)
}

const BINDING: TypeDefaults = TypeDefaults::new(&[
    ("roleRef", Always(&const { TypeDefaults::new(&[("apiGroup", Text(GROUP))]) })),
    (
        "subjects",
        Each(&const { TypeDefaults { fields: &[], then: &[FollowUp::Run(&["kind", "apiGroup"], subject_group)] } }),
    ),
]);

/// Users and groups belong to `rbac.authorization.k8s.io`, service accounts to the core group.
fn subject_group(subject: &mut Map) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        Text(GROUP).apply(subject, "apiGroup");
    }
}
