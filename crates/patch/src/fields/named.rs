//! Adds the objects that are declared fields to a set of fields, as members.
//!
//! Some checks need a field with all its parents, such as ownership of a removed item's parent.

use super::element::PathElement;
use super::schema::{FieldSchema, Granularity, Member};
use super::set::{FieldSet, Node};
use super::view::View;

/// Returns the set with the declared fields above each member, such as `spec` for `spec.replicas`. Entries of a map are
/// not added. Removal uses such sets, so that an object is removed together with the last of its fields.
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

/// Returns the view below this element, and true if the element is a declared field.
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
