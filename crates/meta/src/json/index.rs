//! Indexes into values: names, element numbers, pointers, and `value["name"]`.
//!
//! Reading an absent field or element returns null. Writing adds a field to null or to an object, and panics for other
//! values.

use std::borrow::Cow;
use std::ops::{Index, IndexMut};

use super::{Map, Value};

/// The value that is read at an absent index.
static NULL: Value = Value::Null;

/// The name of a field or the index of an element.
pub trait ValueIndex {
    /// The value at this index. `None` if it is absent.
    fn get_in<'v>(&self, value: &'v Value) -> Option<&'v Value>;

    /// The mutable value at this index.
    fn get_mut_in<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value>;

    /// The value at this index, added as null if it is absent.
    ///
    /// # Panics
    /// The value can't have this index.
    fn get_or_insert_in<'v>(&self, value: &'v mut Value) -> &'v mut Value;
}

impl ValueIndex for str {
    #[inline]
    fn get_in<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_object()?.get(self)
    }

    #[inline]
    fn get_mut_in<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn get_or_insert_in<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(fields) => fields.entry(self).or_insert(Value::Null),
            other => panic!("{} can't have a field {self:?}", form(other)),
        }
    }
}

/// The type of a value. Panics show only the type: they are logged, and the value may be a secret.
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
    fn get_in<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_array()?.get(*self)
    }

    #[inline]
    fn get_mut_in<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }

    fn get_or_insert_in<'v>(&self, value: &'v mut Value) -> &'v mut Value {
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
    fn get_in<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.as_str().get_in(value)
    }

    #[inline]
    fn get_mut_in<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        self.as_str().get_mut_in(value)
    }

    fn get_or_insert_in<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        self.as_str().get_or_insert_in(value)
    }
}

impl<P: ValueIndex + ?Sized> ValueIndex for &P {
    #[inline]
    fn get_in<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        (*self).get_in(value)
    }

    #[inline]
    fn get_mut_in<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        (*self).get_mut_in(value)
    }

    fn get_or_insert_in<'v>(&self, value: &'v mut Value) -> &'v mut Value {
        (*self).get_or_insert_in(value)
    }
}

impl<P: ValueIndex> Index<P> for Value {
    type Output = Value;

    fn index(&self, place: P) -> &Value {
        place.get_in(self).unwrap_or(&NULL)
    }
}

impl<P: ValueIndex> IndexMut<P> for Value {
    fn index_mut(&mut self, place: P) -> &mut Value {
        place.get_or_insert_in(self)
    }
}

impl Index<&str> for Map {
    type Output = Value;

    /// # Panics
    /// There is no such field.
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("there is no field {key:?}"))
    }
}

impl IndexMut<&str> for Map {
    /// # Panics
    /// There is no such field.
    fn index_mut(&mut self, key: &str) -> &mut Value {
        self.get_mut(key).unwrap_or_else(|| panic!("there is no field {key:?}"))
    }
}

/// The steps of a JSON pointer. `None` for an invalid one.
pub(super) fn steps(pointer: &str) -> Option<impl Iterator<Item = Cow<'_, str>>> {
    let steps = if pointer.is_empty() { None } else { Some(pointer.strip_prefix('/')?) };
    Some(steps.into_iter().flat_map(|steps| steps.split('/')).map(|step| match step.contains('~') {
        true => Cow::Owned(step.replace("~1", "/").replace("~0", "~")),
        false => Cow::Borrowed(step),
    }))
}

/// The element index of a pointer step, without a sign or leading zeros.
pub(super) fn element(step: &str) -> Option<usize> {
    let is_plain = !step.starts_with('+') && (step == "0" || !step.starts_with('0'));
    if is_plain { step.parse().ok() } else { None }
}
