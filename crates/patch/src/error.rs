//! The errors of a patch, and their conversion to API errors.
//!
//! Some are faults of the patch, others of the object that it is applied to. Codes and texts are upstream's.

use keelson_meta::json::Value;
use keelson_meta::{ApiError, go_format};
use thiserror::Error;

use crate::strategic::StrategicError;

/// The reason why a patch was not applied. A retry can succeed only if the object has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The patch has the wrong shape. The text is that of Go's JSON decoder.
    #[error("error decoding patch: json: cannot unmarshal {found} into Go {target}")]
    Malformed {
        /// The JSON type of the value.
        found: &'static str,
        /// The expected Go type, such as `value of type []handlers.jsonPatchOp`.
        target: &'static str,
    },
    /// More operations than the server accepts.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {actual}")]
    TooManyOperations {
        /// The limit.
        limit: usize,
        /// The number of operations.
        actual: usize,
    },
    /// An operation that does not exist.
    #[error("Unexpected kind: {0}")]
    UnknownOperation(String),
    /// An operation without a field that it needs.
    #[error("operation missing {0} field")]
    MissingField(&'static str),
    /// The path does not exist, or the operation is not possible at it.
    #[error("{operation} operation does not apply: doc is missing path: {path:?}")]
    MissingPath {
        /// The operation.
        operation: &'static str,
        /// The path that is missing.
        path: String,
    },
    /// The root is replaced by a value that is neither an object nor an array. The text ends as upstream's does.
    #[error("replace operation value must be object or array: %!w(<nil>)")]
    NoContainer,
    /// A `test` found another value.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// The path of the tested value.
        path: String,
    },
    /// The `copy` operations add too many bytes.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {actual}, exceeding the limit {limit}"
    )]
    CopyTooLarge {
        /// The limit in bytes of JSON.
        limit: usize,
        /// The sum of all copies so far.
        actual: usize,
    },
    /// The operations move or shift more values than one request may.
    #[error("the operations of the patch pass more than {limit} values")]
    TooMuchWork {
        /// The limit.
        limit: usize,
    },
    /// The result would nest deeper than the server reads.
    #[error("the patched value exceeds the maximum depth of {limit}")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// A strategic merge patch that does not apply.
    #[error(transparent)]
    Strategic(#[from] StrategicError),
}

impl PatchError {
    /// The patch has this type instead of `target`.
    pub(crate) fn malformed(found: &Value, target: &'static str) -> Self {
        Self::Malformed { found: go_format::kind(found), target }
    }
}

/// Upstream distinguishes few of these errors. All operations that do not apply have the same 422.
impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed { .. } => Self::BadRequest(error.to_string()),
            PatchError::TooManyOperations { limit, actual } => Self::PatchTooManyOperations { limit, actual },
            PatchError::UnknownOperation(_)
            | PatchError::MissingField(_)
            | PatchError::TooMuchWork { .. }
            | PatchError::MissingPath { .. }
            | PatchError::NoContainer
            | PatchError::TestFailed { .. }
            | PatchError::CopyTooLarge { .. }
            | PatchError::TooDeep { .. } => Self::JsonPatchTestFailed,
            PatchError::Strategic(error) => error.into(),
        }
    }
}
