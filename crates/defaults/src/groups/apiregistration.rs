//! Defaults of API services.
//!
//! The service behind one is reached as that of a webhook is.

use super::admissionregistration::CLIENT;
use crate::shape::Rule::In;
use crate::shape::Shape;

/// The shape of a kind of `apiregistration.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "APIService" => Some(&API_SERVICE),
        _ => None,
    }
}

const API_SERVICE: Shape = Shape::of(&[("spec", In(&CLIENT))]);
