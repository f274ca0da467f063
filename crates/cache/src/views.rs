//! Views are the indexes of queries. A view has the objects of one snapshot that a query selects, in the query's order,
//! as a counted copy-on-write tree.
//!
//! A [`PositionSource`] returns the sort keys of an entry. This crate does not know their meaning. A view is built by a scan
//! ([`GatheredPositions`]), or from the view of another snapshot and the difference of both trees ([`ViewUpdate`]). The second
//! way costs time only for the changes. Writes do no work for views. Built views are kept for later queries
//! (`kept.rs`).
//!
//! Invariant: a view of a snapshot has exactly the sort keys that its sight returns for the entries of the snapshot,
//! however the view was built.

mod kept;
mod room;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;

pub(crate) use self::kept::ViewCache;
pub use self::kept::{CachedIndex, LookupResult};
pub use self::room::{MemoryReservation, ReservationError, ViewOwner};
use crate::entry::Entry;
use crate::snapshot::Snapshot;
use crate::tree::{CowTree, Diff, KeyCursor};

/// Determines the positions of entries in a view.
pub trait PositionSource: Send + Sync {
    /// Adds the sort keys of an entry: none if the entry is not in the view, several if it is in several groups. No
    /// sort key may be a prefix of another sort key of any entry.
    fn places(&self, entry: &Entry, out: &mut Places);

    /// The cost of evaluating an entry, in bytes walked.
    fn cost(&self, entry: &Entry) -> u64 {
        entry.list_bytes()
    }

    /// Returns true if the evaluation may take so long that it needs a separate thread.
    fn is_heavy(&self, _entry: &Entry) -> bool {
        false
    }
}

/// The sort keys of one entry.
#[derive(Default)]
pub struct Places {
    bytes: Vec<u8>,
    /// The end of each sort key.
    ends: SmallVec<[usize; 4]>,
    has_failed: bool,
}

impl Places {
    /// Adds a sort key.
    pub fn push(&mut self, place: &[u8]) {
        self.bytes.extend_from_slice(place);
        self.ends.push(self.bytes.len());
    }

    /// Records that the evaluation failed. The entry gets no position.
    pub const fn fail(&mut self) {
        self.has_failed = true;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.has_failed = false;
    }

    fn gather(&mut self, sight: &dyn PositionSource, entry: &Entry) {
        self.clear();
        sight.places(entry, self);
    }

    /// The distinct sort keys, sorted.
    fn sorted(&self) -> SmallVec<[&[u8]; 4]> {
        let mut start = 0;
        let places = self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut start, *end)..*end]);
        let mut places: SmallVec<[&[u8]; 4]> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// The end mark of an object key in a pair, before the length of the key. No key contains this byte, so a key sorts
/// before longer keys that begin with it.
const KEY_END: u8 = 0;
/// The size of an end mark and a length in bytes.
const END_BYTES: usize = 1 + size_of::<u32>();
/// A byte that sorts after all object keys with the same sort key, since no text has a byte as large.
const BEHIND_KEYS: u8 = 0xff;
/// The cost of a change in bytes walked, in addition to the evaluation of its objects.
const CHANGE_BYTES: u64 = 4096;
/// The cost of each added or removed position in bytes walked.
const PLACE_BYTES: u64 = 512;
/// The memory of a gathered pair in bytes, in addition to the bytes of the pair.
const GATHERED_BYTES: usize = size_of::<(usize, usize)>();

/// The encoding of a sort key and an object key in a view.
fn pair(place: &[u8], key: &str) -> Vec<u8> {
    let mut pair = Vec::with_capacity(place.len() + key.len() + END_BYTES);
    write_pair(place, key, &mut pair);
    pair
}

fn write_pair(place: &[u8], key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(place);
    out.extend_from_slice(key.as_bytes());
    out.push(KEY_END);
    out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
}

/// Decodes a pair.
fn parts(pair: &[u8]) -> Option<Position<'_>> {
    let (rest, length) = pair.split_last_chunk()?;
    let rest = rest.strip_suffix(&[KEY_END])?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (place, key) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
    Some(Position { place, key: std::str::from_utf8(key).ok()? })
}

/// The selected objects of a snapshot in the query's order. A clone copies a pointer.
#[derive(Clone, Default)]
pub struct View {
    tree: CowTree<()>,
    /// The total size of the pairs in bytes.
    bytes: u64,
    /// The number of entries with a failed evaluation.
    failures: usize,
}

