//! The place of one field, found once and then read or filled.
//!
//! The form is that of the standard library's maps. A field that is put in comes last.

use super::{Map, Slot, Text, Value};

/// The field of a name, or the place for it.
pub enum Entry<'m> {
    /// There is such a field.
    Occupied(OccupiedEntry<'m>),
    /// There is none.
    Vacant(VacantEntry<'m>),
}

/// A field that is there.
pub struct OccupiedEntry<'m> {
    pub(super) map: &'m mut Map,
    pub(super) place: usize,
}

/// The place for a field that is not there.
pub struct VacantEntry<'m> {
    pub(super) map: &'m mut Map,
    pub(super) key: Text,
}

impl<'m> Entry<'m> {
    /// The value of the field, which is made this if there is none.
    pub fn or_insert(self, value: impl Into<Value>) -> &'m mut Value {
        self.or_insert_with(|| value.into())
    }

    /// The value of the field, which is made if there is none.
    pub fn or_insert_with(self, make: impl FnOnce() -> Value) -> &'m mut Value {
        match self {
            Entry::Occupied(entry) => &mut entry.map.slots[entry.place].value,
            Entry::Vacant(entry) => entry.insert(make()),
        }
    }
}

impl OccupiedEntry<'_> {
    /// The name of the field.
    pub fn key(&self) -> &str {
        self.map.slots[self.place].name()
    }

    /// Changes the value and gives back what it was.
    pub fn insert(&mut self, value: impl Into<Value>) -> Value {
        std::mem::replace(&mut self.map.slots[self.place].value, value.into())
    }
}

impl<'m> VacantEntry<'m> {
    /// Adds the field behind all others.
    pub fn insert(self, value: impl Into<Value>) -> &'m mut Value {
        self.map.push(Slot::new(self.key, value.into()))
    }
}
