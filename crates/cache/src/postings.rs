//! The index of a collection: the keys of each term, as a copy-on-write set of pairs.
//!
//! Most writes copy a part of the index, since snapshots share it. To make copies cheap, a pair is not an object with a
//! reference count. It is the key of a tree item, with the bytes `term NUL key`. Terms with a NUL are therefore not
//! supported. No label and no selectable field of a valid object has one.

use smallvec::SmallVec;

use crate::tree::{CowTree, KeyCursor};

const SEPARATOR: u8 = 0;
/// The capacity for a term and key of typical length, in bytes.
const COMMON_LENGTH: usize = 128;

/// A set of terms and keys. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Postings {
    tree: CowTree<()>,
}

/// A term to look up keys by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term {
    /// The bytes of the term and the separator, with spare capacity for a key.
    bytes: SmallVec<[u8; COMMON_LENGTH]>,
    len: usize,
}

impl Term {
    /// Creates the term of these concatenated texts. `None` if an index can't contain it.
    pub(crate) fn new(texts: &[&str]) -> Option<Self> {
        let mut bytes = SmallVec::new();
        texts.iter().for_each(|text| bytes.extend_from_slice(text.as_bytes()));
        (!bytes.contains(&SEPARATOR)).then(|| Self::separated(bytes))
    }

    /// The term with this [`text`](Self::text).
    pub(crate) fn from_text(text: &[u8]) -> Self {
        Self::separated(text.into())
    }

    fn separated(mut bytes: SmallVec<[u8; COMMON_LENGTH]>) -> Self {
        bytes.push(SEPARATOR);
        Self { len: bytes.len(), bytes }
    }

    /// The text of the term.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[..self.len - 1]
    }

    /// The bytes of the pair of the term and a key.
    fn with(&mut self, key: &str) -> &[u8] {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(key.as_bytes());
        &self.bytes
    }
}

impl Postings {
    /// Builds the index of these terms and their keys, both in strictly ascending order. O(n).
    pub(crate) fn from_sorted<'a>(terms: impl IntoIterator<Item = (Term, impl IntoIterator<Item = &'a str>)>) -> Self {
        let pairs = terms
            .into_iter()
            .flat_map(|(mut term, keys)| keys.into_iter().map(move |key| (term.with(key).to_vec(), ())));
        Self { tree: CowTree::from_sorted(pairs) }
    }

    /// The number of pairs. O(1).
    pub(crate) fn len(&self) -> usize {
        self.tree.len()
    }

    /// Adds a key to a term.
    pub(crate) fn insert(&mut self, term: &mut Term, key: &str) {
        self.tree.insert(term.with(key), ());
    }

    /// Removes a key from a term.
    pub(crate) fn remove(&mut self, term: &mut Term, key: &str) {
        self.tree.remove(term.with(key));
    }

    /// Sets the keys of a term, in strictly ascending order. Costs about one pass over the index for any number of
    /// keys.
    pub(crate) fn replace<'a>(&mut self, term: &mut Term, keys: impl IntoIterator<Item = &'a str>) {
        let old = self.stretch(term, "", None);
        let pairs = keys.into_iter().map(|key| (term.with(key).to_vec(), ()));
        self.tree.splice(old.first, old.last, pairs);
    }

    /// The ranks of a term's keys from `from` to before `to`. O(log n).
    pub(crate) fn stretch(&self, term: &mut Term, from: &str, to: Option<&str>) -> TermKeys {
        let first = self.tree.before(term.with(from)).count;
        // No key begins with the last character of Unicode, so this position is after all keys of the term.
        let last = self.tree.before(term.with(to.unwrap_or("\u{10ffff}"))).count;
        TermKeys { first, last, term: term.len }
    }

    /// The keys of a range of ranks.
    pub(crate) fn keys(&self, stretch: &TermKeys) -> Keys {
        Keys { pairs: self.tree.keys(stretch.first, stretch.last), term: stretch.term }
    }
}

/// Consecutive keys of one term.
pub(crate) struct TermKeys {
    first: usize,
    last: usize,
    /// The length of the term with the separator.
    term: usize,
}

impl TermKeys {
    /// The number of keys.
    pub(crate) const fn len(&self) -> usize {
        self.last.saturating_sub(self.first)
    }
}

/// Keys of one term, in ascending order.
pub(crate) struct Keys {
    pairs: KeyCursor<()>,
    term: usize,
}

impl Keys {
    /// The next key.
    pub(crate) fn next(&mut self) -> Option<&str> {
        std::str::from_utf8(&self.pairs.next_key()?[self.term..]).ok()
    }

    /// The number of remaining keys.
    pub(crate) fn left(&self) -> usize {
        self.pairs.remaining()
    }
}
