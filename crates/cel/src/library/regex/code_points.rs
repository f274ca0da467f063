//! Sets of code points, as ranges.
//!
//! A set is built by adding ranges in any order, and then normalized: sorted, without overlaps. The set for a table
//! borrows the table. Simple case folding is that of the Unicode version `unicode::VERSION`. Expressions can name
//! surrogates, but no text contains them, so the last step drops them.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir};
use regex_syntax::utf8::{Utf8Sequence, Utf8Sequences};

use super::unicode;

/// The last code point.
pub(super) const LAST: u32 = 0x0010_FFFF;

/// The first and the last code point of a range.
pub(super) type Range = (u32, u32);

/// The approximate memory for matching one byte of a character class, in hundredths of the memory of a state.
const STEP: u64 = 50;

/// A set of code points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CodePoints {
    ranges: Cow<'static, [Range]>,
}

impl CodePoints {
    /// Creates the normalized set of these ranges.
    pub(super) fn new(ranges: &[Range]) -> Self {
        let mut set = Self { ranges: ranges.to_vec().into() };
        set.normalize();
        set
    }

    /// Creates the set of a table, whose ranges must be normalized.
    pub(super) const fn of_table(ranges: &'static [Range]) -> Self {
        Self { ranges: Cow::Borrowed(ranges) }
    }

    /// The code points of the library's class.
    pub(super) fn of_class(class: &ClassUnicode) -> Self {
        Self { ranges: class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()))).collect() }
    }

    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns true if a normalized set has all code points of a range.
    pub(super) fn contains(&self, (first, last): Range) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start <= first);
        after > 0 && last <= self.ranges[after - 1].1
    }

    pub(super) fn push(&mut self, first: u32, last: u32) {
        self.ranges.to_mut().push((first, last));
    }

    pub(super) fn extend(&mut self, ranges: &[Range]) {
        self.ranges.to_mut().extend_from_slice(ranges);
    }

    /// Sorts the ranges and joins those that overlap or touch.
    pub(super) fn normalize(&mut self) {
        let ranges = self.ranges.to_mut();
        ranges.sort_unstable();
        let mut kept = 0;
        for at in 1..ranges.len() {
            let (first, last) = ranges[at];
            let before = &mut ranges[kept].1;
            if first <= before.saturating_add(1) {
                *before = last.max(*before);
            } else {
                kept += 1;
                ranges[kept] = (first, last);
            }
        }
        ranges.truncate(kept + 1);
    }

    /// The complement of this set, which must be normalized.
    pub(super) fn negated(&self) -> Self {
        let mut negated = Self::default();
        let mut next = 0;
        for &(first, last) in self.ranges() {
            if next < first {
                negated.push(next, first - 1);
            }
            next = last + 1;
        }
        if next <= LAST {
            negated.push(next, LAST);
        }
        negated
    }

    /// Adds all code points that differ only by case from a code point of this set. The set must be normalized, and so
    /// is the result.
    ///
    /// Cost: proportional to the number of its code points that have case variants.
    pub(super) fn fold(&mut self) {
        for at in 0..self.ranges.len() {
            let (first, last) = self.ranges[at];
            let from = FOLDS.partition_point(|(code, _)| *code < first);
            for &(_, other) in FOLDS[from..].iter().take_while(|(code, _)| *code <= last) {
                self.push(other, other);
            }
        }
        self.normalize();
    }

    /// The set of a code point and its case variants.
    pub(super) fn folded(code: u32) -> Self {
        let mut set = Self { ranges: vec![(code, code)].into() };
        set.fold();
        set
    }

    /// The regular expression that matches one code point of this set, which must be normalized.
    pub(super) fn into_hir(self) -> Hir {
        Hir::class(Class::Unicode(ClassUnicode::new(self.ranges.into_owned().into_iter().filter_map(range))))
    }

    /// The approximate number of states to which this normalized set compiles: one for ASCII, otherwise one for each
    /// distinct step through the bytes of its characters.
    pub(super) fn states(&self) -> u64 {
        let mut steps = 0;
        let mut before: Option<Utf8Sequence> = None;
        // One iterator is reused, since creating one allocates.
        let mut sequences = Utf8Sequences::new('\0', '\0');
        for range in self.ranges.iter().copied().filter_map(range).filter(|range| !range.end().is_ascii()) {
            sequences.reset(range.start(), range.end());
            for sequence in sequences.by_ref() {
                let shared = before.as_ref().map_or(0, |before| {
                    let pairs = before.as_slice().iter().zip(sequence.as_slice());
                    pairs.take_while(|(one, other)| one == other).count()
                });
                steps += (sequence.len() - shared) as u64;
                before = Some(sequence);
            }
        }
        1 + (steps * STEP).div_ceil(100)
    }
}

/// Converts a range, without surrogates at its ends.
///
/// A range that contains all surrogates is not split, since the library skips them.
fn range((first, last): Range) -> Option<ClassUnicodeRange> {
    let first = char::from_u32(first).unwrap_or('\u{E000}');
    let last = char::from_u32(last).unwrap_or('\u{D7FF}');
    (first <= last).then(|| ClassUnicodeRange::new(first, last))
}

/// Each code point with its case variants, in order.
static FOLDS: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let mut folds = Vec::new();
    for &(first, last) in unicode::cased().ranges() {
        for code in first..=last {
            let Some(one) = char::from_u32(code) else { continue };
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(one, one)]);
            class.case_fold_simple();
            let others = class.iter().flat_map(|range| u32::from(range.start())..=u32::from(range.end()));
            folds.extend(
                others.filter(|other| *other != code && unicode::is_assigned(*other)).map(|other| (code, other)),
            );
        }
    }
    folds
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_negated_and_folded() {
        let set = CodePoints::new(&[(7, 9), (1, 2), (3, 3), (8, 20)]);
        assert_eq!(set.ranges(), [(1, 3), (7, 20)]);
        assert_eq!(set.negated().ranges(), [(0, 0), (4, 6), (21, LAST)]);
        assert_eq!(set.negated().negated(), set);
        assert_eq!(CodePoints::default().negated().ranges(), [(0, LAST)]);
        assert_eq!(CodePoints::folded(u32::from('k')).ranges(), [(0x4b, 0x4b), (0x6b, 0x6b), (0x212a, 0x212a)]);
    }

    #[test]
    fn surrogates_match_nothing() {
        let hir = CodePoints::new(&[(0xD800, 0xDFFF)]).into_hir();
        assert_eq!(hir, Hir::fail());
        let hir = CodePoints::new(&[(0xD000, 0xD900)]).into_hir();
        assert_eq!(hir.properties().minimum_len(), Some(3));
    }
}
