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
mod node;
mod rbac;
mod resource;
mod scheduling;
mod storage;

use crate::type_defaults::TypeDefaults;

/// The defaults of a kind in a version; `None` for one without defaults.
pub(crate) fn defaults(group: &str, version: &str, kind: &str) -> Option<&'static TypeDefaults> {
    match group {
        "" => core::defaults(kind),
        "admissionregistration.k8s.io" => admissionregistration::defaults(kind),
        "apiextensions.k8s.io" => apiextensions::defaults(kind),
        "apiregistration.k8s.io" => apiregistration::defaults(kind),
        "apps" => apps::defaults(kind),
        "authentication.k8s.io" => authentication::defaults(kind),
        "autoscaling" => autoscaling::defaults(version, kind),
        "batch" => batch::defaults(kind),
        "certificates.k8s.io" => certificates::defaults(kind),
        "discovery.k8s.io" => discovery::defaults(kind),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::defaults(kind),
        "networking.k8s.io" => networking::defaults(kind),
        "node.k8s.io" => node::defaults(kind),
        "rbac.authorization.k8s.io" => rbac::defaults(kind),
        "resource.k8s.io" => resource::defaults(version, kind),
        "scheduling.k8s.io" => scheduling::defaults(kind),
        "storage.k8s.io" => storage::defaults(kind),
        _ => None,
    }
}
