//! A collection as it was at one revision: what lists are read from.
//!
//! Taking one copies a pointer; holding one costs only the nodes that later writes replace. Ranges are half open, over
//! keys relative to the collection, and end with the collection where no end is given.

use std::sync::Arc;

use keelson_codec::DeflateBlock;
use keelson_meta::Revision;

use crate::entry::Entry;
use crate::postings::Keys;
use crate::spec::Layout;
use crate::tree::{self, LeafCursor};
use crate::trees::{IndexTerm, Trees};

/// How hard leaf blocks are compressed: the fastest level, which on JSON of objects already leaves a tenth.
const BLOCK_LEVEL: u32 = 1;

/// A collection at one revision.
#[derive(Clone)]
pub struct Snapshot {
    /// The revision. No object in the snapshot is newer, and no write up to it is missing.
    pub revision: Revision,
    pub(crate) trees: Trees,
}

/// Why there is no snapshot at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The history does not reach back to the revision; the store's own history may.
    #[error("the cache only knows revisions from {oldest} on")]
    TooOld {
        /// The oldest revision the cache can rebuild.
        oldest: Revision,
    },
    /// The cache has not seen the revision yet.
    #[error("the cache is at revision {current}")]
    Future {
        /// The newest revision the cache has seen.
        current: Revision,
    },
    /// The collection was removed from the cache before it got there.
    #[error("the collection was removed at revision {last}")]
    Removed {
        /// The last revision that its state is known of.
        last: Revision,
    },
}

impl Snapshot {
    /// Which fields the entries have, and at which places.
    pub const fn layout(&self) -> &Arc<Layout> {
        self.trees.layout()
    }

    /// How many objects there are. O(1).
    pub fn len(&self) -> usize {
        self.trees.entries.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.trees.entries.is_empty()
    }

    /// The object with this key. O(log n).
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.trees.entries.get(key)
    }

    /// How many objects have keys below this one. O(log n).
    pub fn rank(&self, key: &str) -> usize {
        self.trees.entries.before(key).count
    }

    /// The n-th object in key order, from 0. O(log n).
    pub fn nth(&self, rank: usize) -> Option<&Arc<Entry>> {
        self.trees.entries.nth(rank)
    }

    /// How many objects are in the range. O(log n).
    pub fn count(&self, from: &str, to: Option<&str>) -> usize {
        let (first, last) = self.ranks(from, to);
        last.saturating_sub(first)
    }

    /// How many bytes the items of a list of the range have, without the commas between them. O(log n).
    pub fn bytes(&self, from: &str, to: Option<&str>) -> u64 {
        let below = |key: &str| self.trees.entries.before(key).weight;
        to.map_or(self.trees.entries.weight(), below).saturating_sub(below(from))
    }

    /// The objects of the range in key order.
    pub fn range(&self, from: &str, to: Option<&str>) -> tree::Iter<'_, Arc<Entry>> {
        let (first, last) = self.ranks(from, to);
        self.trees.entries.iter_ranks(first, last)
    }

    /// The objects of the range, in key order, that may have all the terms: those that have the rarest of them. All objects of
    /// the range with no terms, and with terms alone that a good part of the collection has.
    ///
    /// Cost: O(log n) for each term and for each object returned.
    pub fn select<'a>(&'a self, terms: &[IndexTerm<'_>], from: &str, to: Option<&str>) -> Selected<'a> {
        let entries = match self.trees.find(terms, from, to) {
            Some(keys) => Candidates::Posted(&self.trees, keys),
            None => Candidates::Range(self.range(from, to)),
        };
        Selected { entries }
    }

    /// The leaves of the range, as something that owns what it needs and can be held across awaits.
    pub fn cursor(&self, from: &str, to: Option<&str>) -> RangeCursor {
        let (first, last) = self.ranks(from, to);
        RangeCursor { leaves: self.trees.entries.leaves(first, last) }
    }

    /// The objects that are not the same in another snapshot of the collection: as they are here, and there. Costs no more than the
    /// changes between the two.
    pub fn changes_to<'a>(&'a self, other: &'a Self) -> tree::Diff<'a, Arc<Entry>> {
        tree::Diff::new(&self.trees.entries, &other.trees.entries, Arc::ptr_eq)
    }

    fn ranks(&self, from: &str, to: Option<&str>) -> (usize, usize) {
        (self.rank(from), to.map_or(self.len(), |to| self.rank(to)))
    }
}

