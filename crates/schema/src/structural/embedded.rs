//! Validates kind, version and metadata of embedded objects (`x-kubernetes-embedded-resource`).
//!
//! The rules are those of resources, except that the name is optional. If a field has a wrong type, only the first such
//! fault is reported.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::gvk::GroupVersion;
use keelson_meta::json::{self, Map, Value};
use keelson_meta::metadata_rules::validate_custom_metadata;
use keelson_meta::names::{NameRule, dns_1035_label_faults};

use super::MAX_DEPTH;
use super::at::{At, PathSegment};
use super::fault_list::FaultList;
use super::rules::Node;
use super::tables;
use crate::walk::{WalkOptions, WalkReport};

/// The faults of the embedded objects in a value. With `whole`, the value itself counts as an embedded object, whatever
/// its schema.
pub(super) fn faults(node: &Node, value: &Value, whole: bool, at: &At<'_>, faults: &mut FaultList) {
    each(node, value, whole, at, &mut |map, at| {
        if !faults.is_full() {
            check(map, at, faults);
        }
    });
}

/// The first field of a wrong type in the embedded objects of a value.
pub(super) fn type_fault(node: &Node, value: &Value, whole: bool) -> Option<FieldError> {
    let mut first = None;
    each(node, value, whole, &At::ROOT, &mut |map, at| {
        if first.is_none() {
            first = wrong_type(map, at);
        }
    });
    first
}

/// Visits each embedded object in a value, outer ones first.
fn each(node: &Node, value: &Value, whole: bool, at: &At<'_>, look: &mut dyn FnMut(&Map, &At<'_>)) {
    if at.depth > MAX_DEPTH || !(whole || node.embeds) {
        return;
    }
    match value {
        Value::Object(map) => {
            if whole || node.embedded {
                look(map, at);
            }
            let mut names: Vec<&str> = map.keys().collect();
            names.sort_unstable();
            for name in names {
                let step =
                    if node.property(name).is_some() { PathSegment::Field(name) } else { PathSegment::Key(name) };
                if let Some(below) = node.member(name) {
                    each(below, &map[name], false, &at.then(step), look);
                }
            }
        }
        Value::Array(items) => {
            let Some(of_items) = &node.lists.items else { return };
            for (index, item) in items.iter().enumerate() {
                each(of_items, item, false, &at.then(PathSegment::Index(index)), look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check(map: &Map, at: &At<'_>, faults: &mut FaultList) {
    const EMPTY: &str = "must not be empty";
    for name in ["apiVersion", "kind"].iter().filter(|name| !map.contains_key(name)) {
        faults.push(FieldError::required(at.field(name), ""));
    }
    if let Some(version) = map.get("apiVersion").and_then(Value::as_str) {
        if version.is_empty() {
            faults.push(FieldError::invalid(at.field("apiVersion"), version, EMPTY));
        } else if GroupVersion::parse(version).is_none() {
            let why = format!("unexpected GroupVersion string: {version}");
            faults.push(FieldError::invalid(at.field("apiVersion"), version, why));
        }
    }
    if let Some(kind) = map.get("kind").and_then(Value::as_str) {
        let complaints = dns_1035_label_faults(&kind.to_lowercase());
        if kind.is_empty() {
            faults.push(FieldError::invalid(at.field("kind"), kind, EMPTY));
        } else if !complaints.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
            faults.push(FieldError::invalid(at.field("kind"), kind, why));
        }
    }
    if let Some(metadata @ Value::Object(_)) = map.get("metadata") {
        let mut object = Object(Map::new());
        object.0.insert("metadata", metadata.clone());
        if object.name().is_empty() {
            object.set_meta("name", "fakename");
        }
        let namespaced = !object.namespace().is_empty();
        let complaints = validate_custom_metadata(&object, namespaced, NameRule::Stored);
        let prefix = at.to_string();
        faults.extend(complaints.into_iter().map(|mut fault| {
            if !prefix.is_empty() {
                fault.field.insert(0, '.');
                fault.field.insert_str(0, &prefix);
            }
            fault
        }));
    }
}

fn wrong_type(map: &Map, at: &At<'_>) -> Option<FieldError> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = map.get(name).filter(|value| !value.is_string()) {
            return Some(FieldError::invalid(at.field(name), value.clone(), "must be a string"));
        }
    }
    let metadata = map.get("metadata").filter(|metadata| !metadata.is_null())?;
    let why = match metadata {
        Value::Object(metadata) => {
            let mut report = WalkReport::default();
            tables::metadata()?.walk(&mut Object(metadata.clone()), &mut report, WalkOptions::CHECK);
            report.type_error()?
        }
        other => {
            let found = go_format::found(&json::ValueKind::from_value(other), "");
            format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
        }
    };
    Some(FieldError::invalid(at.field("metadata"), metadata.clone(), why))
}
