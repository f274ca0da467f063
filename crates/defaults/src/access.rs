//! Role bindings, and requests for tokens.

use crate::shape::Rule::{Always, Each, Number, Text};
use crate::shape::{Shape, Tree, text};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The shape of a kind of `rbac.authorization.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    matches!(kind, "RoleBinding" | "ClusterRoleBinding").then_some(&BINDING)
}

/// The shape of a kind of `authentication.k8s.io`.
pub(crate) fn token(kind: &str) -> Option<&'static Shape> {
    (kind == "TokenRequest").then_some(&TOKEN_REQUEST)
}

/// A token holds for an hour.
const TOKEN_REQUEST: Shape =
    Shape::of(&[("spec", Always(&const { Shape::of(&[("expirationSeconds", Number(3600))]) }))]);

const BINDING: Shape = Shape::of(&[
    ("roleRef", Always(&const { Shape::of(&[("apiGroup", Text(GROUP))]) })),
    ("subjects", Each(&const { Shape { fields: &[], then: &[subject_group] } })),
]);

/// Users and groups belong to this group of kinds, service accounts to the core group.
fn subject_group(subject: &mut Tree) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        Text(GROUP).apply(subject, "apiGroup");
    }
}
