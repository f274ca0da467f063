//! Helpers for JSON trees that treat null as absent, like Go's decoder.
//!
//! Conversions keep the order of the fields that stay. A value of the wrong type is an error, and is never dropped.

use keelson_meta::json::{Map, Value};

use crate::converting::conversion::ConversionError;

/// Removes a field and returns it; null counts as absent. The others keep their order.
pub(crate) fn take(tree: &mut Map, key: &str) -> Option<Value> {
    tree.remove(key).filter(|value| !value.is_null())
}

/// Removes a field that is an object, and returns it.
pub(crate) fn take_object(tree: &mut Map, key: &'static str) -> Result<Option<Map>, ConversionError> {
    match take(tree, key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(ConversionError::WrongType { field: key, wanted: "an object" }),
    }
}

/// A field that is an object; `None` if it is absent.
pub(crate) fn object<'a>(tree: &'a mut Map, key: &'static str) -> Result<Option<&'a mut Map>, ConversionError> {
    match tree.get_mut(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(ConversionError::WrongType { field: key, wanted: "an object" }),
    }
}

/// A field that is an object. Creates it if it is absent.
pub(crate) fn object_or_new<'a>(tree: &'a mut Map, key: &'static str) -> Result<&'a mut Map, ConversionError> {
    let value = tree.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or(ConversionError::WrongType { field: key, wanted: "an object" })
}

/// Sets the field if it is absent or null.
pub(crate) fn fill(tree: &mut Map, key: &'static str, value: Value) {
    let field = tree.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = value;
    }
}

/// Sets the field if it is unset ([`is_unset`]).
pub(crate) fn fill_unset(tree: &mut Map, key: &str, value: impl Into<Value>) {
    if tree.get(key).is_none_or(is_unset) {
        tree.insert(key, value);
    }
}

/// Adds an annotation to an object.
pub(crate) fn annotate(object: &mut Map, name: &'static str, text: String) -> Result<(), ConversionError> {
    let metadata = object_or_new(object, "metadata")?;
    object_or_new(metadata, "annotations")?.insert(name, text);
    Ok(())
}

/// Removes an annotation and returns it. Also removes the map of annotations if it becomes empty.
pub(crate) fn take_annotation(tree: &mut Map, name: &'static str) -> Result<Option<Value>, ConversionError> {
    let Some(metadata) = object(tree, "metadata")? else { return Ok(None) };
    let Some(annotations) = object(metadata, "annotations")? else { return Ok(None) };
    let taken = annotations.remove(name);
    if taken.is_some() && annotations.is_empty() {
        metadata.remove("annotations");
    }
    Ok(taken)
}

/// Changes each object in the list of this name, if there is one.
pub(crate) fn each_in(
    tree: &mut Map,
    key: &'static str,
    change: impl Fn(&mut Map) -> Result<(), ConversionError>,
) -> Result<(), ConversionError> {
    let list = match tree.get_mut(key) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(ConversionError::WrongType { field: key, wanted: "a list" }),
    };
    list.iter_mut().try_for_each(|item| match item {
        Value::Object(item) => change(item),
        _ => Err(ConversionError::WrongType { field: key, wanted: "a list of objects" }),
    })
}

/// Appends the remaining fields of a tree to a built one, except those that it has already.
pub(crate) fn append_rest(built: &mut Map, rest: Map) {
    for (key, value) in rest {
        built.entry(key).or_insert(value);
    }
}

/// Returns true for a value that means the same as an absent one: null, an empty string or zero.
pub(crate) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}
