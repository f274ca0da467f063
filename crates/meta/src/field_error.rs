//! A fault in one field of an object or of request options, with its text for clients.
//!
//! The form is upstream's `field.Error`, including Go's notation of values. `error` turns it into a `Status`.

use std::collections::HashSet;
use std::fmt;

use crate::json::{Value, about_bytes};

use crate::go_format;
use crate::status::StatusCause;

/// A fault in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path of the field, such as `metadata.labels` or `spec.ports[0].name`.
    pub field: String,
    /// The kind of fault.
    pub kind: FieldErrorKind,
    /// Details, or empty.
    pub detail: String,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorKind {
    /// A required field is missing.
    Required,
    /// The value violates a rule.
    Invalid {
        /// The value given.
        value: Value,
    },
    /// The value violates a rule. The text does not repeat the value, as that would say nothing new.
    InvalidUnshown,
    /// The value is a duplicate.
    Duplicate {
        /// The value given.
        value: Value,
    },
    /// The value is a duplicate. The text does not repeat the value, as that would say nothing new.
    DuplicateUnshown,
    /// The value is not one of the supported ones.
    NotSupported {
        /// The value given.
        value: Value,
        /// The supported values.
        supported: Vec<String>,
    },
    /// The referenced object does not exist.
    NotFound {
        /// The value given.
        value: Value,
    },
    /// The field is not allowed here.
    Forbidden,
    /// The value is too long. The text does not repeat the value, as it may be huge.
    TooLong,
    /// The field has too many items.
    TooMany {
        /// The number of items.
        actual: usize,
    },
    /// The value has the wrong type.
    TypeInvalid {
        /// The value given.
        value: Value,
    },
    /// The server failed to validate the field.
    Internal,
}

impl FieldError {
    /// The approximate size in bytes.
    pub fn about_bytes(&self) -> usize {
        let shown = match &self.kind {
            FieldErrorKind::NotSupported { value, supported } => {
                about_bytes(value) + supported.iter().map(|text| text.len() + 4).sum::<usize>()
            }
            FieldErrorKind::Invalid { value }
            | FieldErrorKind::Duplicate { value }
            | FieldErrorKind::NotFound { value }
            | FieldErrorKind::TypeInvalid { value } => about_bytes(value),
            _ => 0,
        };
        self.field.len() + self.detail.len() + shown
    }

    /// A missing required field.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Required, detail)
    }

    /// A value that violates a rule.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Invalid { value: value.into() }, detail)
    }

    /// A value that violates a rule. The text does not repeat it.
    pub fn invalid_unshown(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::InvalidUnshown, detail)
    }

    /// A duplicate value.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldErrorKind::Duplicate { value: value.into() }, "")
    }

    /// A duplicate value. The text does not repeat it.
    pub fn duplicate_unshown(field: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::DuplicateUnshown, "")
    }

    /// A value that is not one of `supported`.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|&value| value.to_owned()).collect();
        Self::new(field, FieldErrorKind::NotSupported { value: value.into(), supported }, "")
    }

    /// A reference to an object that does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldErrorKind::NotFound { value: value.into() }, "")
    }

    /// A field that is not allowed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Forbidden, detail)
    }

    /// A value longer than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Self::new(field, FieldErrorKind::TooLong, format!("may not be more than {limit} {unit}"))
    }

    /// A field with more than `limit` items.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Self::new(field, FieldErrorKind::TooMany { actual }, format!("must have at most {limit} {unit}"))
    }

    /// A value with the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::TypeInvalid { value: value.into() }, detail)
    }

    /// A field that the server failed to validate.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Internal, detail)
    }

    /// The fault as a cause in `details.causes`.
    pub fn cause(&self) -> StatusCause {
        StatusCause { reason: self.kind.reason().to_owned(), message: self.body(), field: self.field.clone() }
    }

    /// The text without the field's path.
    pub fn body(&self) -> String {
        let mut body = self.kind.title().to_owned();
        if let Some(value) = self.kind.value_text() {
            body.push_str(": ");
            body.push_str(&value);
        }
        let detail = match &self.kind {
            FieldErrorKind::NotSupported { supported, .. } if !supported.is_empty() => {
                let quoted: Vec<_> = supported.iter().map(|value| go_format::quote(value)).collect();
                &format!("supported values: {}", quoted.join(", "))
            }
            _ => &self.detail,
        };
        if !detail.is_empty() {
            body.push_str(": ");
            body.push_str(detail);
        }
        body
    }

    fn new(field: impl Into<String>, kind: FieldErrorKind, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind, detail: detail.into() }
    }
}

