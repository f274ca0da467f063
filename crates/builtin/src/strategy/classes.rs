//! The default class of new objects that name none. If several classes are the default, the newest applies.
//!
//! Classes are read from the cache. A class that another server has just created may be missing.

use std::cmp::Reverse;

use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;

pub(crate) fn set_class(object: &mut Object, field: &str, class: Option<String>) {
    if let (Some(class), Some(Value::Object(spec))) = (class, object.0.get_mut("spec")) {
        spec.insert(field, json!(class));
    }
}

pub(crate) fn has_annotation(object: &Object, wanted: &str) -> bool {
    object.annotations().any(|(name, _)| name == wanted)
}

/// The name of the default class. Of several the newest applies, and of equally old ones the first by name.
pub(crate) fn newest_default(
    registry: &Registry,
    group: &str,
    plural: &str,
    annotations: &[&str],
) -> Result<Option<String>, ApiError> {
    let is_default = |class: &Object| class.annotations().any(|(name, on)| annotations.contains(&name) && on == "true");
    let classes = all(registry, group, plural)?.into_iter().filter(is_default);
    let newest = classes.min_by_key(|class| {
        (Reverse(class.creation_timestamp().unwrap_or_default().to_owned()), class.name().to_owned())
    });
    Ok(newest.map(|class| class.name().to_owned()))
}

fn all(registry: &Registry, group: &str, plural: &str) -> Result<Vec<Object>, ApiError> {
    let classes = registry.target(group, plural)?.collection()?.snapshot();
    Ok(classes.range("", None).map(|entry| entry.object().decode(entry.revision)).collect())
}
