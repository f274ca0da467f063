//! Taking fields away from an object.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::identity::of_item;
use super::schema::{FieldSchema, Form};
use super::set::FieldSet;
use super::view::View;

/// The object without these fields and everything below them. Cost: proportional to the object.
///
/// An object or a list in it that loses its last part becomes null; the object itself stays one.
pub fn remove<'a>(schema: impl FieldSchema<'a>, object: &Value, fields: &FieldSet) -> Value {
    if fields.is_empty() {
        return object.clone();
    }
    match walk(View::Known(schema), object, fields) {
        Value::Null => Value::Object(Map::new()),
        left => left,
    }
}

fn walk<'a>(view: View<impl FieldSchema<'a>>, value: &Value, fields: &FieldSet) -> Value {
    match (view.form(), value) {
        (Form::Map | Form::Deduced, Value::Object(members)) => {
            let left: Map<_, _> =
                members.iter().filter_map(|(name, value)| member(view, name, value, fields)).collect();
            if left.is_empty() { Value::Null } else { left.into() }
        }
        (Form::Set | Form::KeyedList, Value::Array(items)) => {
            let left: Vec<_> = items.iter().filter_map(|value| item(view, value, fields)).collect();
            if left.is_empty() { Value::Null } else { left.into() }
        }
        // Fields below what is now owned as one go with it.
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, scalar) => scalar.clone(),
    }
}

fn member<'a>(
    view: View<impl FieldSchema<'a>>,
    name: &str,
    value: &Value,
    fields: &FieldSet,
) -> Option<(String, Value)> {
    let left = part(view.member(name).0, &PathElement::field(name), value, fields)?;
    Some((name.to_owned(), left))
}

fn item<'a>(view: View<impl FieldSchema<'a>>, value: &Value, fields: &FieldSet) -> Option<Value> {
    match of_item(view, value) {
        Ok(element) => part(view.items(), &element, value, fields),
        Err(_) => Some(value.clone()),
    }
}

/// What is left of one part; `None` if it goes as a whole.
fn part<'a>(
    view: View<impl FieldSchema<'a>>,
    element: &PathElement,
    value: &Value,
    fields: &FieldSet,
) -> Option<Value> {
    if fields.contains(std::slice::from_ref(element)) {
        return None;
    }
    Some(fields.below(element).map_or_else(|| value.clone(), |below| walk(view, value, below)))
}
