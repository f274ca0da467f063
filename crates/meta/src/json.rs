//! The tree of a JSON document: what an object is while the server works on it.
//!
//! It reads and is used like the tree of `serde_json`, which it stands in for because a write spends much of its time in
//! trees. Names and short texts stand in the tree itself ([`Text`]), the fields of an object in one allocation that is
//! searched in order ([`Map`]), and a value takes 32 bytes rather than 72. Numbers are those of `serde_json`. Nothing here
//! knows what a field means, and reading bytes is `codec`'s; through serde a tree can be made of a small text or of any
//! type.
//!
//! The order of fields is kept by everything but `sort_keys`, and does not matter to equality.

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

/// The integer that Go writes for a float, if the float has no fraction and the integer fits.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
pub fn integral(number: f64) -> Option<i64> {
    /// Whole numbers below this are exact as floats. Of larger ones Go writes the shortest digits that read as the same float.
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
    /// An integer of 64 bits with or without sign, or a float.
    Number(Number),
    /// A text. Up to 24 bytes of it take no allocation.
    String(Text),
    /// The elements of an array.
    Array(Vec<Value>),
    /// The fields of an object.
    Object(Map),
}

impl Value {
    /// Puts the fields of this object, and of all objects in it, into alphabetical order.
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

    /// Makes an integer of each float in it that has no fraction and fits, as Go does when it writes JSON and reads it again.
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

    /// The field or element at this place; `None` if there is none, or if this is no object or array.
    #[inline]
    pub fn get(&self, place: impl ValueIndex) -> Option<&Value> {
        place.of(self)
    }

    /// The field or element at this place, to be changed.
    #[inline]
    pub fn get_mut(&mut self, place: impl ValueIndex) -> Option<&mut Value> {
        place.of_mut(self)
    }

    /// The value that a JSON pointer (RFC 6901) leads to; the empty one leads to this.
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        index::steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(fields) => fields.get(&step),
            Value::Array(elements) => elements.get(index::element(&step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The value that a JSON pointer leads to, to be changed.
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        index::steps(pointer)?.try_fold(self, |value, step| match value {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(elements) => elements.get_mut(index::element(&step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The value, with null left in its place.
    #[inline]
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// The text, if it is one.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The truth value, if it is one.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// The number, if it is one.
    #[inline]
    pub fn as_number(&self) -> Option<&Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    /// The number, if it is one that fits.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    /// The number, if it is one that fits.
    #[inline]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// The number, if it is one; large integers are rounded.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    /// The elements, if it is an array.
    #[inline]
    pub fn as_array(&self) -> Option<&Vec<Value>> {
        if let Value::Array(elements) = self { Some(elements) } else { None }
    }

    /// The elements, if it is an array, to be changed.
    #[inline]
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::Array(elements) = self { Some(elements) } else { None }
    }

    /// The fields, if it is an object.
    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    /// The fields, if it is an object, to be changed.
    #[inline]
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Object(fields) = self { Some(fields) } else { None }
    }

    /// Whether it is null.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Whether it is a truth value.
    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Value::Number(_))
    }

    /// Whether it is a text.
    #[inline]
    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    /// Whether it is an array.
    #[inline]
    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    /// Whether it is an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }
}
