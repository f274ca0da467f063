//! By what the items of a list are told apart.

use serde_json::Value;
use thiserror::Error;

use super::element::PathElement;
use super::schema::{FieldSchema, Form};
use super::view::View;

/// Why an item has no identity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum NoIdentity {
    #[error("associative list with keys may not have a null element")]
    NullItem,
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    #[error("associative list with keys has an element that omits key field {0:?} (and doesn't have default value)")]
    NoKey(String),
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("invalid indexing of non-associative list")]
    NotAssociative,
}

/// The path element of an item of the list.
pub(super) fn of_item<'a, S: FieldSchema<'a>>(list: View<S>, item: &Value) -> Result<PathElement, NoIdentity> {
    match (list, list.form()) {
        (View::Known(list), Form::KeyedList) => keyed(list, item),
        (View::Known(_), Form::Set) => match item {
            Value::Object(_) => Err(NoIdentity::ObjectInSet),
            Value::Array(_) => Err(NoIdentity::ListInSet),
            Value::Null => Err(NoIdentity::NullInSet),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(PathElement::value(item.clone())),
        },
        _ => Err(NoIdentity::NotAssociative),
    }
}

fn keyed<'a>(list: impl FieldSchema<'a>, item: &Value) -> Result<PathElement, NoIdentity> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err(NoIdentity::NullItem),
        _ => return Err(NoIdentity::NotAnObject),
    };
    let fields = list.keys().map(|key| {
        let value = members.get(key).cloned().or_else(|| list.key_default(key));
        Ok((key.into(), value.ok_or_else(|| NoIdentity::NoKey(key.to_owned()))?))
    });
    Ok(PathElement::key(fields.collect::<Result<Vec<_>, _>>()?))
}
