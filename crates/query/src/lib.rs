//! Queries of lists: how the objects of a collection are ordered, counted and paged, as a value of its own.
//!
//! A [`Query`] is read from the parameters of a request whose names begin with [`PREFIX`]; no client of Kubernetes sends those. It
//! says where an object stands ([`SortBy`]), by a place in bytes that compare as the values do, and which page is wanted. A
//! [`QueryToken`] says where a walk goes on. Nothing here knows HTTP, stores, or which objects there are.
//!
//! Invariants:
//! - Places compare as the values that they are of, whatever the direction, and no place begins another one.
//! - What can't be read is refused with the name of the parameter and what is wrong where.

mod error;
mod order;
mod path;
mod place;
mod query;
mod scan;
mod token;
mod value;

pub use error::QueryError;
pub use order::{Comparison, SortBy, SortTerm};
pub use path::{Path, Step};
pub use query::{PREFIX, Query};
pub use token::{QueryToken, TokenError, TokenRevision, fingerprint};
pub use value::{Subject, Value};
