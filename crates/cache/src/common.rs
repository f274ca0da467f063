//! Labels and fields that many objects of a collection have: they are counted, and not indexed.
//!
//! Selecting by such a label scans the range, where many objects usually match, while an index would have to note
//! each of them. So most of the labels of a usual object, which its neighbours have too, cost a write nothing but a number.
//!
//! Invariant: the number of a term is that of the objects that have it.

use std::sync::Arc;

/// A term becomes common when at least one in so many objects has it.
const COMMON: usize = 2;
/// A common term becomes rare when fewer than one in so many objects have it. Further away, so that whole collections are
/// only looked through once in many writes.
const RARE: usize = 4;
/// No term of a collection with fewer objects is common.
const MIN_OBJECTS: usize = 16;

/// Common terms and how many objects have each. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct CommonTerms {
    /// Ascending. At most [`RARE`] times as many as an object has terms.
    terms: Arc<Vec<Counted>>,
}

#[derive(Clone)]
struct Counted {
    text: Arc<[u8]>,
    count: usize,
}

/// Whether a term that so many of the objects have is common, if it was not.
pub(crate) const fn is_common(count: usize, objects: usize) -> bool {
    objects >= MIN_OBJECTS && count * COMMON >= objects
}

impl CommonTerms {
    pub(crate) fn contains(&self, text: &[u8]) -> bool {
        self.find(text).is_ok()
    }

    /// Notes that so many objects have the term.
    pub(crate) fn add(&mut self, text: &[u8], count: usize) {
        if let Err(place) = self.find(text) {
            Arc::make_mut(&mut self.terms).insert(place, Counted { text: text.into(), count });
        }
    }

    /// Notes that one more has the term, if it is common; whether it is.
    pub(crate) fn gain(&mut self, text: &[u8]) -> bool {
        self.change(text, |count| count + 1)
    }

    /// Notes that one fewer has the term, if it is common; whether it is.
    pub(crate) fn lose(&mut self, text: &[u8]) -> bool {
        self.change(text, |count| count - 1)
    }

    /// Takes out the terms that have become rare among so many objects.
    pub(crate) fn take_rare(&mut self, objects: usize) -> Vec<Arc<[u8]>> {
        let is_rare = |term: &Counted| term.count * RARE < objects;
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
    /// The terms and their numbers.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.terms.iter().map(|term| (std::str::from_utf8(&term.text).expect("terms are texts"), term.count))
    }
}
