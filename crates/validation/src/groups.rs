//! The rules of each API group, one file a group.
//!
//! The lists name every kind that is stored, so that a kind without rules can be told from one that was forgotten.

mod admission_policies;
mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod conditions;
mod config;
mod coordination;
mod core;
mod definition_defaults;
mod definition_form;
mod definition_rules;
pub(crate) mod definition_schema;
mod definition_structure;
mod definition_versions;
mod device_claim_status;
mod device_slices;
mod discovery;
mod endpoints;
mod events;
mod flowcontrol;
mod go_form;
mod internal_apiserver;
mod job_policies;
mod job_status;
mod limits;
mod namespaces;
mod networking;
mod node;
mod nodes;
mod policy;
mod rbac;
mod replication;
mod resource;
mod schedule;
mod scheduling;
mod services;
mod storage;
mod storagemigration;
pub(crate) mod volume_claims;
mod volumes;
mod webhooks;

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
