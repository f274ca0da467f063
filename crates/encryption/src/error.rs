//! The failures of a transformation, in upstream's words.
//!
//! The text is for clients, as it is upstream's. It never holds a key or a part of a value.

use tonic::{Code, Status};

/// A value that could not be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransformError {
    text: String,
    /// The answer of a key service, where one gave it.
    code: Option<Code>,
}

impl TransformError {
    /// A failure that no key service has answered with.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: None }
    }

    /// The failure of a call to a key service, as gRPC clients of Go write it.
    pub(crate) fn of_call(status: &Status) -> Self {
        let text = format!("rpc error: code = {} desc = {}", code_name(status.code()), status.message());
        Self { text, code: Some(status.code()) }
    }

    /// The failure with more before it.
    #[must_use]
    pub(crate) fn behind(self, context: &str) -> Self {
        Self { text: format!("{context}{}", self.text), ..self }
    }

    /// The status label of metrics.
    pub(crate) fn label(&self) -> &'static str {
        self.code.map_or("unknown-non-grpc", code_name)
    }

    /// Several failures as one, as upstream joins them: without repetitions.
    pub(crate) fn joined(mut all: Vec<Self>) -> Self {
        if all.len() == 1 {
            return all.remove(0);
        }
        let mut texts: Vec<String> = Vec::new();
        for error in &all {
            if !texts.contains(&error.text) {
                texts.push(error.text.clone());
            }
        }
        let code = all.iter().find_map(|error| error.code);
        Self { text: listed(&texts).unwrap_or_default(), code }
    }
}

/// The texts of several failures as one, as upstream lists them. `None` for no failure.
pub(crate) fn listed(texts: &[String]) -> Option<String> {
    match texts {
        [] => None,
        [text] => Some(text.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// The name of a code of gRPC, as Go writes it.
pub(crate) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_joined_as_upstream_joins_them() {
        let [a, b] = ["a", "b"].map(TransformError::new);
        assert_eq!(TransformError::joined(vec![a.clone()]).to_string(), "a");
        assert_eq!(TransformError::joined(vec![a.clone(), a.clone()]).to_string(), "a");
        assert_eq!(TransformError::joined(vec![a, b]).to_string(), "[a, b]");
    }

    #[test]
    fn a_failed_call_keeps_its_code() {
        let error = TransformError::of_call(&Status::unavailable("no socket")).behind("failed to decrypt DEK, error: ");
        assert_eq!(error.to_string(), "failed to decrypt DEK, error: rpc error: code = Unavailable desc = no socket");
        assert_eq!((error.label(), TransformError::new("x").label()), ("Unavailable", "unknown-non-grpc"));
    }
}
