//! Sorts fields by ranks that the caller assigns.
//!
//! Ranks serve code that visits all fields of an object and knows the target position of each. Ranks are in padding of
//! the slots, so that an object is sorted in place. Nothing else uses them.

use super::{Map, Slot, Text, Value};

impl Map {
    /// The mutable fields. The caller must assign a rank to each.
    #[inline]
    pub fn ranked_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value, &mut u32)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.key.as_deref()?, &mut slot.value, &mut slot.rank)))
    }

    /// Returns true if a field has this rank. All fields must have an assigned rank.
    pub fn has_rank(&self, rank: u32) -> bool {
        self.slots.iter().any(|slot| slot.rank == rank && !slot.is_hole())
    }

    /// Removes the fields of this rank.
    pub fn remove_rank(&mut self, rank: u32) {
        if self.has_rank(rank) {
            self.slots.retain(|slot| slot.rank != rank && !slot.is_hole());
            self.reindex();
        }
    }

    /// Adds a field with a new name and its rank at the end.
    pub fn push_ranked(&mut self, key: impl Into<Text>, value: Value, rank: u32) {
        self.push(Slot { rank, ..Slot::new(key.into(), value) });
    }

    /// Sorts the fields by rank, stably.
    pub fn sort_by_rank(&mut self) {
        self.slots.sort_by_key(|slot| slot.rank);
        self.reindex();
    }
}
