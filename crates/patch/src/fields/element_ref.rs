//! One step of a path, borrowed from the value. Most steps are only compared or written, and never stored.
//!
//! To store a step, it is converted to a `PathElement`, which owns its texts.

use keelson_meta::json::{Map, Value};

use super::element::PathElement;

/// One step from a value to a part of it.
#[derive(Clone, Copy)]
pub(super) enum PathElementRef<'v> {
    /// A field of an object or an entry of a map.
    Field(&'v str),
    /// The item of a list with these values in these key fields, which are sorted by name. `None` stands for an absent
    /// field.
    Key { names: &'v [&'v str], values: &'v [Option<&'v Value>] },
    /// The item of a set that is this value.
    Value(&'v Value),
}

impl PathElementRef<'_> {
    /// Converts the step to an owned element.
    pub(super) fn to_element(self) -> PathElement {
        match self {
            Self::Field(name) => PathElement::field(name),
            Self::Key { names, values } => {
                PathElement::key(key_fields(names, values).map(|(name, value)| (name.into(), value.clone())))
            }
            Self::Value(value) => PathElement::value(value.clone()),
        }
    }
}

/// The key fields that an item has, with their values.
pub(super) fn key_fields<'v>(
    names: &'v [&'v str],
    values: &'v [Option<&'v Value>],
) -> impl Iterator<Item = (&'v str, &'v Value)> + Clone {
    names.iter().zip(values).filter_map(|(name, value)| Some((*name, (*value)?)))
}

/// The object of these key fields.
pub(super) fn key_object<'v>(fields: impl Iterator<Item = (&'v str, &'v Value)>) -> Value {
    fields.map(|(name, value)| (name, value.clone())).collect::<Map>().into()
}
