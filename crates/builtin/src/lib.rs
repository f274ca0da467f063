//! The built-in kinds: a folder for each API group, with a file for each concern.
//!
//! `declaration` has the resources, `defaults` the defaults, and `validation` and `warnings` have the rules and
//! messages of kube-apiserver. `conversion` has the versions, `columns` the tables of `kubectl get`. `strategy` has the
//! steps of the verbs for kinds with special rules. `<group>.rs` combines these files.
//!
//! The modules `defaulting`, `validating`, `converting` and `strategy` have the code that all groups share. A new kind
//! is added only to the files of its group. The registry calls kinds through traits that this crate implements.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod catalogue;
mod certificates;
mod completion;
mod converting;
mod coordination;
mod core;
mod defaulting;
mod deprecation;
mod discovery;
mod events;
mod flowcontrol;
mod group;
mod groups;
mod internal_apiserver;
mod lifecycle;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;
mod strategy;
mod surface;
mod validating;

pub use self::apiextensions::validation::non_structural;
pub use self::certificates::{ISSUED_CERTIFICATES, IssuedCertificates};
pub use self::core::allocation::{
    ADDRESS_ALLOCATIONS, AddressUse, Allocations, PORT_ALLOCATIONS, Scope as AllocationScope, address_use,
};
pub use self::core::validation::pod::difference;
pub use catalogue::{catalogue, catalogue_of, printer};
pub use defaulting::Defaults;
pub use deprecation::deprecation;
pub use surface::{
    Builtin, collection_specs, collection_specs_for, contributions, key_prefix, node_prefixes, registry, role_prefixes,
    surface,
};
pub use validating::{Rules, document};
