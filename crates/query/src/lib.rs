//! Queries of lists as values: the selection of objects, their order, and the fields to show.
//!
//! A [`Query`] is parsed from request parameters whose names begin with [`PREFIX`], which no Kubernetes client sends.
//! It selects objects ([`Filter`], [`Condition`], [`Search`]), orders them by sort keys ([`SortBy`]), selects a page,
//! and reduces each object to some fields ([`Mask`]). A [`QueryToken`] continues a list at its next chunk.
//! [`PARAMETERS`] lists the parameters for API documents. This crate must not know HTTP, stores, or existing objects.
//!
//! Invariants:
//! - Sort keys compare as their values in either direction, and none is a prefix of another one.
//! - An invalid parameter is refused with its name, the fault and the position.

mod budget;
mod cells;
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
pub use cells::Cells;
pub use condition::{Condition, CostExceeded, Decision};
pub use error::QueryError;
pub use filter::Filter;
pub use mask::Mask;
pub use moment::Moment;
pub use order::{Comparison, SortBy, SortSource, SortTerm};
pub use parameters::{GROUP_VERSION, PARAMETERS, Parameter, ParameterValue, Request};
pub use path::{Path, Segment};
pub use query::{PREFIX, Query, is_parameter, parameter_name};
pub use search::{GatheredTexts, MatchKind, RankedResults, Search, SearchIndex, SearchedTexts, WordMatch};
pub use token::{QueryToken, TokenError, TokenRevision, fingerprint};
pub use value::{Subject, Value};
