//! The report of a walk: the first type fault, and the unknown fields.
//!
//! A client may send any number of unknown fields. As upstream, the number of reported fields is limited; their bytes
//! are limited too.

use std::collections::HashSet;

use keelson_meta::go_format;

use crate::fault::Fault;

/// The maximum number of reported unknown fields, as upstream.
const MAX_UNKNOWN: usize = 100;
/// The maximum bytes of the paths of unknown fields. Clients determine the length of the map keys in a path.
const MAX_UNKNOWN_BYTES: usize = 64 * 1024;

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkReport {
    fault: Option<Fault>,
    unknown: Vec<String>,
    seen: HashSet<String>,
    /// Bytes of the paths that were written.
    written: usize,
    /// True if defaults were left out because of their size.
    pub(super) overfilled: bool,
}

impl WalkReport {
    /// The first value that does not fit its schema. If there is one, the caller must refuse the object, since the walk
    /// may have ended early.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The message of the fault from the decoder of the built-in kinds.
    pub fn type_error(&self) -> Option<String> {
        self.fault().map(Fault::decoder_text)
    }

    /// The distinct paths of undeclared fields, in the order of the object.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown
    }

    /// The message of each unknown field in strict validation and warnings: `unknown field "spec.bogus"`.
    pub fn unknown_field_messages(&self) -> impl Iterator<Item = String> {
        self.unknown.iter().map(|path| format!("unknown field {}", go_format::quote(path)))
    }

    /// Returns true if defaults were left out because they would make the object too large for any store.
    pub fn is_overfilled(&self) -> bool {
        self.overfilled
    }

    /// Returns true if the walk found no fault and no unknown field.
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

    /// Records a fault after which the decoder continues. Only the first one is kept.
    pub(super) fn note(&mut self, fault: impl FnOnce() -> Fault) {
        self.fault.get_or_insert_with(fault);
    }

    /// Records a fault in a type with its own decoder. The decoder stops at it, and it replaces earlier faults.
    pub(super) fn replace(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_number_and_bytes_of_reported_fields_are_limited() {
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
