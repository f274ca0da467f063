//! The state of a collection: the entries by key, and the index by label and dispatch field.
//!
//! Both are copy-on-write, so every snapshot has its index. A selected list that continues at an old revision uses the
//! index of that revision. The index has keys instead of entries, so a write that leaves the labels unchanged does not
//! change the index. Terms that about every second object has are not indexed. A scan of the range finds their objects.

mod build;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use keelson_codec::gzip::DeflateBlock;

use crate::common::{CommonTerms, is_common};
use crate::cores::both;
use crate::entry::Entry;
use crate::event::Event;
use crate::postings::{Keys, Postings, Term, TermKeys};
use crate::spec::Layout;
use crate::tree::{CowTree, Item};

/// The prefix of the dispatch field's value in the index. No label key starts with it.
const DISPATCH_MARK: &str = "\u{1}";
/// The number of additions to the index between checks for common terms. It is a prime, so that regular patterns in the
/// terms of objects do not hide a term from the checks.
const ADDITIONS_A_LOOK: u32 = 61;

/// Data derived from a leaf of entries.
#[derive(Default)]
pub struct LeafCache {
    /// The list items of all entries of the leaf (`item,item,...`), compressed.
    pub(crate) block: OnceLock<DeflateBlock>,
    /// The size of all entries of the leaf in one form, with the number of the form.
    pub(crate) size: OnceLock<(u16, usize)>,
}

impl Item for Arc<Entry> {
    type Derived = LeafCache;

    fn weight(&self) -> u64 {
        self.list_bytes()
    }
}

/// A term that entries must have, and that the index may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexTerm<'a> {
    /// A label with this key and value.
    Label {
        /// The key.
        key: &'a str,
        /// The value.
        value: &'a str,
    },
    /// A field with this non-empty value. Only the dispatch field of a collection is indexed.
    Field {
        /// The path of the field: `spec.nodeName`.
        path: &'a str,
        /// The value.
        value: &'a str,
    },
}

impl IndexTerm<'_> {
    /// Returns `None` for a term that is not indexed.
    fn term(&self, layout: &Layout) -> Option<Term> {
        match self {
            Self::Label { key, value } => Term::new(&[key, "=", value]),
            Self::Field { path, value } => {
                layout.dispatched(path)?;
                Term::new(&[DISPATCH_MARK, value])
            }
        }
    }
}

/// The entries and the index of one state. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Trees {
    pub(crate) entries: CowTree<Arc<Entry>>,
    index: Postings,
    /// The terms that are counted and not in the index.
    common: CommonTerms,
    /// The number of additions until the next check for common terms.
    until_look: u32,
    /// The layout of all entries.
    layout: Arc<Layout>,
}

impl Trees {
    pub(crate) fn empty(layout: Arc<Layout>) -> Self {
        Self { layout, ..Self::default() }
    }

    /// The layout of the entries.
    pub(crate) const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Builds the state of these entries, which are sorted by key.
    pub(crate) fn from_sorted(entries: &[Arc<Entry>], layout: Arc<Layout>) -> Self {
        let ((index, common), entries) = both(
            entries.len(),
            || build::index(entries, layout.dispatch),
            || CowTree::from_sorted(entries.iter().map(|entry| (&*entry.key, entry.clone()))),
        );
        Self { entries, index, common, until_look: 0, layout }
    }

    /// Adds or replaces an entry. Returns the replaced entry.
    pub(crate) fn put(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let previous = self.entries.insert(&*entry.key, entry.clone());
        self.reindex(previous.as_deref(), Some(entry));
        previous
    }

