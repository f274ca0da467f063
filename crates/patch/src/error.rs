//! The errors of a patch, and what the API says about each.
//!
//! Some are faults of the patch itself and others of the object that it meets; codes and texts are upstream's.

use keelson_meta::json::Value;
use keelson_meta::{ApiError, go_format};
use thiserror::Error;

use crate::strategic::StrategicError;

/// Why a patch was not applied. None of these goes away by sending the patch again, unless the object changes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The patch has the wrong shape; the text is what Go's JSON decoder says.
    #[error("error decoding patch: json: cannot unmarshal {found} into Go {target}")]
    Malformed {
        /// The JSON type that was found.
        found: &'static str,
        /// The Go type that was wanted, such as `value of type []handlers.jsonPatchOp`.
        target: &'static str,
    },
    /// More operations than the server takes.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {actual}")]
    TooManyOperations {
        /// The limit.
        limit: usize,
        /// How many there are.
        actual: usize,
    },
    /// An operation that does not exist.
    #[error("Unexpected kind: {0}")]
    UnknownOperation(String),
    /// An operation without a field that it needs.
    #[error("operation missing {0} field")]
    MissingField(&'static str),
    /// The path leads nowhere, or to where the operation cannot work.
    #[error("{operation} operation does not apply: doc is missing path: {path:?}")]
    MissingPath {
        /// The operation.
        operation: &'static str,
        /// The path that is missing.
        path: String,
    },
    /// The whole is replaced by what holds nothing; the text ends as upstream's does.
    #[error("replace operation value must be object or array: %!w(<nil>)")]
    NoContainer,
    /// A `test` found something else.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// What was tested.
        path: String,
    },
    /// The `copy` operations made too much of too little.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {actual}, exceeding the limit {limit}"
    )]
    CopyTooLarge {
        /// The limit in bytes of JSON.
        limit: usize,
        /// The sum of all copies so far.
        actual: usize,
    },
    /// The operations pass more values than a request may cost.
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
    /// The patch is of this type, but `target` was wanted.
    pub(crate) fn malformed(found: &Value, target: &'static str) -> Self {
        Self::Malformed { found: go_format::kind(found), target }
    }
}

/// Upstream tells the client little about operations that do not apply: all of them are the same 422.
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
