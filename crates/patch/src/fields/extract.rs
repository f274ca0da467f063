//! Which fields an object has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::PathElement;
use super::identity::of_item;
use super::schema::FieldSchema;
use super::set::{FieldSet, Node};
use super::view::{View, Walk};

/// The fields that a client which applies this object owns: everything that is a value of its own, the items of lists and
/// the entries of maps. Cost: proportional to the object.
///
/// Objects of declared fields are not members themselves, unless they are empty.
pub fn extract<'a>(schema: impl FieldSchema<'a>, object: &Value) -> FieldSet {
    walk(View::Known(schema), object).0
}

/// The fields below a value, and whether it is one itself.
fn walk<'a>(view: View<impl FieldSchema<'a>>, value: &Value) -> (FieldSet, bool) {
    match view.walk(value) {
        Walk::Leaf => (FieldSet::new(), true),
        Walk::Members => (members(view, value), false),
        Walk::Items => (items(view, value), false),
    }
}

fn members<'a>(view: View<impl FieldSchema<'a>>, value: &Value) -> FieldSet {
    let members = value.as_object().into_iter().flatten();
    FieldSet::from_nodes(members.map(|(name, value)| {
        let (schema, declared) = view.member(name);
        let (below, member) = walk(schema, value);
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        Node { element: PathElement::field(name), member: member || empty || !declared, below }
    }))
}

/// Items that are there more than once are owned together, and nothing in them.
fn items<'a>(view: View<impl FieldSchema<'a>>, value: &Value) -> FieldSet {
    let mut counts = BTreeMap::new();
    for item in value.as_array().into_iter().flatten() {
        if let Ok(element) = of_item(view, item) {
            counts.entry(element).and_modify(|(_, count)| *count += 1).or_insert((item, 1));
        }
    }
    FieldSet::from_nodes(counts.into_iter().map(|(element, (item, count))| {
        let below = if count == 1 { walk(view.items(), item).0 } else { FieldSet::new() };
        Node { element, member: true, below }
    }))
}
