//! Places of values in others: names, numbers of elements, pointers, and `value["name"]`.
//!
//! Reading what is not there gives null. Writing makes a field of what is null or an object, and panics elsewhere.

use std::borrow::Cow;
use std::ops::{Index, IndexMut};

use super::{Map, Value};

/// What reading a place where nothing is gives.
static NULL: Value = Value::Null;

/// The name of a field or the number of an element.
pub trait ValueIndex {
    /// The value here; `None` if there is none.
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value>;

    /// The value here, to be changed.
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value>;

    /// The value here, made null if there is none.
    ///
    /// # Panics
    /// In a value that can't have one here.
    fn made<'v>(&self, value: &'v mut Value) -> &'v mut Value;
}

impl ValueIndex for str {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_object()?.get(self)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn made<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(fields) => fields.entry(self).or_insert(Value::Null),
            other => panic!("{} can't have a field {self:?}", form(other)),
        }
    }
}

/// What a value is. The value itself may be a secret, and what is said in a panic is logged.
const fn form(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl ValueIndex for usize {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_array()?.get(*self)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }

    fn made<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        match value {
            Value::Array(elements) => {
                let count = elements.len();
                elements.get_mut(*self).unwrap_or_else(|| panic!("an array of {count} has no element {self}"))
            }
            other => panic!("{} has no element {self}", form(other)),
        }
    }
}

impl ValueIndex for String {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.as_str().of(value)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        self.as_str().of_mut(value)
    }

    fn made<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        self.as_str().made(value)
    }
}

impl<P: ValueIndex + ?Sized> ValueIndex for &P {
    #[inline]
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        (*self).of(value)
    }

    #[inline]
    fn of_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        (*self).of_mut(value)
    }

    fn made<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        (*self).made(value)
    }
}

impl<P: ValueIndex> Index<P> for Value {
    type Output = Value;

    fn index(&self, place: P) -> &Value {
        place.of(self).unwrap_or(&NULL)
    }
}

impl<P: ValueIndex> IndexMut<P> for Value {
    fn index_mut(&mut self, place: P) -> &mut Value {
        place.made(self)
    }
}

impl Index<&str> for Map {
    type Output = Value;

    /// # Panics
    /// If there is no such field.
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("there is no field {key:?}"))
    }
}

impl IndexMut<&str> for Map {
    /// # Panics
    /// If there is no such field.
    fn index_mut(&mut self, key: &str) -> &mut Value {
        self.get_mut(key).unwrap_or_else(|| panic!("there is no field {key:?}"))
    }
}

/// The steps of a JSON pointer; `None` if it is none.
pub(super) fn steps(pointer: &str) -> Option<impl Iterator<Item = Cow<'_, str>>> {
    let steps = if pointer.is_empty() { None } else { Some(pointer.strip_prefix('/')?) };
    Some(steps.into_iter().flat_map(|steps| steps.split('/')).map(|step| match step.contains('~') {
        true => Cow::Owned(step.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(step),
    }))
}

/// The number of an element, as a pointer names it: without a sign or leading zeros.
pub(super) fn element(step: &str) -> Option<usize> {
    let is_plain = !step.starts_with('+') && (step == "0" || !step.starts_with('0'));
    if is_plain { step.parse().ok() } else { None }
}
