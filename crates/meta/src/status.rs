//! `Status`, the body of every response that is not an object or a list.
//!
//! A `Status` is pure data with the exact form of the API: the order of fields, and which fields are omitted when
//! empty. Only [`crate::error`] turns errors into a `Status`.

use serde::{Deserialize, Serialize};

/// The outcome of a request, in the form in which the API encodes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Always `v1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// List metadata, with a continue token if a list expired.
    #[serde(default)]
    pub metadata: StatusMetadata,
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: Outcome,
    /// A text for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A reason for programs, such as `NotFound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The object, resource or field that the outcome is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP code. 0 in a success, where it is omitted.
    #[serde(default, skip_serializing_if = "is_zero_code")]
    pub code: u16,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The request succeeded.
    Success,
    /// The request failed.
    #[default]
    Failure,
}

/// The list metadata of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusMetadata {
    /// `resourceVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// `continue`: a token to continue an expired list.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// `remainingItemCount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// The object, resource or fields that a `Status` is about. Empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource name or the kind, depending on the error.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The faults of an invalid object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// The time until a retry in seconds. 0 without advice.
    #[serde(skip_serializing_if = "is_zero_seconds")]
    pub retry_after_seconds: u32,
}

/// One of several faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// A reason for programs, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A text for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the faulty field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// A success, such as the response to a deletion.
    pub fn success(details: StatusDetails) -> Self {
        Self { status: Outcome::Success, details: Some(details), ..Self::failure(0, None, String::new()) }
    }

    /// A failure without details.
    pub fn failure(code: u16, reason: Option<&str>, message: String) -> Self {
        Self {
            kind: kind(),
            api_version: api_version(),
            metadata: StatusMetadata::default(),
            status: Outcome::Failure,
            message,
            reason: reason.map(str::to_owned),
            details: None,
            code,
        }
    }

    /// Returns the status with details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// The HTTP code of the response with this status.
    pub fn http_code(&self) -> u16 {
        match (self.code, self.status) {
            (0, Outcome::Success) => 200,
            (0, Outcome::Failure) => 500,
            (code, _) => code,
        }
    }
}

fn kind() -> String {
    "Status".to_owned()
}

fn api_version() -> String {
    "v1".to_owned()
}

// Serde requires references in the signature.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_code(code: &u16) -> bool {
    *code == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_seconds(seconds: &u32) -> bool {
    *seconds == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &Status, expected: &str) {
        assert_eq!(serde_json::to_string(status).expect("a status serialises"), expected);
        assert_eq!(&serde_json::from_str::<Status>(expected).expect("its text reads back"), status);
    }

    #[test]
    fn success_has_no_code_and_no_message() {
        let details = StatusDetails {
            name: "e1".into(),
            kind: "configmaps".into(),
            uid: "4a0a".into(),
            ..StatusDetails::default()
        };
        let status = Status::success(details);
        assert_eq!(status.http_code(), 200);
        check(
            &status,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"e1","kind":"configmaps","uid":"4a0a"}}"#,
        );
    }

    #[test]
    fn empty_details_stay_when_given() {
        let status = Status::failure(404, Some("NotFound"), "gone".into());
        check(
            &status,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"NotFound","code":404}"#,
        );
        check(
            &status.with_details(StatusDetails::default()),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"NotFound","details":{},"code":404}"#,
        );
    }

    #[test]
    fn every_field_has_its_place() {
        let mut status = Status::failure(504, Some("Timeout"), "m".into()).with_details(StatusDetails {
            name: "n".into(),
            group: "g".into(),
            kind: "k".into(),
            uid: "u".into(),
            causes: vec![StatusCause { reason: "r".into(), message: "cm".into(), field: "f".into() }],
            retry_after_seconds: 1,
        });
        status.metadata = StatusMetadata {
            resource_version: Some("5".into()),
            continue_token: Some("t".into()),
            remaining_item_count: Some(2),
        };
        check(
            &status,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"t","remainingItemCount":2},"status":"Failure","message":"m","reason":"Timeout","details":{"name":"n","group":"g","kind":"k","uid":"u","causes":[{"reason":"r","message":"cm","field":"f"}],"retryAfterSeconds":1},"code":504}"#,
        );
    }
}
