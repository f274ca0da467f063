//! A tree of JSON values. Objects have this form while the server processes them.
//!
//! The tree has the interface of `serde_json`'s tree and replaces it, since writes spend much of their time in trees.
//! Names and short texts are inline ([`Text`]). The fields of an object are in one allocation, which is searched in
//! order ([`Map`]). A value takes 32 bytes instead of 72. Numbers are those of `serde_json`.
//!
//! This module must not know the meaning of fields. `codec` parses bytes. With serde, a tree can be built from a short
//! text or from any type.
//!
//! All operations except those that sort keep the order of fields. Equality ignores the order.

mod convert;
mod equal;
mod index;
mod macros;
mod map;
mod serde;
mod size;
mod to_value;
mod value_kind;

#[cfg(test)]
mod tests;

pub use compact_str::CompactString as Text;
pub use serde_json::Number;

pub use crate::json_value as json;
pub use index::ValueIndex;
pub use map::{Entry, IntoIter, Iter, IterMut, Map, OccupiedEntry, Slot, VacantEntry, is_same_name};
pub use size::{about_bytes, about_bytes_of_members};
pub use to_value::to_value;
pub use value_kind::ValueKind;

/// Converts an integral float to the integer that Go writes for it, if it fits.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
pub fn integral(number: f64) -> Option<i64> {
    /// The limit up to which a float represents every integer exactly. For larger floats Go writes the shortest digits
    /// that parse to the same float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || !number.is_finite() {
        return None;
    }
    if number.abs() < EXACT { Some(number as i64) } else { number.to_string().parse().ok() }
}

/// A JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of 64 bits, signed or unsigned, or a float.
    Number(Number),
    /// A text. Up to 24 bytes are inline.
    String(Text),
    /// The elements of an array.
    Array(Vec<Value>),
    /// The fields of an object.
    Object(Map),
}

impl Value {
    /// Sorts the fields of this object, and of all objects in it, alphabetically.
    pub fn sort_all_keys(&mut self) {
        match self {
            Self::Array(items) => items.iter_mut().for_each(Self::sort_all_keys),
            Self::Object(map) => {
                if !map.keys().is_sorted() {
                    map.sort_keys();
                }
                map.iter_mut().for_each(|(_, value)| value.sort_all_keys());
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => {}
        }
    }

    /// Converts integral floats to integers if they fit. Encoding and decoding with Go's JSON has the same effect.
    pub fn make_floats_whole(&mut self) {
        match self {
            Self::Number(number) if number.is_f64() => {
                if let Some(whole) = number.as_f64().and_then(integral) {
                    *self = whole.into();
                }
            }
            Self::Array(items) => items.iter_mut().for_each(Self::make_floats_whole),
            Self::Object(map) => map.values_mut().for_each(Self::make_floats_whole),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => {}
        }
    }

    /// The field or element at this index. `None` if it does not exist, or if the value is of another type.
    #[inline]
    pub fn get(&self, place: impl ValueIndex) -> Option<&Value> {
        place.get_in(self)
    }

    /// The mutable field or element at this index.
    #[inline]
    pub fn get_mut(&mut self, place: impl ValueIndex) -> Option<&mut Value> {
        place.get_mut_in(self)
    }

    /// The value at a JSON pointer (RFC 6901). The empty pointer is the value itself.
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        index::steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(fields) => fields.get(&step),
            Value::Array(elements) => elements.get(index::element(&step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The mutable value at a JSON pointer.
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        index::steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(elements) => elements.get_mut(index::element(&step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// Takes the value and leaves null.
    #[inline]
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// The text of a string.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The value of a boolean.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// The value of a number.
    #[inline]
    pub fn as_number(&self) -> Option<&Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    /// The value of a number, if it is an integer in the range of the type.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    /// The value of a number, if it is an integer in the range of the type.
    #[inline]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// The value of a number. Large integers are rounded.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    /// The elements of an array.
    #[inline]
    pub fn as_array(&self) -> Option<&Vec<Value>> {
        if let Value::Array(elements) = self { Some(elements) } else { None }
    }

    /// The mutable elements of an array.
    #[inline]
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::Array(elements) = self { Some(elements) } else { None }
    }

    /// The fields of an object.
    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    /// The mutable fields of an object.
    #[inline]
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    /// Returns true for null.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns true for a boolean.
    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    /// Returns true for a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Value::Number(_))
    }

    /// Returns true for a string.
    #[inline]
    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    /// Returns true for an array.
    #[inline]
    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    /// Returns true for an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }
}
