//! What a walk has found.

use std::collections::HashSet;

use keelson_meta::go_format;

/// How many unknown fields are reported at most; upstream stops there too.
const MAX_UNKNOWN: usize = 100;
/// How many bytes of their paths are written. A path is as long as the keys that a client chose for it.
const MAX_UNKNOWN_BYTES: usize = 64 * 1024;

/// What a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    type_error: Option<String>,
    unknown: Vec<String>,
    seen: HashSet<String>,
    /// Bytes of the paths that were written.
    written: usize,
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
        if self.unknown.len() < MAX_UNKNOWN && self.written < MAX_UNKNOWN_BYTES {
            let path = path();
            self.written += path.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_bounded() {
        let check = |length: usize, noted: usize| {
            let mut report = WalkReport::default();
            (0..200).for_each(|number| report.unknown(|| format!("{number}{}", "p".repeat(length))));
            assert_eq!(report.unknown_fields().len(), noted, "paths of {length} bytes");
        };
        check(10, MAX_UNKNOWN);
        check(30_000, 3);
        check(1_000_000, 1);
    }
}