/// Objects that a selection may match; see [`Snapshot::select`].
pub struct Selected<'a> {
    entries: Candidates<'a>,
}

enum Candidates<'a> {
    Range(tree::Iter<'a, Arc<Entry>>),
    Posted(&'a Trees, Keys),
}

impl<'a> Iterator for Selected<'a> {
    type Item = &'a Arc<Entry>;

    fn next(&mut self) -> Option<&'a Arc<Entry>> {
        match &mut self.entries {
            Candidates::Range(entries) => entries.next(),
            // The index and the entries are of one moment, so every posting has its entry.
            Candidates::Posted(trees, keys) => loop {
                let found = trees.entries.get(keys.next()?);
                if found.is_some() {
                    return found;
                }
            },
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.entries {
            Candidates::Range(entries) => entries.size_hint(),
            Candidates::Posted(_, keys) => (keys.left(), Some(keys.left())),
        }
    }
}

/// The objects of a range, leaf by leaf.
#[derive(Clone)]
pub struct RangeCursor {
    leaves: LeafCursor<Arc<Entry>>,
}

impl RangeCursor {
    /// The next leaf's part of the range.
    pub fn next_leaf(&mut self) -> Option<LeafSlice> {
        self.leaves.next().map(|slice| LeafSlice { slice })
    }

    /// How many objects are left.
    pub const fn remaining(&self) -> usize {
        self.leaves.remaining()
    }
}

impl Iterator for RangeCursor {
    type Item = LeafSlice;

    fn next(&mut self) -> Option<LeafSlice> {
        self.next_leaf()
    }
}

/// Objects that stand next to each other: a leaf of the collection, or the part of one that lies in a range.
pub struct LeafSlice {
    slice: tree::LeafSlice<Arc<Entry>>,
}

impl LeafSlice {
    /// The objects, in key order.
    pub fn entries(&self) -> &[Arc<Entry>] {
        self.slice.items()
    }

    /// Whether this is all of a leaf, so that [`block`](Self::block) is of use.
    pub fn is_whole(&self) -> bool {
        self.slice.is_whole()
    }

    /// How many bytes the items of a list have, without what stands between them.
    pub fn bytes(&self) -> u64 {
        match self.is_whole() {
            true => self.slice.leaf().sums().weight,
            false => self.entries().iter().map(|entry| entry.list_bytes()).sum(),
        }
    }

    /// Whether [`block`](Self::block) was made before.
    pub fn has_block(&self) -> bool {
        self.is_whole() && self.slice.leaf().derived().block.get().is_some()
    }

    /// The items of the list (`{..},{..}`, no comma at either end) of the *whole* leaf, compressed once and kept until
    /// the leaf changes. `None` when this is only a part of a leaf.
    ///
    /// The first call for a leaf compresses some hundred KiB; others wait for it.
    pub fn block(&self) -> Option<&DeflateBlock> {
        let leaf = self.slice.leaf();
        self.is_whole().then(|| leaf.derived().block.get_or_init(|| compress(leaf.items(), leaf.sums().weight)))
    }
}

impl LeafSlice {
    /// How many bytes the objects take in a form, by its number. `measure` adds that up; for a whole leaf its result is
    /// kept until the leaf changes, in the form that is asked for first.
    ///
    /// # Errors
    /// Those of `measure`.
    pub fn size_in<E>(&self, form: u16, measure: impl FnOnce(&[Arc<Entry>]) -> Result<usize, E>) -> Result<usize, E> {
        let kept = &self.slice.leaf().derived().size;
        match kept.get() {
            Some((known, size)) if self.is_whole() && *known == form => Ok(*size),
            _ => {
                let size = measure(self.entries())?;
                if self.is_whole() {
                    // Another form may be kept already: then this one is measured each time.
                    let _kept = kept.set((form, size));
                }
                Ok(size)
            }
        }
    }
}

fn compress(entries: &[Arc<Entry>], weight: u64) -> DeflateBlock {
    let mut text = Vec::with_capacity(usize::try_from(weight).unwrap_or(0) + entries.len());
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        entry.write_item(&mut text);
    }
    let block = DeflateBlock::compress(&text, BLOCK_LEVEL);
    // The compressor's buffer has room to spare, and this copy is kept for long.
    DeflateBlock { bytes: bytes::Bytes::copy_from_slice(&block.bytes), ..block }
}
