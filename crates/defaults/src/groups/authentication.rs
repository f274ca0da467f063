//! Defaults of requests for tokens.
//!
//! How long a token may hold at the most is decided where it is issued.

use crate::shape::Rule::{Always, Number};
use crate::shape::Shape;

/// The shape of a kind of `authentication.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "TokenRequest" => Some(&TOKEN_REQUEST),
        _ => None,
    }
}

/// A token holds for an hour.
const TOKEN_REQUEST: Shape =
    Shape::of(&[("spec", Always(&const { Shape::of(&[("expirationSeconds", Number(3600))]) }))]);
