//! The type of an API resource, and the declarations of the built-in resources.
//!
//! A [`Resource`] is a shared, owned value. Built-in resources and those added at run time have one type. It has the
//! names, versions, storage, verbs, subresources and selectable fields, in one place. Discovery, OpenAPI, routing and
//! the registry read it, and none has its own list. The crate must not know objects, requests or stores. At startup,
//! only a few small tables are computed.

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
