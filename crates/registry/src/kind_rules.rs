//! The rules of a kind that code states: defaults, validation, conversion.
//!
//! Built-in kinds implement these traits. A kind that a definition declares has none of them: its schema has the
//! defaults and the rules, and its versions differ by name alone, or a [`Converter`](crate::Converter) converts them.

use std::fmt;

use keelson_meta::field_error::FieldError;
use keelson_meta::{ApiError, Object};
use thiserror::Error;

/// The defaults of a kind in a version.
pub trait Defaulter: Send + Sync {
    /// Fills in fields that the object, which is in that version, leaves out.
    fn fill(&self, object: &mut Object);
}

/// The validation of a kind. Objects are in the version that their kind is stored in.
pub trait Validator: Send + Sync {
    /// All faults of a new object.
    fn create(&self, _object: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// The faults that are reported before all others. If there are any, no others are reported.
    fn alone(&self, _old: Option<&Object>, _object: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// All faults of an update of an object, or of its subresource.
    fn update(&self, _subresource: Option<&str>, _old: &Object, _new: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    /// The warnings about a valid object. `old` is its stored state, `None` for a new one.
    fn warnings(&self, _old: Option<&Object>, _object: &Object) -> Vec<String> {
        Vec::new()
    }
}

/// The validator of a kind without rules.
pub(crate) struct NoRules;

impl Validator for NoRules {}

/// A conversion from one version of a kind to another.
pub trait Conversion: fmt::Debug + Send + Sync {
    /// The `apiVersion` that it starts from.
    fn source_api_version(&self) -> &str;

    /// Returns true if only the `apiVersion` changes, so that a caller may replace it in the bytes.
    fn is_rename(&self) -> bool;

    /// Returns true if nothing changes at all.
    fn is_identity(&self) -> bool;

    /// Converts an object in place. The fields that the versions share keep their place and order.
    ///
    /// # Errors
    /// When the object is in another version, or has a shape that its schema does not allow. Its state is unspecified
    /// then.
    fn convert(&self, object: &mut Object) -> Result<(), ConversionError>;
}

/// The failure of a conversion. A retry fails too.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConversionError {
    /// The object is in another version than the conversion starts from.
    #[error("cannot convert {kind} from {expected}: it is in {found:?}")]
    NotInVersion {
        /// The kind.
        kind: &'static str,
        /// The `apiVersion` that the conversion starts from.
        expected: String,
        /// The `apiVersion` of the object, empty when it has none.
        found: String,
    },
    /// A field has a type that its schema does not allow.
    #[error("cannot convert: {field} is not {wanted}")]
    WrongType {
        /// The field.
        field: &'static str,
        /// The expected type, with its article.
        wanted: &'static str,
    },
}

/// The object of a request has passed its schema before, so this error is a fault of the server or of the stored
/// object.
impl From<ConversionError> for ApiError {
    fn from(error: ConversionError) -> Self {
        Self::Internal(error.to_string())
    }
}
