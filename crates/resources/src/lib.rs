//! Resources, and the built-in ones as declarations.
//!
//! A [`Resource`] is an owned value that is shared: the built-in ones and those that are added while the server runs are of one
//! type. Every built-in resource says here, once, what it is called, where it is served, where it is stored, which verbs and
//! subresources it has, and which of its fields can be selected. Discovery, OpenAPI, routing and the registry read these
//! declarations; none of them keeps a list of its own. One file per API group lies below `groups`.
//! Nothing here knows objects, requests or stores, and nothing is parsed or computed at start-up but a few small tables.

mod catalogue;
mod collection;
mod custom;
pub mod declare;
mod fields;
mod group;
mod hash;
mod named;
mod resource;

pub use catalogue::Catalogue;
pub use collection::Collection;
pub use custom::CLEANUP_FINALIZER;
pub use fields::{FieldRef, FieldRefusal, SelectableField};
pub use group::{Group, GroupVersionEntry};
pub use hash::storage_version_hash;
pub use named::UnknownResource;
pub use resource::{
    CreateHandler, Resource, ResourceStorage, ResponseKind, ScalePaths, Scope, ServedVersion, Subresource,
    SubresourceHandler, Text, Verb,
};
