//! Defaults of requests for the certificates of pods.
//!
//! Other requests for certificates have none.

use crate::shape::Rule::{In, Number};
use crate::shape::Shape;

/// The shape of a kind of `certificates.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "PodCertificateRequest" => Some(&CERTIFICATE_REQUEST),
        _ => None,
    }
}

/// A certificate of a pod holds for a day.
const CERTIFICATE_REQUEST: Shape =
    Shape::of(&[("spec", In(&const { Shape::of(&[("maxExpirationSeconds", Number(86_400))]) }))]);
