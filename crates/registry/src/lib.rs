//! The generic verbs over a resource: get, list, watch, create, update, patch, delete, delete collection.
//!
//! A verb takes decoded input and gives decoded or canonical output; HTTP is unknown here, and so is how bytes are
//! framed. Reads are answered from the cache once it has caught up with the store; writes go to the store as
//! compare-and-set transactions, and the cache is only a hint for them: what the store says wins.

mod config;
mod create;
mod delete;
mod delete_collection;
mod get;
mod intake;
mod kinds;
mod list;
mod namespaces;
mod ownership;
mod patch;
mod prepare;
mod registry;
mod reviews;
mod scale;
mod selection;
mod target;
mod update;
mod versions;
mod view;
mod watch;
mod write;

pub use config::{ListBounds, RegistryConfig};
pub use create::Created;
pub use delete::Deleted;
pub use intake::{Accepted, accept, fit, object_of};
pub use list::{ListItems, ListPage};
pub use namespaces::namespaces_target;
pub use patch::{Patch, PatchKind};
pub use registry::Registry;
pub use selection::Selection;
pub use target::Target;
pub use view::VersionedView;
pub use watch::{WatchOutput, WatchStream};
pub use write::Written;
