//! The steps between versions whose fields differ, one file for each API group, as in the other crates that know the built-in kinds.
//!
//! A group whose versions have the same fields has no file. Which steps make up a way is said in `families`, and in `retired` for
//! versions that are only read.

pub(crate) mod admissionregistration;
pub(crate) mod apiextensions;
pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod certificates;
pub(crate) mod discovery;
pub(crate) mod events;
pub(crate) mod flowcontrol;
pub(crate) mod networking;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod storagemigration;
