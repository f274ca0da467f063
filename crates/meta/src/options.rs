//! The options of a request as typed values, parsed from query parameters (for a deletion also from the body) and
//! validated by upstream's rules.
//!
//! Every `parse` returns valid options, or the error for the client. Unknown keys are ignored. If a key is repeated,
//! the first value counts, unless the option is a list.

mod delete;
mod list;
mod query;
mod write;

pub use delete::{DeleteOptions, Preconditions, PropagationPolicy};
pub use list::{GetOptions, ListOptions, RequestedVersion, ResourceVersionMatch};
pub use query::Query;
pub(crate) use write::field_manager_errors;
pub use write::{CreateOptions, FIELD_MANAGER_MAX, FieldValidation, PatchMode, PatchOptions, UpdateOptions};

use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::gvk::GroupKind;

/// Returns the error for these faults in the options; `Ok` if there are none.
fn check(kind: &str, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind { group: "meta.k8s.io".to_owned(), kind: kind.to_owned() };
    Err(ApiError::Invalid { kind, name: String::new(), errors })
}
