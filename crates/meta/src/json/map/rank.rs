//! Fields in another order than that of their names: each is given a rank, and then they are sorted by it.
//!
//! For who walks all fields and knows of each where it belongs. Ranks stand in room that the fields take anyway, so that an
//! object is brought into order where it lies. They mean nothing to anything else here.

use super::{Map, Slot, Text, Value};

impl Map {
    /// The fields, to be changed and given a rank each.
    #[inline]
    pub fn ranked_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value, &mut u32)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.key.as_deref()?, &mut slot.value, &mut slot.rank)))
    }

    /// Whether a field has this rank. All have to have been given one.
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

    /// Adds a field of a name that is not there, with its rank, behind all others.
    pub fn push_ranked(&mut self, key: impl Into<Text>, value: Value, rank: u32) {
        self.push(Slot { rank, ..Slot::new(key.into(), value) });
    }

    /// Brings the fields into the order of their ranks; those of one rank stay as they are.
    pub fn sort_by_rank(&mut self) {
        self.slots.sort_by_key(|slot| slot.rank);
        self.reindex();
    }
}
