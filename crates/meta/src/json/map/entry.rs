//! The entry of one field of an object. It is looked up once and then read or filled.
//!
//! The interface is that of the standard library's maps. A new field is added at the end.

use super::{Map, Slot, Text, Value};

/// The entry of a name: an existing field, or a vacant entry.
pub enum Entry<'m> {
    /// An existing field.
    Occupied(OccupiedEntry<'m>),
    /// An absent field.
    Vacant(VacantEntry<'m>),
}

/// An existing field.
pub struct OccupiedEntry<'m> {
    pub(super) map: &'m mut Map,
    pub(super) place: usize,
}

/// An absent field.
pub struct VacantEntry<'m> {
    pub(super) map: &'m mut Map,
    pub(super) key: Text,
}

impl<'m> Entry<'m> {
    /// The value of the field. If the field is absent, adds it with this value.
    pub fn or_insert(self, value: impl Into<Value>) -> &'m mut Value {
        self.or_insert_with(|| value.into())
    }

    /// The value of the field. If the field is absent, adds it with the result of `make`.
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

    /// Sets the value and returns the old one.
    pub fn insert(&mut self, value: impl Into<Value>) -> Value {
        std::mem::replace(&mut self.map.slots[self.place].value, value.into())
    }
}

impl<'m> VacantEntry<'m> {
    /// Adds the field at the end.
    pub fn insert(self, value: impl Into<Value>) -> &'m mut Value {
        self.map.push(Slot::new(self.key, value.into()))
    }
}
