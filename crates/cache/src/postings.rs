//! The index of a collection: which keys have which term. A copy-on-write set of pairs.
//!
//! Most writes copy a part of the index, because a snapshot still shares it. So a pair is no object of its own, which
//! would have to be counted in each copy, but a key of the tree: some bytes among others. A pair is `term NUL key`, so
//! terms with a NUL are not known here; no label and no selectable field of a valid object has one.

use smallvec::SmallVec;

use crate::tree::{CowTree, KeyCursor};

const SEPARATOR: u8 = 0;
/// Room for a term and a key of common length, in bytes.
const COMMON_LENGTH: usize = 128;

/// A set of terms and keys. A clone is a snapshot.
#[derive(Clone, Default)]
pub(crate) struct Postings {
    tree: CowTree<()>,
}

/// What keys are looked for by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term {
    /// The term and the separator; behind them there is room for a key.
    bytes: SmallVec<[u8; COMMON_LENGTH]>,
    len: usize,
}

impl Term {
    /// The term of these texts, one after the other; `None` for one that can't be in an index.
    pub(crate) fn new(texts: &[&str]) -> Option<Self> {
        let mut bytes = SmallVec::new();
        texts.iter().for_each(|text| bytes.extend_from_slice(text.as_bytes()));
        (!bytes.contains(&SEPARATOR)).then(|| Self::separated(bytes))
    }

    /// The term with this [`text`](Self::text).
    pub(crate) fn of(text: &[u8]) -> Self {
        Self::separated(text.into())
    }

    fn separated(mut bytes: SmallVec<[u8; COMMON_LENGTH]>) -> Self {
        bytes.push(SEPARATOR);
        Self { len: bytes.len(), bytes }
    }

    /// The texts that it is of.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[..self.len - 1]
    }

    /// The pair of the term and a key.
    fn with(&mut self, key: &str) -> &[u8] {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(key.as_bytes());
        &self.bytes
    }
}

impl Postings {
    /// The index with these terms, each with its keys. Terms and keys strictly ascend. O(n).
    pub(crate) fn from_sorted<'a>(terms: impl IntoIterator<Item = (Term, impl IntoIterator<Item = &'a str>)>) -> Self {
        let pairs = terms
            .into_iter()
            .flat_map(|(mut term, keys)| keys.into_iter().map(move |key| (term.with(key).to_vec(), ())));
        Self { tree: CowTree::from_sorted(pairs) }
    }

    /// How many pairs there are. O(1).
    pub(crate) fn len(&self) -> usize {
        self.tree.len()
    }

    /// Notes that a key has a term.
    pub(crate) fn insert(&mut self, term: &mut Term, key: &str) {
        self.tree.insert(term.with(key), ());
    }

    /// Notes that a key does not have a term.
    pub(crate) fn remove(&mut self, term: &mut Term, key: &str) {
        self.tree.remove(term.with(key));
    }

    /// Notes that exactly these keys, which strictly ascend, have a term. Costs about what it takes to step over the whole
    /// index, however many keys there were.
    pub(crate) fn replace<'a>(&mut self, term: &mut Term, keys: impl IntoIterator<Item = &'a str>) {
        let old = self.stretch(term, "", None);
        let pairs = keys.into_iter().map(|key| (term.with(key).to_vec(), ()));
        self.tree.splice(old.first, old.last, pairs);
    }

    /// The ranks of the keys from `from` to before `to` that have the term. O(log n).
    pub(crate) fn stretch(&self, term: &mut Term, from: &str, to: Option<&str>) -> Stretch {
        let first = self.tree.before(term.with(from)).count;
        // No key holds the last character of Unicode first: this is behind all keys of the term.
        let last = self.tree.before(term.with(to.unwrap_or("\u{10ffff}"))).count;
        Stretch { first, last, term: term.len }
    }

    /// The keys of a stretch.
    pub(crate) fn keys(&self, stretch: &Stretch) -> Keys {
        Keys { pairs: self.tree.keys(stretch.first, stretch.last), term: stretch.term }
    }
}

/// Neighbouring keys of one term.
pub(crate) struct Stretch {
    first: usize,
    last: usize,
    /// How long the term is, with the separator.
    term: usize,
}

impl Stretch {
    /// How many keys.
    pub(crate) const fn len(&self) -> usize {
        self.last.saturating_sub(self.first)
    }
}

/// Keys of one term, ascending.
pub(crate) struct Keys {
    pairs: KeyCursor<()>,
    term: usize,
}

impl Keys {
    /// The next key.
    pub(crate) fn next(&mut self) -> Option<&str> {
        std::str::from_utf8(&self.pairs.next_key()?[self.term..]).ok()
    }

    /// How many keys are left.
    pub(crate) fn left(&self) -> usize {
        self.pairs.remaining()
    }
}