impl FieldErrorKind {
    /// The reason for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid { .. } | Self::InvalidUnshown => "FieldValueInvalid",
            Self::Duplicate { .. } | Self::DuplicateUnshown => "FieldValueDuplicate",
            Self::NotSupported { .. } => "FieldValueNotSupported",
            Self::NotFound { .. } => "FieldValueNotFound",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany { .. } => "FieldValueTooMany",
            Self::TypeInvalid { .. } => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid { .. } | Self::InvalidUnshown | Self::TypeInvalid { .. } => "Invalid value",
            Self::Duplicate { .. } | Self::DuplicateUnshown => "Duplicate value",
            Self::NotSupported { .. } => "Unsupported value",
            Self::NotFound { .. } => "Not found",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany { .. } => "Too many",
            Self::Internal => "Internal error",
        }
    }

    fn value_text(&self) -> Option<String> {
        match self {
            // Such values have types of their own in upstream's code, so even texts are shown as JSON.
            Self::NotSupported { value, .. } => Some(go_format::json(value)),
            Self::Invalid { value }
            | Self::Duplicate { value }
            | Self::NotFound { value }
            | Self::TypeInvalid { value } => Some(match value {
                Value::String(text) => go_format::quote(text),
                other => go_format::json(other),
            }),
            Self::TooMany { actual } => Some(actual.to_string()),
            Self::InvalidUnshown
            | Self::DuplicateUnshown
            | Self::Required
            | Self::Forbidden
            | Self::TooLong
            | Self::Internal => None,
        }
    }
}

/// Formats as `metadata.name: Required value: name or generateName is required`.
impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// The maximum number of faults that are collected for one object. Further faults are rarely of a new kind.
pub const FAULTS_MAX: usize = 2000;
/// The approximate maximum size of collected faults in bytes. It is larger than the limit of a response.
pub const FAULTS_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of faults in a response.
pub(crate) const TOLD_MAX: usize = 1000;
/// The maximum size of the faults in a response, in bytes. The first fault is always included.
pub(crate) const TOLD_BYTES_MAX: usize = 512 * 1024;

/// Returns the causes and the text for the faults of an object. Each repetition of a fault has its own cause.
///
/// The text of a single fault is that of the fault, the text of several is `[a, b]`. Equal faults appear in it once.
/// Faults beyond the limits are replaced by their number.
pub fn told(errors: &[FieldError]) -> (Vec<StatusCause>, String) {
    let (mut causes, mut seen, mut text, mut bytes) = (Vec::new(), HashSet::new(), String::new(), 0);
    let mut several = false;
    for error in errors {
        let cause = error.cause();
        let length = cause.field.len() + cause.message.len();
        if causes.len() == TOLD_MAX || bytes > 0 && bytes + length > TOLD_BYTES_MAX {
            break;
        }
        bytes += length;
        let line = format!("{}: {}", cause.field, cause.message);
        if !seen.contains(&line) {
            several |= !text.is_empty();
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(&line);
            seen.insert(line);
        }
        causes.push(cause);
    }
    let more = errors.len() - causes.len();
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
        several = true;
    }
    (causes, if several { format!("[{text}]") } else { text })
}

