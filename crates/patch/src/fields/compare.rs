//! Compares two objects field by field: added, changed and removed fields.
//!
//! The result determines the owners after a write other than an apply. Equal values are not compared in detail.

use std::cmp::Ordering;

use keelson_meta::json::{Map, Value};

use super::element::same;
use super::element_ref::PathElementRef;
use super::identity::{Items, Keys, order_identities};
use super::listing::{Listing, Members, OmittedFields};
use super::schema::FieldSchema;
use super::set::{FieldSet, Node};
use super::sink::{SetSink, TextSink};
use super::view::{View, Walk};
use crate::equal::{equal, side_by_side};

/// The fields in which two objects differ. Unlike in [`super::extract`], an added or removed object is a field itself,
/// in addition to the fields in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields of the second object only.
    pub added: FieldSet,
    /// Fields of both objects with different values.
    pub modified: FieldSet,
    /// Fields of the first object only.
    pub removed: FieldSet,
}

impl Comparison {
    /// Returns true if the objects are equal.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Returns the differences without those that are in the set or below a field of it.
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
    compare_shown(schema, old, new, OmittedFields::default())
}

/// Compares all fields except hidden ones.
pub(super) fn compare_shown<'a>(
    schema: impl FieldSchema<'a>,
    old: &Value,
    new: &Value,
    hidden: OmittedFields<'_>,
) -> Comparison {
    let changes = between(View::Known(schema), old, new, hidden);
    let set = |part: Subset| FieldSet::from_nodes(part.below);
    Comparison { added: set(changes.added), modified: set(changes.modified), removed: set(changes.removed) }
}

/// The `fieldsV1` text of the fields that [`compare`] finds added or modified, without hidden ones, in one walk over
/// the new object. `size` is its expected length in bytes.
///
/// `None` if the old object has parts that require a full comparison.
pub(super) fn new_text<'a>(
    schema: impl FieldSchema<'a>,
    old: &Value,
    new: &Value,
    hidden: OmittedFields<'_>,
    size: usize,
) -> Option<String> {
    let mut sink = TextSink::new(size);
    let is_all = Listing::new(Members::New, &mut sink).since(View::Known(schema), old, new, hidden);
    is_all.then(|| sink.finish())
}

/// The differences at one place, for each of the three sets.
#[derive(Default)]
struct Changes {
    added: Subset,
    modified: Subset,
    removed: Subset,
}

/// A part of a set: true if the place itself is a member, and the members below the place.
#[derive(Default)]
struct Subset {
    member: bool,
    below: Vec<Node>,
}

impl Changes {
    /// Adds the differences one step below, unless they are hidden.
    fn find(
        &mut self,
        step: PathElementRef<'_>,
        hidden: OmittedFields<'_>,
        find: impl FnOnce(OmittedFields<'_>) -> Self,
    ) {
        if let Some((is_hidden, hidden)) = hidden.below(step) {
            let found = find(hidden);
            self.take(step, if is_hidden { found.below() } else { found });
        }
    }

    /// Returns the differences below the place, without the place itself.
    fn below(mut self) -> Self {
        for part in [&mut self.added, &mut self.modified, &mut self.removed] {
            part.member = false;
        }
        self
    }

    /// Adds the differences found one step below.
    fn take(&mut self, step: PathElementRef<'_>, changes: Self) {
        self.added.take(step, changes.added);
        self.modified.take(step, changes.modified);
        self.removed.take(step, changes.removed);
    }
}

impl Subset {
    fn take(&mut self, step: PathElementRef<'_>, part: Self) {
        if part.member || !part.below.is_empty() {
            let below = FieldSet::from_nodes(part.below);
            self.below.push(Node { element: step.to_element(), member: part.member, below });
        }
    }

    /// All fields of an added or removed value.
    fn all<'a>(view: View<impl FieldSchema<'a>>, value: &Value, hidden: OmittedFields<'_>) -> Self {
        let mut sink = SetSink::default();
        Listing::new(Members::New, &mut sink).below(view, value, hidden);
        Self { member: true, below: sink.finish().into_nodes() }
    }
}

