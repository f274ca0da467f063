//! The longer column descriptions, which are the API documentation of the fields that the columns show.
//!
//! They go over the wire as they stand, so not a letter may change.

pub(crate) mod apps;
pub(crate) mod autoscaling;
pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod coordination;
pub(crate) mod core;
pub(crate) mod discovery;
pub(crate) mod events;
pub(crate) mod flowcontrol;
pub(crate) mod internal_apiserver;
pub(crate) mod networking;
pub(crate) mod rbac;
pub(crate) mod resource;
pub(crate) mod scheduling;
pub(crate) mod storage;
