//! Defaults of TokenRequests.
//!
//! The code that issues a token limits its lifetime.

use crate::defaulting::type_defaults::Rule::{Always, Number};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `authentication.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "TokenRequest" => Some(&TOKEN_REQUEST),
        _ => None,
    }
}

/// A token is valid for an hour by default.
const TOKEN_REQUEST: TypeDefaults =
    TypeDefaults::new(&[("spec", Always(&const { TypeDefaults::new(&[("expirationSeconds", Number(3600))]) }))]);