impl View {
    /// Builds the view of several gathered parts. No entry may be in two parts.
    ///
    /// Cost: O(n log(number of parts)), or O(n) if each part begins after the end of the one before it.
    pub fn new(parts: &mut [GatheredPositions]) -> Self {
        parts.iter_mut().for_each(GatheredPositions::sort);
        let bytes = parts.iter().map(|part| part.bytes.len() as u64).sum();
        let failures = parts.iter().map(|part| part.failures).sum();
        let ends = parts
            .iter()
            .flat_map(|part| [part.pair(0), part.pairs.len().checked_sub(1).and_then(|last| part.pair(last))]);
        if ends.flatten().is_sorted() {
            let pairs = parts.iter().flat_map(|part| (0..part.pairs.len()).filter_map(|place| part.pair(place)));
            return Self { tree: CowTree::from_sorted(pairs.map(|pair| (pair, ()))), bytes, failures };
        }
        let mut next: BinaryHeap<Reverse<(&[u8], usize, usize)>> = parts
            .iter()
            .enumerate()
            .filter_map(|(part, gathered)| Some(Reverse((gathered.pair(0)?, part, 0))))
            .collect();
        let parts = &*parts;
        let pairs = std::iter::from_fn(move || {
            let Reverse((pair, part, place)) = next.pop()?;
            if let Some(following) = parts[part].pair(place + 1) {
                next.push(Reverse((following, part, place + 1)));
            }
            Some((pair, ()))
        });
        Self { tree: CowTree::from_sorted(pairs), bytes, failures }
    }

    /// The number of entries of the snapshot whose evaluation failed.
    pub const fn failures(&self) -> usize {
        self.failures
    }

    /// The number of positions. An object in several groups has several.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Returns true if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The approximate memory in bytes.
    pub fn bytes(&self) -> u64 {
        // The memory of the pairs, and for each pair an end offset and a part of a leaf.
        self.bytes + self.len() as u64 * 8
    }

    /// The number of positions up to and including this sort key and object key. The view need not have them. O(log n).
    pub fn rank_behind(&self, place: &[u8], key: &str) -> usize {
        let mut pair = pair(place, key);
        // No other pair begins with a whole pair.
        pair.push(0);
        self.tree.before(pair).count
    }

    /// The number of positions before a sort key. O(log n).
    pub fn rank_before_place(&self, place: &[u8]) -> usize {
        self.tree.before(place).count
    }

    /// The number of positions up to and including a sort key. O(log n).
    pub fn rank_behind_place(&self, place: &[u8]) -> usize {
        self.tree.before([place, &[BEHIND_KEYS]].concat()).count
    }

    /// The positions with ranks in `from..to`.
    pub fn positions(&self, from: usize, to: usize) -> Positions {
        Positions(self.tree.keys(from, to))
    }

    fn insert(&mut self, place: &[u8], key: &str) {
        let pair = pair(place, key);
        if self.tree.insert(&pair, ()).is_none() {
            self.bytes += pair.len() as u64;
        }
    }

    fn remove(&mut self, place: &[u8], key: &str) {
        let pair = pair(place, key);
        if self.tree.remove(&pair).is_some() {
            self.bytes -= pair.len() as u64;
        }
    }
}

/// The position of an object in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position<'a> {
    /// Its sort key.
    pub place: &'a [u8],
    /// Its object key.
    pub key: &'a str,
}

/// Consecutive positions of a view. It owns its data, so it can be held across awaits.
pub struct Positions(KeyCursor<()>);

impl Positions {
    /// The next position.
    pub fn next_position(&mut self) -> Option<Position<'_>> {
        parts(self.0.next_key()?)
    }
}

/// The positions of evaluated entries, for a view.
#[derive(Default)]
pub struct GatheredPositions {
    /// The concatenated pairs.
    bytes: Vec<u8>,
    /// The start and end of each pair.
    pairs: Vec<(usize, usize)>,
    places: Places,
    is_sorted: bool,
    failures: usize,
}

impl GatheredPositions {
    /// Evaluates an entry and adds its positions.
    pub fn add(&mut self, sight: &dyn PositionSource, entry: &Entry) {
        let mut places = std::mem::take(&mut self.places);
        places.gather(sight, entry);
        self.add_places(&places, entry);
        self.places = places;
    }

    /// Adds the positions of an entry that was evaluated already.
    pub fn add_places(&mut self, places: &Places, entry: &Entry) {
        for place in places.sorted() {
            let start = self.bytes.len();
            write_pair(place, &entry.key, &mut self.bytes);
            self.pairs.push((start, self.bytes.len()));
        }
        self.is_sorted = false;
        self.failures += usize::from(places.has_failed);
    }

