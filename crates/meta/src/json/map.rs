//! The fields of an object, in their original order.
//!
//! The fields are in one vector. Most objects have few fields, so a name is compared with each, a cheap hash first.
//! Maps with more than [`SEARCHED_IN_ORDER`] fields, such as large config maps, have an index. Its hash resists
//! collision attacks.
//!
//! Removing a field keeps the order of the others. In a large map it leaves a hole, and holes are closed once they are
//! half of all slots. So an operation on one field compares at most a few dozen names, amortized.
//!
//! Invariant: only an indexed map has holes, and at most as many as fields.

mod entry;
mod index;
mod iter;
mod rank;

use std::hash::{Hash, Hasher};
use std::vec::Drain;

use super::{Text, Value};
use index::Index;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{IntoIter, Iter, IterMut};

/// The number of fields up to which a name is compared with each of them. That takes about as long as hashing the name
/// once.
pub(super) const SEARCHED_IN_ORDER: usize = 32;

/// The initial capacity if the number of distinct names is unknown.
const LARGE: usize = 4096;

/// The fields of an object with their names, in their original order.
#[derive(Clone, Default)]
pub struct Map {
    slots: Vec<Slot>,
    /// The index of a map with more than [`SEARCHED_IN_ORDER`] slots.
    index: Option<Box<Index>>,
}

/// A field, or the hole that a removed field has left.
#[derive(Clone, Debug)]
pub struct Slot {
    key: Option<Text>,
    value: Value,
    /// The hash of the key.
    hash: u32,
    /// See [`Map::ranked_mut`].
    rank: u32,
}

impl Slot {
    /// A field.
    #[inline]
    pub fn new(key: Text, value: Value) -> Self {
        Self { hash: hash(&key), key: Some(key), value, rank: 0 }
    }

    #[inline]
    fn is(&self, hash: u32, key: &str) -> bool {
        self.hash == hash && !self.is_hole() && is_same_name(self.name().as_bytes(), key.as_bytes())
    }

    #[inline]
    fn is_hole(&self) -> bool {
        self.key.is_none()
    }

    /// The name of the field. Empty for a hole.
    #[inline]
    fn name(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }
}

/// Returns true if all hashes are distinct. If two are equal, the names must be compared.
fn are_distinct(slots: &[Slot]) -> bool {
    // Has one bit for each group of hashes. If the bit of a hash is unset, the name is new.
    let mut seen = 0_u64;
    slots.iter().enumerate().all(|(place, slot)| {
        let bit = 1 << (slot.hash >> 26);
        let is_new = seen & bit == 0 || slots[..place].iter().all(|before| before.hash != slot.hash);
        seen |= bit;
        is_new
    })
}

/// Returns true for equal names. Most names are so short that this costs less than calling a comparison of bytes.
#[inline]
pub fn is_same_name(left: &[u8], right: &[u8]) -> bool {
    /// The first and last `N` bytes of a name that has at least as many. They may overlap.
    #[inline]
    fn ends<const N: usize>(name: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        Some((name.first_chunk()?, name.last_chunk()?))
    }
    left.len() == right.len()
        && match left.len() {
            8..=16 => ends::<8>(left) == ends(right),
            4..8 => ends::<4>(left) == ends(right),
            17..=32 => ends::<16>(left) == ends(right),
            _ => left == right,
        }
}

/// A cheap hash of a name from its length, first and last byte, which differ for most names of one object.
#[inline]
fn hash(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let (head, tail) = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(head), Some(tail)) => (u32::from_le_bytes(*head), u32::from_le_bytes(*tail)),
        _ => (bytes.iter().fold(0, |hash, byte| hash << 8 | u32::from(*byte)), 0),
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    (head.rotate_left(5) ^ tail ^ length).wrapping_mul(0x9e37_79b1)
}

