//! Defaults of API services.
//!
//! The service behind one is reached as that of a webhook is.

use crate::admissionregistration::defaults::CLIENT;
use crate::defaulting::type_defaults::Rule::In;
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `apiregistration.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "APIService" => Some(&API_SERVICE),
        _ => None,
    }
}

const API_SERVICE: TypeDefaults = TypeDefaults::of(&[("spec", In(&CLIENT))]);
