//! The rules for the fields in a scale of a custom resource: the replicas must be a valid number and the selector a
//! text. As upstream, every write is validated by them, not only writes of scales.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_patch::go_text;
use keelson_resources::{ScalePaths, Text};

use crate::target::Target;

/// The errors in the fields that an object's scale has. A write of the status reports only errors of the status.
pub(crate) fn faults(target: &Target, object: &Object) -> Vec<FieldError> {
    let Some(paths) = target.version.subresource("scale").and_then(|scale| scale.scale.as_ref()) else {
        return Vec::new();
    };
    let ScalePaths { wanted, actual, selector } = paths;
    let of_spec = (target.subresource_name() != Some("status")).then(|| replicas(object, wanted)).flatten();
    let selector = selector.as_ref().and_then(|path| wrong(object, path, "string", Value::is_string, json!("")));
    of_spec.into_iter().chain(replicas(object, actual)).chain(selector).collect()
}

fn replicas(object: &Object, path: &[Text]) -> Option<FieldError> {
    if let Some(fault) = wrong(object, path, "int64", |value| value.as_i64().is_some(), json!(0)) {
        return Some(fault);
    }
    let number = at(object, path).ok()??.as_i64()?;
    let why = match number {
        ..0 => "should be a non-negative integer".to_owned(),
        number if number > i64::from(i32::MAX) => format!("should be less than or equal to {}", i32::MAX),
        _ => return None,
    };
    Some(FieldError::invalid(written(path), number, why))
}

/// The error for a value of a wrong type, or for a path through a value that is not an object. Upstream shows the zero
/// value of the type if there is no value.
fn wrong(
    object: &Object,
    path: &[Text],
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
    nothing: Value,
) -> Option<FieldError> {
    let (place, found, wanted) = match at(object, path) {
        Ok(None) => return None,
        Ok(Some(found)) if fits(found) => return None,
        Ok(Some(found)) => (path, found, wanted),
        Err((place, found)) => (&path[..=place], found, "map[string]interface{}"),
    };
    let (shown, of) = (go_text::value(found), go_text::type_name(found));
    let why = format!("{} accessor error: {shown} is of the type {of}, expected {wanted}", written(place));
    Some(FieldError::invalid(written(path), nothing, why))
}

/// The value at a path. If a value on the path is not an object, the error has the index of that step, and the value.
fn at<'o>(object: &'o Object, path: &[Text]) -> Result<Option<&'o Value>, (usize, &'o Value)> {
    let mut found = path.first().and_then(|first| object.0.get(first));
    for (place, name) in path.iter().enumerate().skip(1) {
        found = match found {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(map)) => map.get(name),
            Some(other) => return Err((place, other)),
        };
    }
    Ok(found)
}

/// A path in the form of a definition.
fn written(path: &[Text]) -> String {
    path.iter().map(|name| format!(".{name}")).collect()
}
