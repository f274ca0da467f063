//! What a walk has found.

use std::collections::HashSet;

use keelson_meta::go_format;

/// How many unknown fields are reported at most; upstream stops there too.
const MAX_UNKNOWN: usize = 100;

/// What a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    type_error: Option<String>,
    unknown: Vec<String>,
    seen: HashSet<String>,
}

impl WalkReport {
    /// The message for the value that is not of its type, in upstream's words. The object must then be refused: the walk
    /// may have ended early.
    pub fn type_error(&self) -> Option<&str> {
        self.type_error.as_deref()
    }

    /// The paths of fields that the schema does not declare, in the order in which they stand, each once.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// For each unknown field the message that strict validation and warnings use: `unknown field "spec.bogus"`.
    pub fn unknown_field_messages(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().map(|path| format!("unknown field {}", go_format::quote(path)))
    }

    /// Whether the walk found nothing to report.
    pub fn is_clean(&self) -> bool {
        self.type_error.is_none() && self.unknown.is_empty()
    }

    pub(super) fn unknown(&mut self, path: impl FnOnce() -> String) {
        if self.unknown.len() < MAX_UNKNOWN {
            let path = path();
            if self.seen.insert(path.clone()) {
                self.unknown.push(path);
            }
        }
    }

    /// Keeps the first type error: Go reads on after one, and reports the first.
    pub(super) fn type_mismatch(&mut self, message: impl FnOnce() -> String) {
        self.type_error.get_or_insert_with(message);
    }

    /// Replaces what was found: an error of a type that decodes itself ends Go's decoder at once.
    pub(super) fn fatal(&mut self, message: String) {
        self.type_error = Some(message);
    }
}
