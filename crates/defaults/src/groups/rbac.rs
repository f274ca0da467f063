//! Defaults of role bindings.
//!
//! The group of a role is always this one; that of a subject depends on its kind.

use crate::shape::Rule::{Always, Each, Text};
use crate::shape::{Shape, Step, text};
use keelson_meta::json::Map;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The shape of a kind of `rbac.authorization.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    matches!(kind, "RoleBinding" | "ClusterRoleBinding").then_some(&BINDING)
}

const BINDING: Shape = Shape::of(&[
    ("roleRef", Always(&const { Shape::of(&[("apiGroup", Text(GROUP))]) })),
    ("subjects", Each(&const { Shape { fields: &[], then: &[Step::Run(&["kind", "apiGroup"], subject_group)] } })),
]);

/// Users and groups belong to this group of kinds, service accounts to the core group.
fn subject_group(subject: &mut Map) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        Text(GROUP).apply(subject, "apiGroup");
    }
}
