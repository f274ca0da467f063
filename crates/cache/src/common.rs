//! Terms (labels and fields) that many objects of a collection have. They are counted and not indexed.
//!
//! A selection by such a term scans the range, in which usually many objects match. An index would have an entry for
//! each of them. Most labels of a typical object are common, so a write only updates their counts.
//!
//! Invariant: the count of a common term is the number of objects that have it.

use std::sync::Arc;

/// A term becomes common when at least one in this number of objects has it.
const COMMON: usize = 2;
/// A common term becomes rare when fewer than one in this number of objects have it. The difference between both limits
/// avoids frequent scans of the whole collection.
const RARE: usize = 4;
/// The minimum number of objects in a collection with common terms.
const MIN_OBJECTS: usize = 16;

/// Common terms with their counts. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct CommonTerms {
    /// The terms, sorted. At most [`RARE`] times the terms of an object.
    terms: Arc<Vec<TermCount>>,
}

#[derive(Clone)]
struct TermCount {
    text: Arc<[u8]>,
    count: usize,
}

/// Returns true if a rare term with this count becomes common.
pub(crate) const fn is_common(count: usize, objects: usize) -> bool {
    objects >= MIN_OBJECTS && count * COMMON >= objects
}

impl CommonTerms {
    pub(crate) fn contains(&self, text: &[u8]) -> bool {
        self.find(text).is_ok()
    }

    /// Adds a term with its count.
    pub(crate) fn add(&mut self, text: &[u8], count: usize) {
        if let Err(place) = self.find(text) {
            Arc::make_mut(&mut self.terms).insert(place, TermCount { text: text.into(), count });
        }
    }

    /// Increments the count of a common term. Returns false for a term that is not common.
    pub(crate) fn gain(&mut self, text: &[u8]) -> bool {
        self.change(text, |count| count + 1)
    }

    /// Decrements the count of a common term. Returns false for a term that is not common.
    pub(crate) fn lose(&mut self, text: &[u8]) -> bool {
        self.change(text, |count| count - 1)
    }

    /// Removes the terms that are rare among this number of objects, and returns them.
    pub(crate) fn take_rare(&mut self, objects: usize) -> Vec<Arc<[u8]>> {
        let is_rare = |term: &TermCount| term.count * RARE < objects;
        if !self.terms.iter().any(is_rare) {
            return Vec::new();
        }
        Arc::make_mut(&mut self.terms).extract_if(.., |term| is_rare(term)).map(|term| term.text).collect()
    }

    fn change(&mut self, text: &[u8], change: impl Fn(usize) -> usize) -> bool {
        let Ok(place) = self.find(text) else { return false };
        let term = &mut Arc::make_mut(&mut self.terms)[place];
        term.count = change(term.count);
        true
    }

    fn find(&self, text: &[u8]) -> Result<usize, usize> {
        self.terms.binary_search_by(|term| (*term.text).cmp(text))
    }
}

#[cfg(test)]
impl CommonTerms {
    /// The terms with their counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.terms.iter().map(|term| (std::str::from_utf8(&term.text).expect("terms are texts"), term.count))
    }
}
