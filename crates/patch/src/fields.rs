//! The arithmetic of field ownership: which fields an object has, in which fields two objects differ, what is left when
//! fields are taken away.
//!
//! Server-side apply (KEP-555) and `metadata.managedFields` are made of these operations. Everything is pure, and the schema
//! is known only through [`FieldSchema`]. The meaning of each operation is that of upstream's `structured-merge-diff`, since
//! the sets are stored in objects and compared by clients.
//!
//! [`validate`] comes first: the other walks take for granted that it found nothing, and overlook what is malformed.

mod apply;
mod combine;
mod compare;
mod conflict;
mod element;
mod element_ref;
mod extract;
mod identity;
mod listing;
mod merge;
mod named;
mod outdated;
mod owned;
mod owners;
mod remove;
mod scan;
mod schema;
mod set;
mod sink;
mod text;
mod validate;
mod view;

pub use apply::{Applied, BEFORE_FIRST_APPLY, Versions, Writer, apply, update};
pub use compare::{Comparison, compare};
pub use conflict::{Conflict, Conflicts};
pub use element::{Path, PathElement};
pub use extract::extract;
pub use merge::merge;
pub use named::with_named_fields;
pub use owned::Fields;
pub use owners::{Manager, Operation, Owned, Owners, OwnersError};
pub use remove::remove;
pub use schema::{FieldSchema, Granularity, Member, Scalar};
pub use set::FieldSet;
pub use text::FieldsError;
pub use validate::{Duplicates, Violation, Violations, validate};
