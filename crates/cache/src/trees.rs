//! The state of a collection at one moment: the entries by key, and the index by label and dispatch field.
//!
//! Both are copy-on-write trees, so the index belongs to every snapshot: a selected list that continues at an old
//! revision uses the index of that revision. The index names keys, not entries: a write that keeps an object's labels
//! leaves the index alone.

use std::sync::{Arc, OnceLock};

use keelson_codec::gzip::DeflateBlock;

use crate::entry::Entry;
use crate::event::Event;
use crate::tree::{CowTree, Item};

/// Stands before the value of the dispatch field in the index. No label key starts with it.
const DISPATCH_MARK: char = '\u{1}';

/// What a leaf of entries may keep beside them.
#[derive(Default)]
pub struct Kept {
    /// `item,item,...` of all its entries, compressed.
    pub(crate) block: OnceLock<DeflateBlock>,
    /// How many bytes all its entries take in some form, and which.
    pub(crate) size: OnceLock<(u16, usize)>,
}

impl Item for Arc<Entry> {
    type Key = str;
    type Separator = Arc<str>;
    type Derived = Kept;

    fn key(&self) -> &str {
        &self.key
    }
    fn separator(&self) -> Arc<str> {
        self.key.clone()
    }
    fn weight(&self) -> u64 {
        self.list_bytes()
    }
}

/// The object with this key can be found under this term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Posting {
    /// `key=value` of a label, or [`DISPATCH_MARK`] and the value of the dispatch field.
    term: Arc<str>,
    pub(crate) key: Arc<str>,
}

impl Item for Posting {
    type Key = Self;
    type Separator = Self;
    type Derived = ();

    fn key(&self) -> &Self {
        self
    }
    fn separator(&self) -> Self {
        self.clone()
    }
    fn weight(&self) -> u64 {
        0
    }
}

/// Something every entry that is looked for must have, and that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexTerm<'a> {
    /// A label with this key and value.
    Label {
        /// The key.
        key: &'a str,
        /// The value.
        value: &'a str,
    },
    /// The collection's dispatch field has this value, which is not empty.
    Dispatch {
        /// The value.
        value: &'a str,
    },
}

impl IndexTerm<'_> {
    fn text(&self) -> Arc<str> {
        match self {
            Self::Label { key, value } => format!("{key}={value}").into(),
            Self::Dispatch { value } => dispatch_text(value).into(),
        }
    }
}

/// Entries and index at one moment. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Trees {
    pub(crate) entries: CowTree<Arc<Entry>>,
    index: CowTree<Posting>,
    /// The place of the dispatch field among the entries' fields.
    dispatch: Option<usize>,
}

impl Trees {
    pub(crate) fn empty(dispatch: Option<usize>) -> Self {
        Self { entries: CowTree::default(), index: CowTree::default(), dispatch }
    }

    /// The state with exactly these entries, whose keys ascend.
    pub(crate) fn from_sorted(entries: Vec<Arc<Entry>>, dispatch: Option<usize>) -> Self {
        let mut postings = Vec::new();
        for entry in &entries {
            let labels = entry.labels.terms().iter().cloned();
            let dispatched = dispatch_term(entry, dispatch).map(Arc::from);
            postings.extend(labels.chain(dispatched).map(|term| Posting { term, key: entry.key.clone() }));
        }
        postings.sort_unstable();
        // Equal dispatch terms stand together now and can share their text.
        for at in 1..postings.len() {
            let (before, rest) = postings.split_at_mut(at);
            if before[at - 1].term == rest[0].term {
                rest[0].term = before[at - 1].term.clone();
            }
        }
        Self { entries: CowTree::from_sorted(entries), index: CowTree::from_sorted(postings), dispatch }
    }

    /// Adds or replaces an entry. Returns the one it replaced.
    pub(crate) fn put(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let previous = self.entries.insert(entry.clone());
        self.reindex(previous.as_deref(), Some(entry));
        previous
    }

    /// Takes the entry with this key out.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.entries.remove(key)?;
        self.reindex(Some(&previous), None);
        Some(previous)
    }

    /// Makes what happened in the event happen here.
    pub(crate) fn redo(&mut self, event: &Event) {
        self.set(event.key(), event.current.as_ref());
    }

    /// Makes what happened in the event not have happened.
    pub(crate) fn undo(&mut self, event: &Event) {
        self.set(event.key(), event.previous.as_ref());
    }

    /// How many items all trees hold.
    pub(crate) fn items(&self) -> usize {
        self.entries.len() + self.index.len()
    }

    fn set(&mut self, key: &str, entry: Option<&Arc<Entry>>) {
        match entry {
            Some(entry) => drop(self.put(entry)),
            None => drop(self.remove(key)),
        }
    }

    fn reindex(&mut self, old: Option<&Entry>, new: Option<&Entry>) {
        let Some(entry) = old.or(new) else { return };
        if !matches!((old, new), (Some(old), Some(new)) if old.labels.same(&new.labels)) {
            let terms = |entry: Option<&Entry>| entry.map_or_else(Vec::new, |entry| entry.labels.terms().to_vec());
            self.move_postings(entry, &terms(old), &terms(new));
        }
        let term = |entry: Option<&Entry>| entry.and_then(|entry| dispatch_term(entry, self.dispatch));
        let (before, after) = (term(old), term(new));
        if before != after {
            let before = before.map(Arc::from);
            let after = after.map(|term| self.shared_term(term));
            self.move_postings(entry, before.as_slice(), after.as_slice());
        }
    }

    fn move_postings(&mut self, entry: &Entry, before: &[Arc<str>], after: &[Arc<str>]) {
        for term in before.iter().filter(|term| !after.contains(term)) {
            self.index.remove(&Posting { term: term.clone(), key: entry.key.clone() });
        }
        for term in after.iter().filter(|term| !before.contains(term)) {
            self.index.insert(Posting { term: term.clone(), key: entry.key.clone() });
        }
    }

    /// The term's text as the index already holds it, if it does.
    fn shared_term(&self, term: String) -> Arc<str> {
        let first = Posting { term: term.into(), key: Arc::default() };
        let found = self.index.nth(self.index.before(&first).count);
        found.filter(|found| found.term == first.term).map_or(first.term.clone(), |found| found.term.clone())
    }

    /// The ranks in the index of the keys from `from` to before `to` that have the term.
    fn posting_ranks(&self, term: IndexTerm<'_>, from: &str, to: Option<&str>) -> (usize, usize) {
        let term = term.text();
        let rank = |key: &str| self.index.before(&Posting { term: term.clone(), key: key.into() }).count;
        // No key holds the last character of Unicode first: this is behind all keys of the term.
        (rank(from), rank(to.unwrap_or("\u{10ffff}")))
    }

    /// The shortest list of keys in the range that holds all that have every one of the terms.
    pub(crate) fn shortest_postings<'a>(
        &'a self,
        terms: &[IndexTerm<'_>],
        from: &str,
        to: Option<&str>,
    ) -> Option<crate::tree::Iter<'a, Posting>> {
        let ranks = terms.iter().map(|term| self.posting_ranks(*term, from, to));
        let (first, last) = ranks.min_by_key(|(first, last)| last.saturating_sub(*first))?;
        Some(self.index.iter_ranks(first, last))
    }
}

fn dispatch_term(entry: &Entry, dispatch: Option<usize>) -> Option<String> {
    dispatch.map(|place| entry.field(place)).filter(|value| !value.is_empty()).map(dispatch_text)
}

fn dispatch_text(value: &str) -> String {
    format!("{DISPATCH_MARK}{value}")
}
