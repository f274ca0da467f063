//! The report of a walk: the first fault of a type, the unknown fields, and how many of them are kept.
//!
//! A client may send any number of unknown fields; the report is bounded in number and bytes, as upstream's is.

use std::collections::HashSet;

use keelson_meta::go_format;

use crate::fault::Fault;

/// How many unknown fields are reported at most; upstream stops there too.
const MAX_UNKNOWN: usize = 100;
/// How many bytes of their paths are written. A path is as long as the keys that a client chose for it.
const MAX_UNKNOWN_BYTES: usize = 64 * 1024;

/// What a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    fault: Option<Fault>,
    unknown: Vec<String>,
    seen: HashSet<String>,
    /// Bytes of the paths that were written.
    written: usize,
    /// Whether defaults were left out for their size.
    pub(super) overfilled: bool,
}

impl WalkReport {
    /// The first value that does not fit its schema. If there is one the object must be refused: the walk may have ended early.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The fault in the words of the built-in kinds' decoder.
    pub fn type_error(&self) -> Option<String> {
        self.fault().map(Fault::decoder_text)
    }

    /// The paths of fields that the schema does not declare, in the order in which they stand, each once.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// For each unknown field the message that strict validation and warnings use: `unknown field "spec.bogus"`.
    pub fn unknown_field_messages(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().map(|path| format!("unknown field {}", go_format::quote(path)))
    }

    /// Whether defaults were left out, since they would make the object too large for any store.
    pub fn is_overfilled(&self) -> bool {
        self.overfilled
    }

    /// Whether the walk found nothing to report.
    pub fn is_clean(&self) -> bool {
        self.fault.is_none() && self.unknown.is_empty()
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

    /// Notes a fault after which the decoder reads on. It reports the first of these.
    pub(super) fn note(&mut self, fault: impl FnOnce() -> Fault) {
        self.fault.get_or_insert_with(fault);
    }

    /// Notes the fault of a type that decodes itself, which ends the decoder at once and replaces what it found before.
    pub(super) fn replace(&mut self, fault: Fault) {
        self.fault = Some(fault);
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
