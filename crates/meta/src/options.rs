//! The options of a request: query parameters (and the body of a deletion) as typed values, judged by upstream's rules.
//!
//! Every `parse` gives either options that obey all rules or the error for the client. Keys that are not known are
//! ignored. Of a key given several times the first value counts, unless the option is a list.

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

/// The errors as the answer to options that break rules; `Ok` if there are none.
fn check(kind: &str, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind { group: "meta.k8s.io".to_owned(), kind: kind.to_owned() };
    Err(ApiError::Invalid { kind, name: String::new(), errors })
}
