//! The declarations, one file for each API group.
//!
//! A file has the resources of its group in the order of their plurals, and nothing but data. Whoever adds a kind adds it
//! there, and discovery, routes and storage follow.

use crate::declare::GroupDeclaration;

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
mod flowcontrol;
mod internal_apiserver;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;

/// All groups: the core group, then the others as discovery orders them, by priority and then by name.
pub(crate) static GROUPS: &[GroupDeclaration] = &[
    core::DECLARATION,
    apiregistration::DECLARATION,
    apps::DECLARATION,
    events::DECLARATION,
    authentication::DECLARATION,
    authorization::DECLARATION,
    autoscaling::DECLARATION,
    batch::DECLARATION,
    certificates::DECLARATION,
    networking::DECLARATION,
    policy::DECLARATION,
    rbac::DECLARATION,
    storage::DECLARATION,
    admissionregistration::DECLARATION,
    apiextensions::DECLARATION,
    scheduling::DECLARATION,
    coordination::DECLARATION,
    node::DECLARATION,
    discovery::DECLARATION,
    resource::DECLARATION,
    flowcontrol::DECLARATION,
    internal_apiserver::DECLARATION,
    storagemigration::DECLARATION,
];
