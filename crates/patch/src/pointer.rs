//! JSON pointers (RFC 6901), and the objects and arrays that they lead to.
//!
//! Array indexes are read as in upstream's library: `-1` is the last element, and `+1` and `01` are 1.

use std::borrow::Cow;

use keelson_meta::json::{Map, Value};

/// A parsed pointer: unescaped keys and indexes from the root.
pub(crate) struct Pointer<'a>(Vec<Cow<'a, str>>);

/// The place of a pointer's last step.
pub(crate) enum TargetLocation<'v, 'p> {
    Root,
    Member(&'v mut Map, &'p str),
    Element(&'v mut Vec<Value>, &'p str),
}

impl<'a> Pointer<'a> {
    /// The pointer to the root itself.
    pub(crate) fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses a pointer to a place below the root. As in upstream's library, text before the first slash is ignored.
    /// `None` for a text without a slash.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (_, steps) = text.split_once('/')?;
        Some(Self(steps.split('/').map(unescape).collect()))
    }

    /// The value of the pointer, if it exists.
    pub(crate) fn get<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, step| match value {
            Value::Object(map) => map.get(step),
            Value::Array(items) => items.get(existing(step, items.len())?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// Calls `action` on each object and array along the pointer, as far as they exist.
    pub(crate) fn each_container(&self, root: &mut Value, mut action: impl FnMut(&mut Value)) {
        let mut value = root;
        for step in &self.0 {
            action(value);
            let next = match value {
                Value::Object(map) => map.get_mut(step),
                Value::Array(items) => existing(step, items.len()).and_then(|index| items.get_mut(index)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            match next {
                Some(next) => value = next,
                None => return,
            }
        }
    }

    /// The object or array that contains the pointer's value. The value itself need not exist.
    pub(crate) fn place<'v>(&self, root: &'v mut Value) -> Option<TargetLocation<'v, '_>> {
        let Some((last, steps)) = self.0.split_last() else {
            return Some(TargetLocation::Root);
        };
        let container = steps.iter().try_fold(root, |value, step| match value {
            Value::Object(map) => map.get_mut(step),
            Value::Array(items) => {
                let index = existing(step, items.len())?;
                items.get_mut(index)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })?;
        match container {
            Value::Object(map) => Some(TargetLocation::Member(map, last)),
            Value::Array(items) => Some(TargetLocation::Element(items, last)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

/// The index of an existing element.
pub(crate) fn existing(step: &str, len: usize) -> Option<usize> {
    position(step, len).filter(|index| *index < len)
}

/// The index for inserting an element. `-` and `-1` are the end.
pub(crate) fn insertion(step: &str, len: usize) -> Option<usize> {
    if step == "-" { Some(len) } else { position(step, len + 1).filter(|index| *index <= len) }
}

/// Converts an index. A negative number counts from the end.
fn position(step: &str, len: usize) -> Option<usize> {
    let index: isize = step.parse().ok()?;
    if index < 0 { len.checked_add_signed(index) } else { usize::try_from(index).ok() }
}

fn unescape(step: &str) -> Cow<'_, str> {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
}
