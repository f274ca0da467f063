//! Defaults of APIServices.
//!
//! The reference to the service has the defaults of a webhook's service.

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

const API_SERVICE: TypeDefaults = TypeDefaults::new(&[("spec", In(&CLIENT))]);
