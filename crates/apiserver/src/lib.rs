//! A library for aggregated API servers: a program with a few Rust types becomes a server for them, behind a main API
//! server.
//!
//! A type is described like a custom resource, with `kube`'s `#[derive(CustomResource)]` and `schemars`. It is served
//! like keelson's custom resources: chunked lists, watches, Tables, discovery, OpenAPI, validation, patches and
//! server-side apply. The main server authenticates users as a front proxy, and authorizes them by access reviews.
//! [`ApiServer`] has an example.

mod admission;
mod answers;
mod authentication;
mod authorization;
mod builder;
pub mod conformance;
mod delegation;
mod external;
mod identity;
mod main_lease;
mod main_server;
mod membership;
mod migrations;
mod mirror;
mod mirrored_store;
mod namespaces;
mod read_through;
mod server;
mod serving_certificate;
mod shared;
mod storage;
mod storage_versions;

pub use admission::{AdmissionHook, AdmissionRequest, Refusal};
pub use async_trait::async_trait;
pub use builder::{ApiServer, ApiServerBuilder, ServeError, StartError};
pub use delegation::Delegation;
pub use external::{Computed, ObjectKey, ObjectStore, StoreFault};
pub use futures::stream::BoxStream;
pub use keelson_access::User;
pub use keelson_registry::Operation;
pub use keelson_supervision::Failure;
pub use server::RunningApiServer;
pub use storage::Storage;
