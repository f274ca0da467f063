//! Creates declarations from a structural schema of a custom resource.
//!
//! Sizes are computed as upstream does, since they decide which rules are refused because of their estimated cost.

use super::{Decl, ListKind};
use keelson_meta::json::Value;
use std::sync::Arc;

/// The maximum size of a request in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The size of quotation marks or brackets around a value in bytes.
const BRACKETS: u64 = 2;
/// The length of the longest duration in characters.
const MAX_DURATION: u64 = 32;
/// The size of the shortest quoted duration in bytes.
const MIN_DURATION: u64 = 3;
/// The length of the longest time, and the sizes of the shortest time and date, all quoted.
const MAX_DATE_TIME: u64 = 32;
const MIN_DATE_TIME: u64 = 21;
const DATE: u64 = 12;
/// The maximum lengths of `metadata.name` and `metadata.generateName` in characters. A generated name is longer than its
/// prefix.
const MAX_NAMES: [(&str, u64); 2] = [("name", 253), ("generateName", 252)];
/// The maximum depth of schemas.
const MAX_DEPTH: u32 = 200;

/// Creates the declaration of the values of a schema. `None` if expressions can't represent the values.
pub fn from_schema(schema: &Value, name: &str, is_root: bool) -> Option<Arc<Decl>> {
    declare(schema, name, is_root, 0)
}

fn is_set(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn limit(schema: &Value, key: &str) -> Option<u64> {
    let limit = schema.get(key)?;
    Some(limit.as_u64().unwrap_or(if limit.as_f64()? < 0.0 { 0 } else { limit.as_f64()? as u64 }))
}

fn declare(schema: &Value, name: &str, is_root: bool, depth: u32) -> Option<Arc<Decl>> {
    if depth > MAX_DEPTH {
        return None;
    }
    // The limit is in code points, each of which has up to four bytes.
    let length = limit(schema, "maxLength").map(|length| length.saturating_mul(4));
    if is_set(schema, "x-kubernetes-int-or-string") {
        return Some(Decl::int_or_string(length.unwrap_or(MAX_REQUEST - BRACKETS)));
    }
    let below =
        |schema: &Value, name: &str| declare(schema, name, is_set(schema, "x-kubernetes-embedded-resource"), depth + 1);
    // The root of a resource is always an object.
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or(if is_root { "object" } else { "" });
    match kind {
        "array" => {
            let items = below(schema.get("items")?, &format!("{name}.@idx"))?;
            let most = limit(schema, "maxItems").unwrap_or((MAX_REQUEST - BRACKETS) / (items.min_size + 1));
            Some(Decl::list(items, most, list_kind(schema)))
        }
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => {
                let values = below(values, &format!("{name}.@elem"))?;
                // An entry also has a quoted key, a colon and a comma.
                let most = limit(schema, "maxProperties").unwrap_or((MAX_REQUEST - BRACKETS) / (values.min_size + 6));
                Some(Decl::map(values, most))
            }
            _ => Some(object(schema, name, is_root, below)),
        },
        "string" => Some(text(schema, length)),
        "boolean" => Some(Decl::bool()),
        "number" => Some(Decl::double()),
        "integer" => Some(Decl::int()),
        _ => None,
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let names = keys.into_iter().flatten().filter_map(Value::as_str);
            ListKind::Map(names.map(|key| super::escape(key).unwrap_or_else(|| key.to_owned())).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn object(schema: &Value, name: &str, is_root: bool, below: impl Fn(&Value, &str) -> Option<Arc<Decl>>) -> Arc<Decl> {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut min_size = BRACKETS;
    let mut fields = Vec::new();
    for (property, of) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if is_root && matches!(property, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let escaped = super::escape(property).unwrap_or_else(|| property.to_owned());
        let Some(decl) = below(of, &format!("{name}.{escaped}")) else { continue };
        if required.contains(&property) && of.get("default").is_none() {
            min_size += property.len() as u64 + decl.min_size + 4;
        }
        fields.push((property.to_owned(), decl));
    }
    if is_root {
        let text = || Decl::string(MAX_REQUEST - BRACKETS);
        let declared = |name| schema.get("properties")?.get("metadata")?.get("properties")?.get(name);
        let metadata = MAX_NAMES.map(|(name, most)| {
            let own = declared(name).and_then(|of| limit(of, "maxLength"));
            (name.to_owned(), Decl::string(own.map_or(most, |own| own.min(most)).saturating_mul(4)))
        });
        fields.push(("metadata".to_owned(), Decl::object(&format!("{name}.metadata"), metadata)));
        fields.extend(["apiVersion", "kind"].map(|name| (name.to_owned(), text())));
    }
    Decl::object_of(name, fields, min_size)
}

fn text(schema: &Value, length: Option<u64>) -> Arc<Decl> {
    match schema.get("format").and_then(Value::as_str) {
        Some("byte") => Decl::bytes(limit(schema, "maxLength").unwrap_or(MAX_REQUEST - BRACKETS)),
        Some("duration") => Decl::duration(MAX_DURATION, MIN_DURATION),
        Some("date") => Decl::timestamp(DATE, DATE),
        Some("date-time") => Decl::timestamp(MAX_DATE_TIME, MIN_DATE_TIME),
        _ => {
            let values = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty());
            let longest = values.map(|values| {
                values.iter().filter_map(Value::as_str).map(|value| value.len() as u64).max().unwrap_or(0)
            });
            Decl::string(length.or(longest).unwrap_or(MAX_REQUEST - BRACKETS))
        }
    }
}