impl Map {
    /// An empty map. Does not allocate.
    #[inline]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), index: None }
    }

    /// An empty map with this capacity.
    #[inline]
    pub fn with_capacity(fields: usize) -> Self {
        Self { slots: Vec::with_capacity(fields), index: None }
    }

    /// Creates a map of these fields in their order. If a name is repeated, the last value counts, and `again` is
    /// called with the index and the name of the earlier field.
    pub fn from_slots(slots: Drain<'_, Slot>, mut again: impl FnMut(usize, &str)) -> Self {
        if slots.len() <= SEARCHED_IN_ORDER && are_distinct(slots.as_slice()) {
            return Self { slots: slots.collect(), index: None };
        }
        // Repeated names take no slot.
        let given = slots.len();
        let mut map = Self::with_capacity(given.min(LARGE));
        for (number, slot) in slots.enumerate() {
            match map.search(slot.hash, slot.name()) {
                None => {
                    if map.is_full() {
                        map.reserve(given - number);
                    }
                    map.push(slot);
                }
                Some(place) => {
                    again(number, slot.name());
                    map.slots[place].value = slot.value;
                }
            }
        }
        map
    }

    /// The number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.index.as_ref().map_or(0, |index| index.holes)
    }

    /// Returns true if adding one more field reallocates.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slots.len() == self.slots.capacity()
    }

    /// Reserves capacity for exactly this number of further fields.
    pub fn reserve(&mut self, fields: usize) {
        self.slots.reserve_exact(fields);
    }

    /// Returns true if there are no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if there is a field of this name.
    #[inline]
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|place| &self.slots[place].value)
    }

    /// The mutable value of a field.
    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|place| &mut self.slots[place].value)
    }

    /// Sets a field and returns its old value. An existing field keeps its place, a new one is last.
    pub fn insert(&mut self, key: impl Into<Text>, value: impl Into<Value>) -> Option<Value> {
        let slot = Slot::new(key.into(), value.into());
        match self.search(slot.hash, slot.name()) {
            Some(place) => Some(std::mem::replace(&mut self.slots[place].value, slot.value)),
            None => {
                self.push(slot);
                None
            }
        }
    }

    /// Sets a field and moves it to the front. O(n).
    pub fn insert_first(&mut self, key: impl Into<Text>, value: impl Into<Value>) {
        let key = key.into();
        self.remove(&key);
        self.slots.insert(0, Slot::new(key, value.into()));
        self.reindex();
    }

    /// The field of this name, or a vacant entry.
    pub fn entry(&mut self, key: impl Into<Text>) -> Entry<'_> {
        let key = key.into();
        match self.position(&key) {
            Some(place) => Entry::Occupied(OccupiedEntry { map: self, place }),
            None => Entry::Vacant(VacantEntry { map: self, key }),
        }
    }

    /// Removes a field and keeps the order of the others.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let place = self.position(key)?;
        let Some(index) = &mut self.index else { return Some(self.slots.remove(place).value) };
        index.forget(key, place);
        let hole = Slot { key: None, value: Value::Null, hash: 0, rank: 0 };
        let slot = std::mem::replace(&mut self.slots[place], hole);
        if index.holes * 2 > self.slots.len() {
            self.reindex();
        }
        Some(slot.value)
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Removes the fields for which `keep` returns false. O(n).
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.slots.retain_mut(|slot| slot.key.as_deref().is_some_and(|key| keep(key, &mut slot.value)));
        self.reindex();
    }

    /// Moves the fields of another map here, as with [`Map::insert`].
    pub fn append(&mut self, other: &mut Map) {
        self.extend(std::mem::take(other));
    }

    /// Sorts the fields by name.
    pub fn sort_keys(&mut self) {
        self.slots.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        self.reindex();
    }

    /// The names and values of the fields.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        self.into_iter()
    }

    /// The names and mutable values of the fields.
    #[inline]
    pub fn iter_mut(&mut self) -> IterMut<'_> {
        self.into_iter()
    }

    /// The names of the fields.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// The values of the fields.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// The mutable values of the fields.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Value> + ExactSizeIterator {
        self.iter_mut().map(|(_, value)| value)
    }

    /// The values of the fields.
    pub fn into_values(self) -> impl DoubleEndedIterator<Item = Value> + ExactSizeIterator {
        self.into_iter().map(|(_, value)| value)
    }

    /// The names of the fields.
    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = Text> + ExactSizeIterator {
        self.into_iter().map(|(key, _)| key)
    }

    /// The number of slots, including holes.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn position(&self, key: &str) -> Option<usize> {
        // For a constant name the hash can be computed at compile time.
        self.search(hash(key), key)
    }

    fn search(&self, hash: u32, key: &str) -> Option<usize> {
        match &self.index {
            None => self.slots.iter().position(|slot| slot.is(hash, key)),
            Some(index) => index.find(hash, key, &self.slots),
        }
    }

    /// Adds a field with a new name.
    #[inline]
    fn push(&mut self, slot: Slot) -> &mut Value {
        let place = self.slots.len();
        if let Some(index) = &mut self.index {
            index.note(slot.name(), place, &self.slots);
        }
        self.slots.push(slot);
        if self.index.is_none() && place >= SEARCHED_IN_ORDER {
            self.reindex();
        }
        &mut self.slots.last_mut().expect("a field was just added").value
    }

    /// Closes the holes, and rebuilds the index of a large map.
    fn reindex(&mut self) {
        if self.index.as_ref().is_some_and(|index| index.holes > 0) {
            self.slots.retain(|slot| !slot.is_hole());
        }
        self.index = (self.slots.len() > SEARCHED_IN_ORDER).then(|| Box::new(Index::new(&self.slots)));
    }
}

impl PartialEq for Map {
    /// Compares fields regardless of order.
    fn eq(&self, other: &Self) -> bool {
        // The maps compared mostly have the same order, in which a name is found without a search.
        let found = |place: usize, slot: &Slot| match other.slots.get(place) {
            Some(beside) if beside.is(slot.hash, slot.name()) => Some(&beside.value),
            _ => other.search(slot.hash, slot.name()).map(|place| &other.slots[place].value),
        };
        let mut fields = self.slots.iter().filter(|slot| !slot.is_hole()).enumerate();
        self.len() == other.len() && fields.all(|(place, slot)| found(place, slot) == Some(&slot.value))
    }
}

impl Eq for Map {}

impl Hash for Map {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut fields: Vec<_> = self.iter().collect();
        fields.sort_unstable_by_key(|(key, _)| *key);
        fields.hash(state);
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Self {
        let mut map = Self::new();
        map.extend(fields);
        map
    }
}

impl<K: Into<Text>, V: Into<Value>> Extend<(K, V)> for Map {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, fields: I) {
        let fields = fields.into_iter();
        self.slots.reserve(fields.size_hint().0);
        for (key, value) in fields {
            self.insert(key, value);
        }
    }
}
