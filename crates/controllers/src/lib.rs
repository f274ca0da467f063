//! Controllers that run inside the server: each follows the API like any other client and moves objects to where they
//! should be. They use the verbs of the registry and read its cache, and nothing below them.

mod client;
mod garbage_collection;
mod identity;
mod leadership;
mod leases;
mod namespace_deletion;
mod queue;

pub use garbage_collection::GarbageCollection;
pub use identity::{IDENTITY_LABEL, IDENTITY_VALUE, IdentityCollection, IdentityConfig, IdentityLease};
pub use leadership::Leadership;
pub use leases::key_prefix as identity_key_prefix;
pub use namespace_deletion::NamespaceDeletion;
