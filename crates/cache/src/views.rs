//! Views, the indexes of queries: the objects of one snapshot that a query selects, in its order, as a counted copy-on-write tree.
//!
//! A [`Sight`] gives the sort key of an entry, or none; this crate does not know what it means. A view is built by a scan
//! ([`Gathered`]), or from the view of another snapshot and the difference of the two trees ([`CatchingUp`]), which costs no more than
//! the changes: a write costs nothing until somebody asks. Views that were made are kept for a while (`kept.rs`).
//!
//! Invariant: a view of a snapshot holds exactly the places that its sight gives the entries of the snapshot, however it was made.

mod kept;
mod room;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smallvec::SmallVec;

pub(crate) use self::kept::KeptViews;
pub use self::kept::{Found, KeptIndex};
pub use self::room::{NoRoom, Room, ViewOwner};
use crate::entry::Entry;
use crate::snapshot::Snapshot;
use crate::tree::{CowTree, Diff, KeyCursor};

/// Says where entries stand.
pub trait Sight: Send + Sync {
    /// Adds the places of an entry: none where it is not in the view, several where it is in several groups. No place may begin
    /// another one, of this entry or of any.
    fn places(&self, entry: &Entry, out: &mut Places);

    /// What a look at an entry costs, in bytes that are walked over.
    fn cost(&self, entry: &Entry) -> u64 {
        entry.list_bytes()
    }

    /// Whether a look at it may take so long that it should be taken on a thread that nobody else waits for.
    fn is_heavy(&self, _entry: &Entry) -> bool {
        false
    }
}

/// The places of one entry.
#[derive(Default)]
pub struct Places {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: SmallVec<[usize; 4]>,
    has_failed: bool,
}

impl Places {
    /// Adds one.
    pub fn push(&mut self, place: &[u8]) {
        self.bytes.extend_from_slice(place);
        self.ends.push(self.bytes.len());
    }

    /// Notes that it can't be found out where the entry stands, which has no place then.
    pub const fn fail(&mut self) {
        self.has_failed = true;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.has_failed = false;
    }

    fn of(&mut self, sight: &dyn Sight, entry: &Entry) {
        self.clear();
        sight.places(entry, self);
    }

    /// Those that there are, each once.
    fn sorted(&self) -> SmallVec<[&[u8]; 4]> {
        let mut start = 0;
        let places = self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut start, *end)..*end]);
        let mut places: SmallVec<[&[u8]; 4]> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// What stands behind a key in a pair, before its length. No key holds it, so that a key comes before those that it begins.
const KEY_END: u8 = 0;
/// How many bytes the end of a key and its length take.
const END_BYTES: usize = 1 + size_of::<u32>();
/// Behind all keys of a place: no byte of a text is as large.
const BEHIND_KEYS: u8 = 0xff;
/// What a change costs beside the look at its objects, as if it were bytes of them.
const CHANGE_BYTES: u64 = 4096;
/// The same of each place that it takes or gives.
const PLACE_BYTES: u64 = 512;
/// What a pair that was gathered takes beside its bytes.
const GATHERED_BYTES: usize = size_of::<(usize, usize)>();

/// A place and a key, as a view holds them.
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

/// Takes a pair apart.
fn parts(pair: &[u8]) -> Option<Position<'_>> {
    let (rest, length) = pair.split_last_chunk()?;
    let rest = rest.strip_suffix(&[KEY_END])?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (place, key) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
    Some(Position { place, key: std::str::from_utf8(key).ok()? })
}

/// The objects of a snapshot that are wanted, in the order that is wanted. A clone is a pointer.
#[derive(Clone, Default)]
pub struct View {
    tree: CowTree<()>,
    /// How many bytes the pairs have.
    bytes: u64,
    /// The number of entries of which it could not be found out where they stand.
    failures: usize,
}

impl View {
    /// The view of all that was gathered, each part of which is of other entries.
    ///
    /// Cost: O(n log(number of parts)); O(n) where the parts follow each other, as those of a list in the order of its keys do.
    pub fn of(parts: &mut [Gathered]) -> Self {
        parts.iter_mut().for_each(Gathered::sort);
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

    /// The number of entries of the snapshot of which it could not be found out where they stand.
    pub const fn failures(&self) -> usize {
        self.failures
    }

    /// How many positions it has: objects, or objects in groups.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> u64 {
        // Beside the pairs: where each ends, and its part of a leaf.
        self.bytes + self.len() as u64 * 8
    }

    /// How many positions come before those behind an object of a place, whether it is there or not. O(log n).
    pub fn rank_behind(&self, place: &[u8], key: &str) -> usize {
        let mut pair = pair(place, key);
        // Nothing else begins like a whole pair.
        pair.push(0);
        self.tree.before(pair).count
    }

