//! The defaults of each API group, one file for each, as in the other crates that know the built-in kinds.
//!
//! A kind without defaults is in none of them.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod autoscaling;
mod batch;
mod certificates;
pub(crate) mod core;
mod discovery;
mod flowcontrol;
mod networking;
mod rbac;
mod resource;
mod scheduling;
mod services;
mod storage;

use crate::shape::Shape;

/// The shape of a kind in a version; `None` for one without defaults.
pub(crate) fn shape(group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    match group {
        "" => core::shape(kind),
        "admissionregistration.k8s.io" => admissionregistration::shape(kind),
        "apiextensions.k8s.io" => apiextensions::shape(kind),
        "apiregistration.k8s.io" => apiregistration::shape(kind),
        "apps" => apps::shape(kind),
        "authentication.k8s.io" => authentication::shape(kind),
        "autoscaling" => autoscaling::shape(version, kind),
        "batch" => batch::shape(kind),
        "certificates.k8s.io" => certificates::shape(kind),
        "discovery.k8s.io" => discovery::shape(kind),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::shape(kind),
        "networking.k8s.io" => networking::shape(kind),
        "rbac.authorization.k8s.io" => rbac::shape(kind),
        "resource.k8s.io" => resource::shape(version, kind),
        "scheduling.k8s.io" => scheduling::shape(kind),
        "storage.k8s.io" => storage::shape(kind),
        _ => None,
    }
}
