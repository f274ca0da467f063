//! JSON pointers (RFC 6901), and the containers they lead to.
//!
//! Array indexes follow the library upstream uses: `-1` is the last element, `+1` and `01` are one.

use std::borrow::Cow;

use keelson_meta::json::{Map, Value};

/// A parsed pointer: the keys and indexes from the root, without their escapes.
pub(crate) struct Pointer<'a>(Vec<Cow<'a, str>>);

/// Where the last step of a pointer goes.
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

    /// Reads a pointer to something inside of the root. As in upstream's library what stands before the first slash does not
    /// count; `None` for a text without a slash.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (_, steps) = text.split_once('/')?;
        Some(Self(steps.split('/').map(unescape).collect()))
    }

    /// The value at the end, if there is one.
    pub(crate) fn get<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, step| match value {
            Value::Object(map) => map.get(step),
            Value::Array(items) => items.get(existing(step, items.len())?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// Does something with each container on the way, as far as there is one.
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

    /// The container of the value at the end, which itself need not exist.
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

/// The index of an element that exists.
pub(crate) fn existing(step: &str, len: usize) -> Option<usize> {
    position(step, len).filter(|index| *index < len)
}

/// The index at which an element can be inserted; `-` is the end, and `-1` is the end as well.
pub(crate) fn insertion(step: &str, len: usize) -> Option<usize> {
    if step == "-" { Some(len) } else { position(step, len + 1).filter(|index| *index <= len) }
}

/// Counts from the front, or from the back when the number is negative.
fn position(step: &str, len: usize) -> Option<usize> {
    let index: isize = step.parse().ok()?;
    if index < 0 { len.checked_add_signed(index) } else { usize::try_from(index).ok() }
}

fn unescape(step: &str) -> Cow<'_, str> {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
}
