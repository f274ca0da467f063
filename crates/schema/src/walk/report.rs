//! The report of a walk: faults of types, unknown fields, and how many of them are kept.
//!
//! A client may send any number of faults; the report is bounded in number and bytes, as upstream's is.

use std::collections::HashSet;

use keelson_meta::go_format;

use crate::fault::Fault;

/// How many unknown fields are reported at most; upstream stops there too.
const MAX_UNKNOWN: usize = 100;
/// How many bytes of their paths are written. A path is as long as the keys that a client chose for it.
const MAX_UNKNOWN_BYTES: usize = 64 * 1024;
/// How many faults are kept where all are asked for. More tell a client nothing.
const MAX_FAULTS: usize = 100;

/// What a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    faults: Vec<Fault>,
    every_fault: bool,
    unknown: Vec<String>,
    seen: HashSet<String>,
    /// Bytes of the paths that were written.
    written: usize,
    /// Whether defaults were left out for their size.
    pub(super) overfilled: bool,
}

impl WalkReport {
    /// A report that keeps every fault, up to a bound, rather than the first.
    pub fn of_every_fault() -> Self {
        Self { every_fault: true, ..Self::default() }
    }

    /// The values that do not fit their schemas, in the order in which they were met. If there are any, the object must be
    /// refused: the walk may have ended early.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The first fault in the words of the built-in kinds' decoder, which knows no others.
    pub fn type_error(&self) -> Option<String> {
        self.faults.first().map(Fault::decoder_text)
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
        self.faults.is_empty() && self.unknown.is_empty()
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
    pub(super) fn fault(&mut self, fault: impl FnOnce() -> Fault) {
        if self.faults.is_empty() || (self.every_fault && self.faults.len() < MAX_FAULTS) {
            self.faults.push(fault());
        }
    }

    /// Notes the fault of a type that decodes itself, which ends the decoder at once and replaces what it found before.
    /// Whether the walk goes on all the same, since every fault is wanted.
    pub(super) fn fatal(&mut self, fault: Fault) -> bool {
        if self.every_fault {
            self.fault(|| fault);
        } else {
            self.faults = vec![fault];
        }
        self.every_fault
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::ValueKind;

    use super::*;
    use crate::fault::FaultKind;
    use crate::layout::Type;

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
        let mut report = WalkReport::of_every_fault();
        let kind = FaultKind::Type { expected: Type::String, go_type: String::new(), found: ValueKind::Null };
        let fault = Fault { path: String::new(), decoder_path: String::new(), kind };
        (0..200).for_each(|_| report.fault(|| fault.clone()));
        assert_eq!(report.faults().len(), MAX_FAULTS);
    }
}