    /// Removes the entry with this key.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.entries.remove(key)?;
        self.reindex(Some(&previous), None);
        Some(previous)
    }

    /// Applies an event.
    pub(crate) fn redo(&mut self, event: &Event) {
        self.set(event.key(), event.current.as_ref());
    }

    /// Reverts an event.
    pub(crate) fn undo(&mut self, event: &Event) {
        self.set(event.key(), event.previous.as_ref());
    }

    /// The number of items in all trees.
    pub(crate) fn items(&self) -> usize {
        self.entries.len() + self.index.len()
    }

    fn set(&mut self, key: &str, entry: Option<&Arc<Entry>>) {
        match entry {
            Some(entry) => drop(self.put(entry)),
            None => drop(self.remove(key)),
        }
    }

    fn reindex<'e>(&mut self, old: Option<&'e Entry>, new: Option<&'e Entry>) {
        let Some(key) = old.or(new).map(|entry| &*entry.key) else { return };
        if !matches!((old, new), (Some(old), Some(new)) if old.labels.same(&new.labels)) {
            // The count of a common term of both entries is unchanged.
            let alone = |entry: Option<&'e Entry>, other: Option<&'e Entry>| {
                let terms = entry.map_or(&[][..], |entry| entry.labels.terms()).iter();
                terms.filter(move |term| !other.is_some_and(|other| other.labels.has(term.as_bytes())))
            };
            alone(old, new).for_each(|term| self.unpost(&[term], key));
            alone(new, old).for_each(|term| self.post(&[term], key));
        }
        let before = old.and_then(|entry| dispatched(entry, self.layout.dispatch));
        let after = new.and_then(|entry| dispatched(entry, self.layout.dispatch));
        if before != after {
            before.into_iter().for_each(|value| self.unpost(&[DISPATCH_MARK, value], key));
            after.into_iter().for_each(|value| self.post(&[DISPATCH_MARK, value], key));
        }
        let rare = self.common.take_rare(self.entries.len());
        if !rare.is_empty() {
            self.post_again(&rare);
        }
    }

    /// Indexes terms that are no longer common. Costs one scan of all entries, and one pass over the index for each
    /// term.
    fn post_again(&mut self, terms: &[Arc<[u8]>]) {
        let mut having: Vec<Vec<&str>> = vec![Vec::new(); terms.len()];
        for entry in self.entries.iter() {
            let keys = terms.iter().zip(&mut having).filter(|(term, _)| has(entry, term, self.layout.dispatch));
            keys.for_each(|(_, keys)| keys.push(&entry.key));
        }
        for (term, keys) in terms.iter().zip(having) {
            self.index.replace(&mut Term::from_text(term), keys);
        }
    }

    fn post(&mut self, term: &[&str], key: &str) {
        let Some(mut term) = Term::new(term) else { return };
        if self.common.gain(term.text()) {
            return;
        }
        self.index.insert(&mut term, key);
        match self.until_look.checked_sub(1) {
            Some(left) => self.until_look = left,
            None => {
                self.until_look = ADDITIONS_A_LOOK - 1;
                self.look(&mut term);
            }
        }
    }

    /// If a term has become common, removes it from the index and counts it.
    fn look(&mut self, term: &mut Term) {
        let count = self.index.stretch(term, "", None).len();
        if is_common(count, self.entries.len()) {
            self.index.replace(term, []);
            self.common.add(term.text(), count);
        }
    }

    fn unpost(&mut self, term: &[&str], key: &str) {
        let Some(mut term) = Term::new(term) else { return };
        if !self.common.lose(term.text()) {
            self.index.remove(&mut term, key);
        }
    }

    /// The keys in a range with the rarest of the terms. `None` if none of them is indexed.
    pub(crate) fn find(&self, terms: &[IndexTerm<'_>], from: &str, to: Option<&str>) -> Option<Keys> {
        let terms =
            terms.iter().filter_map(|term| term.term(&self.layout)).filter(|term| !self.common.contains(term.text()));
        let shortest = terms.map(|mut term| self.index.stretch(&mut term, from, to)).min_by_key(TermKeys::len)?;
        Some(self.index.keys(&shortest))
    }
}

/// Returns true if an entry has a term.
fn has(entry: &Entry, term: &[u8], dispatch: Option<usize>) -> bool {
    match term.strip_prefix(DISPATCH_MARK.as_bytes()) {
        Some(value) => dispatched(entry, dispatch).is_some_and(|there| there.as_bytes() == value),
        None => entry.labels.has(term),
    }
}

/// The value of the dispatch field, if any.
fn dispatched(entry: &Entry, dispatch: Option<usize>) -> Option<&str> {
    dispatch.map(|place| entry.field(place)).filter(|value| !value.is_empty())
}