fn walk<'a, S: FieldSchema<'a>>(
    view: View<S>,
    old: Option<&Value>,
    new: Option<&Value>,
    hidden: OmittedFields<'_>,
) -> Changes {
    match (old, new) {
        (Some(old), Some(new)) => between(view, old, new, hidden),
        (None, Some(new)) => Changes { added: Subset::all(view, new, hidden), ..Changes::default() },
        (Some(old), None) => Changes { removed: Subset::all(view, old, hidden), ..Changes::default() },
        (None, None) => Changes::default(),
    }
}

fn between<'a, S: FieldSchema<'a>>(view: View<S>, old: &Value, new: &Value, hidden: OmittedFields<'_>) -> Changes {
    let mut changes = Changes::default();
    let (first, second) = (view.walk(old), view.walk(new));
    // A value without a schema may change its JSON type. Then it is compared in both forms.
    for how in [Some(first), Some(second).filter(|second| *second != first)].into_iter().flatten() {
        match how {
            Walk::Leaf => leaf(old, new, &mut changes),
            Walk::Members => members(view, old, new, hidden, &mut changes),
            Walk::Items => items(view, old, new, hidden, &mut changes),
        }
    }
    changes
}

fn leaf(old: &Value, new: &Value, changes: &mut Changes) {
    changes.modified.member |= !same(old, new);
}

fn members<'a, S: FieldSchema<'a>>(
    view: View<S>,
    old: &Value,
    new: &Value,
    hidden: OmittedFields<'_>,
    changes: &mut Changes,
) {
    let empty = Map::new();
    let (old_members, new_members) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    if old_members.is_empty() && new_members.is_empty() {
        // Null and empty values are different.
        return leaf(old, new, changes);
    }
    let (mut shared, mut near) = (0, 0);
    for (name, old, new) in side_by_side(old_members, new_members) {
        shared += usize::from(new.is_some());
        if !new.is_some_and(|new| equal(old, new)) {
            changes.find(PathElementRef::Field(name), hidden, |hidden| {
                walk(view.member_near(name, &mut near).0, Some(old), new, hidden)
            });
        }
    }
    let all_are_known = shared == new_members.len();
    let others = new_members.iter().filter(|_| !all_are_known);
    for (name, new) in others.filter(|(name, _)| !old_members.contains_key(name)) {
        changes.find(PathElementRef::Field(name), hidden, |hidden| {
            walk(view.member_near(name, &mut near).0, None, Some(new), hidden)
        });
    }
}

fn items<'a, S: FieldSchema<'a>>(
    view: View<S>,
    old: &Value,
    new: &Value,
    hidden: OmittedFields<'_>,
    changes: &mut Changes,
) {
    if list(old).is_empty() && list(new).is_empty() {
        return leaf(old, new, changes);
    }
    let keys = Keys::from_list(view);
    let (old, new) = (Items::new(&keys, list(old)), Items::new(&keys, list(new)));
    let (mut olds, mut news) = (old.groups().peekable(), new.groups().peekable());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (Some(left), Some(right)) => order_identities(old.identity(left.start), new.identity(right.start)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let left = olds.next_if(|_| order.is_le());
        let right = news.next_if(|_| order.is_ge());
        let step = match (&left, &right) {
            (Some(left), _) => old.step(left.start),
            (None, Some(right)) => new.step(right.start),
            (None, None) => return,
        };
        let (left, right) =
            (left.map_or(&[][..], |left| old.group(left)), right.map_or(&[][..], |right| new.group(right)));
        changes.find(step, hidden, |hidden| item(view.items(), left, right, hidden));
    }
}

/// Compares items with the same identity. If an item is repeated, all its repetitions are compared as one value.
fn item<'a, S: FieldSchema<'a>>(view: View<S>, old: &[&Value], new: &[&Value], hidden: OmittedFields<'_>) -> Changes {
    match (old, new) {
        ([old], [new]) if equal(old, new) => Changes::default(),
        ([] | [_], [] | [_]) => walk(view, old.first().copied(), new.first().copied(), hidden),
        ([_, _, ..], [_, _, ..]) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            Changes { modified: Subset { member: !equal, below: Vec::new() }, ..Changes::default() }
        }
        ([_, _, ..], _) => {
            let mut changes = walk(view, None, new.first().copied(), hidden);
            changes.removed.member = true;
            changes
        }
        (_, [_, _, ..]) => {
            let mut changes = walk(view, old.first().copied(), None, hidden);
            changes.added.member = true;
            changes
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
