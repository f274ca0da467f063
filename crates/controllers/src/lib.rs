//! Controllers that run inside the server: each follows the API like any other client and moves objects to where they
//! should be. They use the verbs of the registry and read its cache, and nothing below them.

mod garbage_collection;
mod namespace_deletion;
mod queue;

pub use garbage_collection::GarbageCollection;
pub use namespace_deletion::NamespaceDeletion;
