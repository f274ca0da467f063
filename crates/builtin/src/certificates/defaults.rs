//! Defaults of pod certificate requests.
//!
//! Certificate signing requests have no defaults.

use crate::defaulting::type_defaults::Rule::{In, Number};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `certificates.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "PodCertificateRequest" => Some(&CERTIFICATE_REQUEST),
        _ => None,
    }
}

/// A certificate of a pod is valid for a day by default.
const CERTIFICATE_REQUEST: TypeDefaults =
    TypeDefaults::new(&[("spec", In(&const { TypeDefaults::new(&[("maxExpirationSeconds", Number(86_400))]) }))]);
