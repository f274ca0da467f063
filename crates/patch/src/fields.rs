//! Field ownership: computes the fields of an object and the fields in which two objects differ, and removes fields.
//!
//! Server-side apply (KEP-555) and `metadata.managedFields` use these operations. All are pure and know the schema only
//! through [`FieldSchema`]. The semantics are those of upstream's `structured-merge-diff`, since sets of fields are
//! stored in objects and clients compare them.
//!
//! [`validate`] must run first. The other functions assume a valid object and skip malformed parts.

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
pub use owners::{Manager, ManagerFields, Operation, Owners, OwnersError};
pub use remove::remove;
pub use schema::{FieldSchema, Granularity, Member, Scalar};
pub use set::FieldSet;
pub use text::FieldsError;
pub use validate::{Duplicates, Violation, Violations, validate};
