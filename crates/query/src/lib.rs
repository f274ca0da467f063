//! Queries of lists: which objects of a collection are shown, in which order and how much of them, as a value of its own.
//!
//! A [`Query`] is read from the parameters of a request whose names begin with [`PREFIX`]; no client of Kubernetes sends those. It
//! says whether an object is wanted ([`Filter`], [`Condition`], [`Search`]) and where it stands ([`SortBy`]), by a place in bytes that
//! compare as the values do, which page is wanted, and what is shown of each object ([`Mask`]). A [`QueryToken`] says where a walk
//! goes on. [`PARAMETERS`] is what is announced of all that. Nothing here knows HTTP, stores, or which objects there are.
//!
//! Invariants:
//! - Places compare as the values that they are of, whatever the direction, and no place begins another one.
//! - What can't be read is refused with the name of the parameter and what is wrong where.

mod budget;
mod condition;
mod error;
mod filter;
mod mask;
mod moment;
mod order;
mod parameters;
mod parts;
mod path;
mod query;
mod scan;
mod search;
mod sort_key;
mod token;
mod value;

pub use budget::Budget;
pub use condition::{Condition, Decision, TooCostly};
pub use error::QueryError;
pub use filter::Filter;
pub use mask::Mask;
pub use moment::Moment;
pub use order::{Comparison, SortBy, SortTerm};
pub use parameters::{GROUP_VERSION, PARAMETERS, Parameter, ParameterValue, Request};
pub use path::{Path, Segment};
pub use query::{PREFIX, Query, is_parameter, parameter_name};
pub use search::{Manner, Ranked, Search, SearchGathered, SearchIndex, SearchedTexts, WordMatch};
pub use token::{QueryToken, TokenError, TokenRevision, fingerprint};
pub use value::{Subject, Value};
