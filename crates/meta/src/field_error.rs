//! A fault in one field of an object or of request options, with the text clients see.
//!
//! The form is upstream's `field.Error`, down to how Go shows a value. A `Status` is made of it in `error`.

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
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// More about it, empty for nothing.
    pub detail: String,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorKind {
    /// It must be given and is not.
    Required,
    /// Its value breaks a rule.
    Invalid {
        /// The value given.
        value: Value,
    },
    /// Its value breaks a rule, and says nothing more that is worth to be shown.
    InvalidUnshown,
    /// Its value appears twice where values must differ.
    Duplicate {
        /// The value given.
        value: Value,
    },
    /// Its value appears twice where values must differ, and says nothing more that is worth to be shown.
    DuplicateUnshown,
    /// Its value is not one of those that are known.
    NotSupported {
        /// The value given.
        value: Value,
        /// The values that are known.
        supported: Vec<String>,
    },
    /// What it refers to does not exist.
    NotFound {
        /// The value given.
        value: Value,
    },
    /// It may not be given here.
    Forbidden,
    /// Its value is too long. The value is not repeated, as it may be huge.
    TooLong,
    /// It has too many items.
    TooMany {
        /// How many it has.
        actual: usize,
    },
    /// Its value has the wrong type for the schema.
    TypeInvalid {
        /// The value given.
        value: Value,
    },
    /// The server failed to judge it.
    Internal,
}

impl FieldError {
    /// About how many bytes it has.
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

    /// The field must be given.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Required, detail)
    }

    /// The value breaks a rule.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Invalid { value: value.into() }, detail)
    }

    /// The value breaks a rule, but is not shown.
    pub fn invalid_unshown(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::InvalidUnshown, detail)
    }

    /// The value appears twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldErrorKind::Duplicate { value: value.into() }, "")
    }

    /// The value appears twice, but is not shown.
    pub fn duplicate_unshown(field: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::DuplicateUnshown, "")
    }

    /// The value is not one of `supported`.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|&value| value.to_owned()).collect();
        Self::new(field, FieldErrorKind::NotSupported { value: value.into(), supported }, "")
    }

    /// What the value names does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldErrorKind::NotFound { value: value.into() }, "")
    }

    /// The field may not be given.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Forbidden, detail)
    }

    /// The value is longer than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Self::new(field, FieldErrorKind::TooLong, format!("may not be more than {limit} {unit}"))
    }

    /// The field has more than `limit` items.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Self::new(field, FieldErrorKind::TooMany { actual }, format!("must have at most {limit} {unit}"))
    }

    /// The value has the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::TypeInvalid { value: value.into() }, detail)
    }

    /// The server failed while it judged the field.
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
    /// The word for programs.
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
            // Such values have types of their own in upstream's code, which are shown as JSON, texts included.
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

/// `metadata.name: Required value: name or generateName is required`.
impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// How many faults of one object are looked for. Who has more of them reads the first and mends the rest likewise.
pub const FAULTS_MAX: usize = 2000;
/// About how many bytes of them are looked for at the most: more than is told.
pub const FAULTS_BYTES_MAX: usize = 1024 * 1024;
/// How many faults an answer tells of.
pub(crate) const TOLD_MAX: usize = 1000;
/// How many bytes an answer tells of faults: of those that are told, the first is always.
pub(crate) const TOLD_BYTES_MAX: usize = 512 * 1024;

/// What an answer tells of the faults of an object: the causes as often as they were found, and one text.
///
/// The text has one fault alone as it is, several as `[a, b]`, and equal ones once. What an attacker can make many of is
/// told as far as it fits, and then how many more there are.
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

/// The text of several faults, as [`told`] has it.
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
    fn what_is_told_of_many_faults_is_bounded() {
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
