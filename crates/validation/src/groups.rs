//! The rules of each API group, one file a group; where a group has many, there is a file for each family of its kinds below it.
//!
//! The lists name every kind that is stored, so that a kind without rules can be told from one that was forgotten.

mod admissionregistration;
pub(crate) mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod conditions;
mod coordination;
pub(crate) mod core;
mod discovery;
mod events;
mod flowcontrol;
mod go_form;
mod internal_apiserver;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;

use crate::type_rules::Kind;

/// All groups with their kinds, in alphabetical order.
pub(crate) const GROUPS: &[(&str, &[Kind])] = &[
    ("", core::KINDS),
    ("admissionregistration.k8s.io", admissionregistration::KINDS),
    ("apiextensions.k8s.io", apiextensions::KINDS),
    ("apiregistration.k8s.io", apiregistration::KINDS),
    ("apps", apps::KINDS),
    ("autoscaling", autoscaling::KINDS),
    ("batch", batch::KINDS),
    ("certificates.k8s.io", certificates::KINDS),
    ("coordination.k8s.io", coordination::KINDS),
    ("discovery.k8s.io", discovery::KINDS),
    ("events.k8s.io", events::KINDS),
    ("flowcontrol.apiserver.k8s.io", flowcontrol::KINDS),
    ("internal.apiserver.k8s.io", internal_apiserver::KINDS),
    ("networking.k8s.io", networking::KINDS),
    ("node.k8s.io", node::KINDS),
    ("policy", policy::KINDS),
    ("rbac.authorization.k8s.io", rbac::KINDS),
    ("resource.k8s.io", resource::KINDS),
    ("scheduling.k8s.io", scheduling::KINDS),
    ("storage.k8s.io", storage::KINDS),
    ("storagemigration.k8s.io", storagemigration::KINDS),
];