/// The text of several faults, as in [`told`].
pub fn join(errors: &[FieldError]) -> String {
    told(errors).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn each_kind_has_its_text_and_reason() {
        let cases = [
            (
                FieldError::required("metadata.name", "name or generateName is required"),
                "metadata.name: Required value: name or generateName is required",
                "FieldValueRequired",
            ),
            (
                FieldError::invalid("type", "other", "field is immutable"),
                "type: Invalid value: \"other\": field is immutable",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid("spec.selector", json!({"matchLabels": {"a": "c"}}), "field is immutable"),
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid_unshown("spec", "too many replicas"),
                "spec: Invalid value: too many replicas",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid("<nil>", Value::Null, "some rules were not checked"),
                "<nil>: Invalid value: null: some rules were not checked",
                "FieldValueInvalid",
            ),
            (
                FieldError::invalid(".spec.replicas", -1, "should be a non-negative integer"),
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                "FieldValueInvalid",
            ),
            (
                FieldError::not_supported("dryRun", json!(["Some"]), &["All"]),
                "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
                "FieldValueNotSupported",
            ),
            (
                FieldError::duplicate("spec.list[1]", json!({"name": "x"})),
                "spec.list[1]: Duplicate value: {\"name\":\"x\"}",
                "FieldValueDuplicate",
            ),
            (FieldError::not_found("spec.ref", "x"), "spec.ref: Not found: \"x\"", "FieldValueNotFound"),
            (FieldError::forbidden("force", "no"), "force: Forbidden: no", "FieldValueForbidden"),
            (
                FieldError::too_long("spec.displayName", 20),
                "spec.displayName: Too long: may not be more than 20 bytes",
                "FieldValueTooLong",
            ),
            (FieldError::too_many("a", 3, 1), "a: Too many: 3: must have at most 1 item", "FieldValueTooMany"),
            (
                FieldError::type_invalid("spec.replicas", "x", "must be of type integer"),
                "spec.replicas: Invalid value: \"x\": must be of type integer",
                "FieldValueTypeInvalid",
            ),
            (FieldError::internal("a", "boom"), "a: Internal error: boom", "InternalError"),
        ];
        for (error, text, reason) in cases {
            assert_eq!(error.to_string(), text);
            let cause = error.cause();
            assert_eq!((cause.reason.as_str(), cause.field.as_str()), (reason, error.field.as_str()));
            assert_eq!(format!("{}: {}", cause.field, cause.message), text);
        }
    }

    #[test]
    fn several_are_bracketed_and_equal_ones_appear_once() {
        let (one, two) = (FieldError::forbidden("a", "x"), FieldError::forbidden("b", "y"));
        let check = |errors: &[FieldError], causes: usize, text: &str| {
            let told = told(errors);
            assert_eq!((told.0.len(), told.1.as_str()), (causes, text));
        };
        check(&[], 0, "");
        check(std::slice::from_ref(&one), 1, "a: Forbidden: x");
        check(&[one.clone(), one.clone()], 2, "a: Forbidden: x");
        check(&[one, two], 2, "[a: Forbidden: x, b: Forbidden: y]");
    }

    #[test]
    fn the_text_of_many_faults_is_limited() {
        let many: Vec<FieldError> = (0..5000).map(|index| FieldError::forbidden(format!("a[{index}]"), "x")).collect();
        let (causes, text) = told(&many);
        assert_eq!(causes.len(), TOLD_MAX);
        assert!(text.ends_with("a[999]: Forbidden: x, and 4000 more]"), "{}", &text[text.len() - 80..]);
        let long: Vec<FieldError> = (0..9).map(|_| FieldError::invalid("a", "x".repeat(200_000), "no")).collect();
        let (causes, text) = told(&long);
        assert!(causes.len() == 2 && text.len() < TOLD_BYTES_MAX && text.ends_with(", and 7 more]"));
        let (causes, text) = told(&[FieldError::invalid("a", "x".repeat(3_000_000), "no")]);
        assert!(causes.len() == 1 && text.len() > 3_000_000, "a single fault is told whole");
    }
}
