//! Controllers that run inside the server: each follows the API like any other client and moves objects to where they
//! should be. They use the verbs of the registry and nothing below them.

mod namespace_deletion;

pub use namespace_deletion::NamespaceDeletion;
