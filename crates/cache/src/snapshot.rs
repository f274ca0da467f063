//! The state of a collection at one revision, for lists.
//!
//! Taking a snapshot copies a pointer, and holding it retains only the nodes that later writes replace. Ranges are half
//! open, over keys relative to the collection. A range without an end extends to the end of the collection.

use std::sync::Arc;

use keelson_codec::DeflateBlock;
use keelson_meta::Revision;

use crate::entry::Entry;
use crate::postings::Keys;
use crate::spec::Layout;
use crate::tree::{self, LeafCursor};
use crate::trees::{IndexTerm, Trees};

/// The compression level of leaf blocks: the fastest, which already reduces JSON objects to a tenth.
const BLOCK_LEVEL: u32 = 1;

/// A collection at one revision.
#[derive(Clone)]
pub struct Snapshot {
    /// The revision. The snapshot has every write up to it, and no newer object.
    pub revision: Revision,
    pub(crate) trees: Trees,
}

/// The reason for which there is no snapshot at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The history of the cache does not cover the revision. The history of the store may.
    #[error("the oldest revision in the cache is {oldest}")]
    TooOld {
        /// The oldest revision that the cache can rebuild.
        oldest: Revision,
    },
    /// The revision is above the watermark.
    #[error("the cache is at revision {current}")]
    Future {
        /// The watermark.
        current: Revision,
    },
    /// The collection was removed before this revision.
    #[error("the collection was removed at revision {last}")]
    Removed {
        /// The last revision with a known state.
        last: Revision,
    },
}

impl Snapshot {
    /// The layout of the entries.
    pub const fn layout(&self) -> &Arc<Layout> {
        self.trees.layout()
    }

    /// The number of objects. O(1).
    pub fn len(&self) -> usize {
        self.trees.entries.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.trees.entries.is_empty()
    }

    /// The object with this key. O(log n).
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.trees.entries.get(key)
    }

    /// The number of objects with keys below this one. O(log n).
    pub fn rank(&self, key: &str) -> usize {
        self.trees.entries.before(key).count
    }

    /// The n-th object in key order, from 0. O(log n).
    pub fn nth(&self, rank: usize) -> Option<&Arc<Entry>> {
        self.trees.entries.nth(rank)
    }

    /// The number of objects in the range. O(log n).
    pub fn count(&self, from: &str, to: Option<&str>) -> usize {
        let (first, last) = self.ranks(from, to);
        last.saturating_sub(first)
    }

    /// The size of the range's list items in bytes, without the commas between them. O(log n).
    pub fn bytes(&self, from: &str, to: Option<&str>) -> u64 {
        let below = |key: &str| self.trees.entries.before(key).weight;
        to.map_or(self.trees.entries.weight(), below).saturating_sub(below(from))
    }

    /// The objects of the range in key order.
    pub fn range(&self, from: &str, to: Option<&str>) -> tree::Iter<'_, Arc<Entry>> {
        let (first, last) = self.ranks(from, to);
        self.trees.entries.iter_ranks(first, last)
    }

    /// The objects of the range, in key order, that have the rarest of the terms. The caller tests the other terms.
    /// Returns all objects of the range if there are no terms, or common terms only.
    ///
    /// Cost: O(log n) for each term and for each object returned.
    pub fn select<'a>(&'a self, terms: &[IndexTerm<'_>], from: &str, to: Option<&str>) -> SelectedEntries<'a> {
        let entries = match self.trees.find(terms, from, to) {
            Some(keys) => Candidates::Posted(&self.trees, keys),
            None => Candidates::Range(self.range(from, to)),
        };
        SelectedEntries { entries }
    }

    /// The leaves of the range, as an owned cursor that can be held across awaits.
    pub fn cursor(&self, from: &str, to: Option<&str>) -> RangeCursor {
        let (first, last) = self.ranks(from, to);
        RangeCursor { leaves: self.trees.entries.leaves(first, last) }
    }

    /// The objects that differ in another snapshot of the collection, with both versions. The cost is proportional to
    /// the number of changes.
    pub fn changes_to<'a>(&'a self, other: &'a Self) -> tree::Diff<'a, Arc<Entry>> {
        tree::Diff::new(&self.trees.entries, &other.trees.entries, Arc::ptr_eq)
    }

    fn ranks(&self, from: &str, to: Option<&str>) -> (usize, usize) {
        (self.rank(from), to.map_or(self.len(), |to| self.rank(to)))
    }
}

/// Candidates of a selection. See [`Snapshot::select`].
pub struct SelectedEntries<'a> {
    entries: Candidates<'a>,
}

enum Candidates<'a> {
    Range(tree::Iter<'a, Arc<Entry>>),
    Posted(&'a Trees, Keys),
}

impl<'a> Iterator for SelectedEntries<'a> {
    type Item = &'a Arc<Entry>;

    fn next(&mut self) -> Option<&'a Arc<Entry>> {
        match &mut self.entries {
            Candidates::Range(entries) => entries.next(),
            // Index and entries belong to one state, so every key of the index has its entry.
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
    /// The part of the next leaf that is within the range.
    pub fn next_leaf(&mut self) -> Option<LeafSlice> {
        self.leaves.next().map(|slice| LeafSlice { slice })
    }

    /// The number of remaining objects.
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

/// Consecutive objects: a leaf of the collection, or the part of one within a range.
pub struct LeafSlice {
    slice: tree::LeafSlice<Arc<Entry>>,
}

impl LeafSlice {
    /// The objects, in key order.
    pub fn entries(&self) -> &[Arc<Entry>] {
        self.slice.items()
    }

    /// Returns true for a whole leaf. Only whole leaves have a [`block`](Self::block).
    pub fn is_whole(&self) -> bool {
        self.slice.is_whole()
    }

    /// The size of the list items in bytes, without the commas between them.
    pub fn bytes(&self) -> u64 {
        match self.is_whole() {
            true => self.slice.leaf().sums().weight,
            false => self.entries().iter().map(|entry| entry.list_bytes()).sum(),
        }
    }

    /// Returns true if [`block`](Self::block) is cached.
    pub fn has_block(&self) -> bool {
        self.is_whole() && self.slice.leaf().derived().block.get().is_some()
    }

    /// The list items of the *whole* leaf (`{..},{..}`, without commas at the ends), compressed once and cached until
    /// the leaf changes. `None` for a part of a leaf.
    ///
    /// The first call for a leaf compresses some hundred KiB. Concurrent calls wait for it.
    pub fn block(&self) -> Option<&DeflateBlock> {
        let leaf = self.slice.leaf();
        self.is_whole().then(|| leaf.derived().block.get_or_init(|| compress(leaf.items(), leaf.sums().weight)))
    }
}

impl LeafSlice {
    /// The size of the objects in a numbered form, as `measure` computes it. A whole leaf caches the size in the form
    /// that is requested first, until the leaf changes.
    ///
    /// # Errors
    /// Errors of `measure`.
    pub fn size_in<E>(&self, form: u16, measure: impl FnOnce(&[Arc<Entry>]) -> Result<usize, E>) -> Result<usize, E> {
        let kept = &self.slice.leaf().derived().size;
        match kept.get() {
            Some((known, size)) if self.is_whole() && *known == form => Ok(*size),
            _ => {
                let size = measure(self.entries())?;
                if self.is_whole() {
                    // If the size in another form is cached, this form is measured each time.
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
    // The compressor's buffer has spare capacity. The copy has none, since it is kept for long.
    DeflateBlock { bytes: bytes::Bytes::copy_from_slice(&block.bytes), ..block }
}
