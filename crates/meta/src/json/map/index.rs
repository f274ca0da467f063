//! An index of the fields of a large object by name.
//!
//! The index contains only numbers of slots. The names are in the slots.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::Slot;

/// The slots of fields.
#[derive(Clone)]
pub(super) struct Index {
    places: HashTable<u32>,
    /// Has a random seed, which prevents collision attacks.
    hasher: RandomState,
    /// The number of holes.
    pub(super) holes: usize,
}

impl Index {
    /// The index of these slots, which must have no holes.
    pub(super) fn new(slots: &[Slot]) -> Self {
        let mut index = Self { places: HashTable::with_capacity(slots.len()), hasher: RandomState::new(), holes: 0 };
        for (place, slot) in slots.iter().enumerate() {
            if let Some(key) = &slot.key {
                index.note(key, place, slots);
            }
        }
        index
    }

    /// The slot of the field with this name.
    pub(super) fn find(&self, hash: u32, key: &str, slots: &[Slot]) -> Option<usize> {
        let found = self.places.find(self.hasher.hash_one(key), |place| slots[*place as usize].is(hash, key));
        found.map(|place| *place as usize)
    }

    /// Adds the slot of a new field.
    pub(super) fn note(&mut self, key: &str, place: usize, slots: &[Slot]) {
        let Self { places, hasher, .. } = self;
        let place = u32::try_from(place).expect("no object in memory has 2^32 fields");
        let hash_of = |place: &u32| hasher.hash_one(slots[*place as usize].name());
        places.insert_unique(hasher.hash_one(key), place, hash_of);
    }

    /// Removes the field of this name, whose slot becomes a hole.
    pub(super) fn forget(&mut self, key: &str, place: usize) {
        if let Ok(found) = self.places.find_entry(self.hasher.hash_one(key), |known| *known as usize == place) {
            found.remove();
            self.holes += 1;
        }
    }
}
