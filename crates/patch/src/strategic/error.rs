//! The errors of a strategic merge patch, in upstream's words.
//!
//! `PatchError` sets their status codes.

use keelson_meta::json::{Map, Value};
use keelson_meta::{ApiError, go_format};
use thiserror::Error;

use super::{DIRECTIVE, GoKind};
use crate::go_text;

/// The reason why a strategic merge patch was not applied. A retry can succeed only if the object has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StrategicError {
    /// The patch is not a JSON object.
    #[error("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")]
    NotAnObject {
        /// The JSON type of the patch.
        found: &'static str,
    },
    /// `$deleteFromPrimitiveList` is not followed by `/` and the name of a list.
    #[error("invalid patch format of primitive list")]
    BadDeletion,
    /// `$setElementOrder` is not followed by `/` and the name of a list.
    #[error("invalid patch format of setElementOrder list")]
    BadElementOrder,
    /// `$retainKeys` is not a list, or lacks a member that the patch sets.
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    /// A list to be merged contains lists.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// An unknown or misplaced `$patch`.
    #[error("unknown patch type: {directive} in map: {object}")]
    UnknownDirective {
        /// The value of `$patch`.
        directive: String,
        /// The object with the directive, as Go prints it.
        object: String,
    },
    /// `$patch: merge` in an item of a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// An item lacks the key by which the list is merged.
    #[error("map: {object} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item as Go prints it.
        object: String,
        /// The key.
        key: String,
    },
    /// The schema has no key for a list of objects.
    #[error("cannot merge lists without merge key for {kind}")]
    NotMergeable {
        /// The Go kind of the items.
        kind: &'static str,
    },
    /// A value has the wrong type.
    #[error("expected a {expected}, but received a {found}")]
    WrongType {
        /// The expected Go type.
        expected: &'static str,
        /// The Go type of the value.
        found: &'static str,
    },
    /// The items of a list and of its patch have different types.
    #[error("list element types are not identical: [{target} {patch}]")]
    MixedTypes {
        /// The target's list, as Go prints it.
        target: String,
        /// The patch's list.
        patch: String,
    },
    /// The items of the patch are not in the order that the patch states.
    #[error("the order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}")]
    OrderMismatch {
        /// The patch's list, as Go prints it.
        patch: String,
        /// The stated order.
        order: String,
    },
    /// The target has an undeclared field.
    #[error("unable to find api field in struct {owner} for the json field {field:?}")]
    UnknownField {
        /// The Go name of the struct.
        owner: String,
        /// The field.
        field: String,
    },
    /// The patch has objects or lists in a value for which the schema declares no fields.
    #[error("merging an object in json but data type is not struct, instead is: {kind}")]
    NoStruct {
        /// The Go kind.
        kind: &'static str,
    },
    /// A list in a value that the schema does not declare as one.
    #[error("expected slice or array type, but got: {kind}")]
    NoList {
        /// The Go kind of the enclosing value.
        kind: &'static str,
    },
}

impl StrategicError {
    pub(super) fn not_an_object(found: &Value) -> Self {
        Self::NotAnObject { found: go_format::kind(found) }
    }

    pub(super) fn unknown_directive(object: &Map) -> Self {
        let directive = go_text::as_text(object.get(DIRECTIVE).unwrap_or(&Value::Null));
        Self::UnknownDirective { directive, object: go_text::object(object) }
    }

    pub(super) fn no_merge_key(object: &Map, key: &str) -> Self {
        Self::NoMergeKey { object: go_text::object(object), key: key.to_owned() }
    }

    pub(super) fn not_a_list(found: &Value) -> Self {
        Self::WrongType { expected: "[]interface {}", found: go_text::type_name(found) }
    }

    pub(super) fn not_a_map(found: &Value) -> Self {
        Self::WrongType { expected: "map[string]interface {}", found: go_text::type_name(found) }
    }

    pub(super) fn mixed_types(target: &[Value], patch: &[Value]) -> Self {
        Self::MixedTypes { target: go_text::list(target), patch: go_text::list(patch) }
    }

    pub(super) fn no_field(shape: GoKind, owner: &str, field: &str) -> Self {
        match shape {
            GoKind::Struct => Self::UnknownField { owner: owner.to_owned(), field: field.to_owned() },
            GoKind::Map | GoKind::List | GoKind::Scalar => Self::NoStruct { kind: shape.kind() },
        }
    }
}

/// Upstream reports only some of these as client errors.
impl From<StrategicError> for ApiError {
    fn from(error: StrategicError) -> Self {
        match error {
            StrategicError::NotAnObject { .. }
            | StrategicError::BadDeletion
            | StrategicError::BadElementOrder
            | StrategicError::BadRetainKeys => Self::BadRequest(error.to_string()),
            StrategicError::ListOfLists => Self::JsonPatchTestFailed,
            StrategicError::UnknownDirective { .. }
            | StrategicError::MergeDirective
            | StrategicError::NoMergeKey { .. }
            | StrategicError::NotMergeable { .. }
            | StrategicError::WrongType { .. }
            | StrategicError::MixedTypes { .. }
            | StrategicError::OrderMismatch { .. }
            | StrategicError::UnknownField { .. }
            | StrategicError::NoStruct { .. }
            | StrategicError::NoList { .. } => Self::Unclassified(error.to_string()),
        }
    }
}