    /// How many positions come before those of a place. O(log n).
    pub fn rank_before_place(&self, place: &[u8]) -> usize {
        self.tree.before(place).count
    }

    /// How many positions come before those behind a place. O(log n).
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

/// Where an object stands in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position<'a> {
    /// Its place.
    pub place: &'a [u8],
    /// Its key.
    pub key: &'a str,
}

/// Neighbouring positions of a view. Owns what it needs, so it can be held across awaits.
pub struct Positions(KeyCursor<()>);

impl Positions {
    /// The next one.
    pub fn next_position(&mut self) -> Option<Position<'_>> {
        parts(self.0.next_key()?)
    }
}

/// Entries that were looked at for a view.
#[derive(Default)]
pub struct Gathered {
    /// The pairs, one behind the other.
    bytes: Vec<u8>,
    /// Where each begins and ends.
    pairs: Vec<(usize, usize)>,
    places: Places,
    is_sorted: bool,
    failures: usize,
}

impl Gathered {
    /// Looks at an entry.
    pub fn add(&mut self, sight: &dyn Sight, entry: &Entry) {
        let mut places = std::mem::take(&mut self.places);
        places.of(sight, entry);
        self.add_places(&places, entry);
        self.places = places;
    }

    /// Adds the places of an entry that was looked at.
    pub fn add_places(&mut self, places: &Places, entry: &Entry) {
        for place in places.sorted() {
            let start = self.bytes.len();
            write_pair(place, &entry.key, &mut self.bytes);
            self.pairs.push((start, self.bytes.len()));
        }
        self.is_sorted = false;
        self.failures += usize::from(places.has_failed);
    }

    /// Adds the place of an object that nobody has to look at.
    pub fn push(&mut self, place: &[u8], key: &str) {
        let start = self.bytes.len();
        write_pair(place, key, &mut self.bytes);
        self.pairs.push((start, self.bytes.len()));
        self.is_sorted = false;
    }

    /// Puts what was gathered in order, if it is not: about 20 ms for 100,000.
    pub fn sort(&mut self) {
        let Self { bytes, pairs, is_sorted, .. } = self;
        if !std::mem::replace(is_sorted, true) {
            pairs.sort_unstable_by(|one, other| bytes[one.0..one.1].cmp(&bytes[other.0..other.1]));
        }
    }

    /// How many places were gathered.
    pub const fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether nothing was.
    pub const fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// About how many bytes it takes.
    pub const fn bytes(&self) -> u64 {
        (self.bytes.len() + self.pairs.len() * GATHERED_BYTES) as u64
    }

    fn pair(&self, place: usize) -> Option<&[u8]> {
        self.pairs.get(place).map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// A view of one moment that becomes that of another, change by change.
pub struct CatchingUp<'a> {
    changes: Diff<'a, Arc<Entry>>,
    sight: &'a dyn Sight,
    view: View,
    looked_at: usize,
}

/// How a turn of catching up ended.
pub enum Turn {
    /// With the last change.
    Over,
    /// Before more changes.
    More,
    /// Before this change, which takes long to look at: whoever has done so hands it to [`CatchingUp::take_over`].
    Heavy(Change),
}

/// An object that is not the same at both moments.
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

    /// Finds out where the object stood and where it stands.
    pub fn look(&mut self, sight: &dyn Sight) {
        if let Some(old) = &self.old {
            self.before.of(sight, old);
        }
        if let Some(new) = &self.new {
            self.after.of(sight, new);
        }
    }
}

impl<'a> CatchingUp<'a> {
    /// From the view of one snapshot to that of another, which may be older.
    pub fn new(view: View, from: &'a Snapshot, to: &'a Snapshot, sight: &'a dyn Sight) -> Self {
        let changes = Diff::new(&from.trees.entries, &to.trees.entries, Arc::ptr_eq);
        Self { changes, sight, view, looked_at: 0 }
    }

    /// Takes over changes that cost about as much to look at as so many bytes.
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

    /// Takes over a change that was looked at.
    pub fn take_over(&mut self, change: &Change) {
        let Some(key) = change.entries().map(|entry| &*entry.key).next() else { return };
        let (failed, fails) = (usize::from(change.before.has_failed), usize::from(change.after.has_failed));
        self.view.failures = (self.view.failures + fails).saturating_sub(failed);
        let (before, after) = (change.before.sorted(), change.after.sorted());
        let beyond = |of: &[&[u8]], place: &&&[u8]| of.binary_search(place).is_err();
        before.iter().filter(|place| beyond(&after, place)).for_each(|place| self.view.remove(place, key));
        after.iter().filter(|place| beyond(&before, place)).for_each(|place| self.view.insert(place, key));
    }

    /// How many changes were looked at.
    pub const fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// The view as far as it has got.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The same, for good.
    pub fn into_view(self) -> View {
        self.view
    }
}
