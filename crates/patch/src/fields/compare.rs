//! In which fields two objects differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{PathElement, same};
use super::identity::of_item;
use super::schema::FieldSchema;
use super::set::{FieldSet, Node};
use super::view::{View, Walk};
use crate::equal::{equal, side_by_side};

/// The fields in which two objects differ. Unlike in [`super::extract`], objects that appear or go are members too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What only the second object has.
    pub added: FieldSet,
    /// What both have, with different values.
    pub modified: FieldSet,
    /// What only the first object has.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether the objects are the same.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The differences that are neither in the set nor below a field of it.
    #[must_use]
    pub fn without(mut self, fields: &FieldSet) -> Self {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_with_below(fields);
        }
        self
    }
}

/// Compares two objects of one schema. Cost: proportional to both.
pub fn compare<'a>(schema: impl FieldSchema<'a>, old: &Value, new: &Value) -> Comparison {
    let changes = walk(View::Known(schema), Some(old), Some(new));
    let set = |part: Part| FieldSet::from_nodes(part.below);
    Comparison { added: set(changes.added), modified: set(changes.modified), removed: set(changes.removed) }
}

/// What is found at one place, in each of the sets.
#[derive(Default)]
struct Changes {
    added: Part,
    modified: Part,
    removed: Part,
}

/// Whether the place itself is in a set, and what is below it.
#[derive(Default)]
struct Part {
    member: bool,
    below: Vec<Node>,
}

impl Changes {
    /// Adds what was found one step below.
    fn take(&mut self, element: PathElement, changes: Self) {
        self.modified.take(&element, changes.modified);
        self.removed.take(&element, changes.removed);
        self.added.take_owned(element, changes.added);
    }
}

impl Part {
    fn take(&mut self, element: &PathElement, part: Self) {
        if part.member || !part.below.is_empty() {
            self.take_owned(element.clone(), part);
        }
    }

    fn take_owned(&mut self, element: PathElement, part: Self) {
        if part.member || !part.below.is_empty() {
            self.below.push(Node { element, member: part.member, below: FieldSet::from_nodes(part.below) });
        }
    }
}

fn walk<'a, S: FieldSchema<'a>>(view: View<S>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    let (first, second) = match (old.map(|old| view.walk(old)), new.map(|new| view.walk(new))) {
        (Some(old), Some(new)) => (old, Some(new).filter(|new| *new != old)),
        (Some(only), None) | (None, Some(only)) => (only, None),
        (None, None) => return changes,
    };
    // Where no schema says what a value is and it changes its form, both forms count.
    for how in [Some(first), second].into_iter().flatten() {
        match how {
            Walk::Leaf => leaf(old, new, &mut changes),
            Walk::Members => members(view, old, new, &mut changes),
            Walk::Items => items(view, old, new, &mut changes),
        }
    }
    changes
}

fn leaf(old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) {
    match (old, new) {
        (None, _) => changes.added.member = true,
        (_, None) => changes.removed.member = true,
        (Some(old), Some(new)) => changes.modified.member |= !same(old, new),
    }
}

/// An object or a list that comes or goes does so itself.
fn whole(old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) {
    changes.added.member |= old.is_none();
    changes.removed.member |= new.is_none();
}

fn members<'a, S: FieldSchema<'a>>(view: View<S>, old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) {
    let empty = Map::new();
    let (old_members, new_members) = (of_object(old).unwrap_or(&empty), of_object(new).unwrap_or(&empty));
    if old_members.is_empty() && new_members.is_empty() {
        // So that null and empty are told apart.
        return leaf(old, new, changes);
    }
    let mut shared = 0;
    for (name, old, new) in side_by_side(old_members, new_members) {
        shared += usize::from(new.is_some());
        if !new.is_some_and(|new| equal(old, new)) {
            changes.take(PathElement::field(name), walk(view.member(name).0, Some(old), new));
        }
    }
    let all_are_known = shared == new_members.len();
    let others = new_members.iter().filter(|_| !all_are_known);
    for (name, new) in others.filter(|(name, _)| !old_members.contains_key(*name)) {
        changes.take(PathElement::field(name), walk(view.member(name).0, None, Some(new)));
    }
    whole(old, new, changes);
}

fn of_object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items<'a, S: FieldSchema<'a>>(view: View<S>, old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) {
    if count(old) == 0 && count(new) == 0 {
        return leaf(old, new, changes);
    }
    let mut found: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = of_item(view, item) {
            found.entry(element).or_default().0.push(item);
        }
    }
    for item in new.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = of_item(view, item) {
            found.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in found {
        changes.take(element, item(view.items(), &old, &new));
    }
    whole(old, new, changes);
}

fn count(list: Option<&Value>) -> usize {
    list.and_then(Value::as_array).map_or(0, Vec::len)
}

/// Items that are there more than once are compared as one value.
fn item<'a, S: FieldSchema<'a>>(view: View<S>, old: &[&Value], new: &[&Value]) -> Changes {
    match (old, new) {
        ([] | [_], [] | [_]) => walk(view, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let mut changes = Changes::default();
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            changes.modified.member = !equal;
            changes
        }
        ([_, _, ..], _) => {
            let mut changes = walk(view, None, new.first().copied());
            changes.removed.member = true;
            changes
        }
        (_, [_, _, ..]) => {
            let mut changes = walk(view, old.first().copied(), None);
            changes.added.member = true;
            changes
        }
    }
}