    /// Adds a position of an object.
    pub fn push(&mut self, place: &[u8], key: &str) {
        let start = self.bytes.len();
        write_pair(place, key, &mut self.bytes);
        self.pairs.push((start, self.bytes.len()));
        self.is_sorted = false;
    }

    /// Sorts the positions if they are not sorted. 100,000 positions take about 20 ms.
    pub fn sort(&mut self) {
        let Self { bytes, pairs, is_sorted, .. } = self;
        if !std::mem::replace(is_sorted, true) {
            pairs.sort_unstable_by(|one, other| bytes[one.0..one.1].cmp(&bytes[other.0..other.1]));
        }
    }

    /// The number of positions.
    pub const fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if there are no positions.
    pub const fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The approximate memory in bytes.
    pub const fn bytes(&self) -> u64 {
        (self.bytes.len() + self.pairs.len() * GATHERED_BYTES) as u64
    }

    fn pair(&self, place: usize) -> Option<&[u8]> {
        self.pairs.get(place).map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// Updates the view of one snapshot to another snapshot, change by change.
pub struct ViewUpdate<'a> {
    changes: Diff<'a, Arc<Entry>>,
    sight: &'a dyn PositionSource,
    view: View,
    looked_at: usize,
}

/// The result of one step of an update.
pub enum Turn {
    /// All changes were applied.
    Over,
    /// More changes remain.
    More,
    /// The evaluation of this change takes long. The caller evaluates it and passes it to [`ViewUpdate::take_over`].
    Heavy(Change),
}

/// An object that differs between both snapshots.
pub struct Change {
    old: Option<Arc<Entry>>,
    new: Option<Arc<Entry>>,
    before: Places,
    after: Places,
}

impl Change {
    fn new(old: Option<&Arc<Entry>>, new: Option<&Arc<Entry>>) -> Self {
        Self { old: old.cloned(), new: new.cloned(), before: Places::default(), after: Places::default() }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        [&self.old, &self.new].into_iter().flatten().map(Arc::as_ref)
    }

    /// Evaluates the old and the new object.
    pub fn look(&mut self, sight: &dyn PositionSource) {
        if let Some(old) = &self.old {
            self.before.gather(sight, old);
        }
        if let Some(new) = &self.new {
            self.after.gather(sight, new);
        }
    }
}

impl<'a> ViewUpdate<'a> {
    /// Starts an update of the view of one snapshot to another snapshot, which may be older.
    pub fn new(view: View, from: &'a Snapshot, to: &'a Snapshot, sight: &'a dyn PositionSource) -> Self {
        let changes = Diff::new(&from.trees.entries, &to.trees.entries, Arc::ptr_eq);
        Self { changes, sight, view, looked_at: 0 }
    }

    /// Applies changes until their cost is about `most` bytes walked.
    pub fn go_on(&mut self, most: u64) -> Turn {
        let mut cost = 0;
        while cost < most {
            let Some((old, new)) = self.changes.next() else { return Turn::Over };
            self.looked_at += 1;
            let mut change = Change::new(old, new);
            if change.entries().any(|entry| self.sight.is_heavy(entry)) {
                return Turn::Heavy(change);
            }
            change.look(self.sight);
            self.take_over(&change);
            let places = (change.before.ends.len() + change.after.ends.len()) as u64;
            cost += CHANGE_BYTES + places * PLACE_BYTES;
            cost += change.entries().map(|entry| self.sight.cost(entry)).sum::<u64>();
        }
        Turn::More
    }

    /// Applies a change that the caller has evaluated.
    pub fn take_over(&mut self, change: &Change) {
        let Some(key) = change.entries().map(|entry| &*entry.key).next() else { return };
        let (failed, fails) = (usize::from(change.before.has_failed), usize::from(change.after.has_failed));
        self.view.failures = (self.view.failures + fails).saturating_sub(failed);
        let (before, after) = (change.before.sorted(), change.after.sorted());
        let beyond = |of: &[&[u8]], place: &&&[u8]| of.binary_search(place).is_err();
        before.iter().filter(|place| beyond(&after, place)).for_each(|place| self.view.remove(place, key));
        after.iter().filter(|place| beyond(&before, place)).for_each(|place| self.view.insert(place, key));
    }

    /// The number of changes that were evaluated.
    pub const fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// The view so far.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the final view.
    pub fn into_view(self) -> View {
        self.view
    }
}
