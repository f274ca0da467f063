//! Defaults of role bindings, and of requests for tokens and certificates.
//!
//! They are small, and stand together because all of them say who somebody is or what they may do.

use crate::shape::Rule::{Always, Each, In, Number, Text};
use crate::shape::{Shape, Step, text};
use keelson_meta::json::Map;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The shape of a kind of `rbac.authorization.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    matches!(kind, "RoleBinding" | "ClusterRoleBinding").then_some(&BINDING)
}

/// The shape of a kind of `authentication.k8s.io` and `certificates.k8s.io`.
pub(crate) fn shape_of_proof(kind: &str) -> Option<&'static Shape> {
    match kind {
        "TokenRequest" => Some(&TOKEN_REQUEST),
        "PodCertificateRequest" => Some(&CERTIFICATE_REQUEST),
        _ => None,
    }
}

/// A token holds for an hour.
const TOKEN_REQUEST: Shape =
    Shape::of(&[("spec", Always(&const { Shape::of(&[("expirationSeconds", Number(3600))]) }))]);

/// A certificate of a pod holds for a day.
const CERTIFICATE_REQUEST: Shape =
    Shape::of(&[("spec", In(&const { Shape::of(&[("maxExpirationSeconds", Number(86_400))]) }))]);

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
