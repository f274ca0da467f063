//! Adds the objects that have declared fields (structs and maps) to a set of fields, as members of their own.
//!
//! Some questions are asked of a field with all its parents, such as whether the parent of a removed item is still owned.

use super::element::PathElement;
use super::schema::{FieldSchema, Granularity, Member};
use super::set::{FieldSet, Node};
use super::view::View;

/// The set, and with each field also the declared fields above it: `spec` with `spec.replicas`, but not the map `labels`'
/// entries' owners. Removal goes by such sets, so that an object goes together with the last of its fields.
pub fn with_named_fields<'a>(set: &FieldSet, schema: impl FieldSchema<'a>) -> FieldSet {
    walk(set, View::Known(schema))
}

fn walk<'a, S: FieldSchema<'a>>(set: &FieldSet, view: View<S>) -> FieldSet {
    FieldSet::from_nodes(set.nodes().iter().map(|node| {
        let (below, declared) = step(view, &node.element);
        let below = walk(&node.below, below);
        Node { element: node.element.clone(), member: node.member || declared && !below.is_empty(), below }
    }))
}

/// The view of what this element leads to, and whether it is a declared field.
pub(super) fn step<'a, S: FieldSchema<'a>>(view: View<S>, element: &PathElement) -> (View<S>, bool) {
    match (view, element) {
        (View::Known(schema), PathElement::Field(name)) => {
            let has_members = matches!(schema.form(), Granularity::Map | Granularity::AtomicMap);
            match schema.member(name) {
                Member::Field(field) if has_members => (View::Known(field), true),
                Member::Entry(entry) if has_members => (View::Known(entry), false),
                _ => (View::Deduced, false),
            }
        }
        (view, PathElement::Key(_)) => (view.items(), false),
        _ => (View::Deduced, false),
    }
}
