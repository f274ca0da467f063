//! Lists the fields of one value in order, in one walk over the value and its schema.
//!
//! The list serves applies, creates, and the parts that a comparison finds added or removed.

use keelson_meta::json::{Map, Value};

use super::element::same;
use super::element_ref::PathElementRef;
use super::identity::{Items, Keys};
use super::schema::FieldSchema;
use super::set::{FieldSet, Node};
use super::sink::Sink;
use super::view::{View, Walk};

/// The values that count as fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Members {
    /// The fields that an apply owns: scalars and atomic values, items and entries. An object that is a declared field
    /// does not count, unless it is empty.
    Applied,
    /// All fields of a new value.
    New,
}

impl Members {
    fn has(self, walk: Walk, declared: bool, value: &Value) -> bool {
        let is_empty = || value.is_null() || value.as_object().is_some_and(Map::is_empty);
        self == Self::New || walk == Walk::Leaf || !declared || is_empty()
    }
}

/// Fields that a walk omits.
#[derive(Clone, Copy, Default)]
pub(super) struct OmittedFields<'h> {
    /// Fields that are omitted with everything below them.
    pub(super) whole: Option<&'h FieldSet>,
    /// Fields that are omitted themselves, but not the fields below them.
    pub(super) alone: Option<&'h FieldSet>,
}

impl<'h> OmittedFields<'h> {
    /// Returns the omitted fields below a step, and true if the step itself is omitted. `None` if everything there is
    /// omitted.
    pub(super) fn below(self, step: PathElementRef<'_>) -> Option<(bool, Self)> {
        if self.whole.is_none() && self.alone.is_none() {
            return Some((false, self));
        }
        let (whole, alone) = (self.whole.and_then(|set| set.at(step)), self.alone.and_then(|set| set.at(step)));
        if whole.is_some_and(|node| node.member) {
            return None;
        }
        let below = |node: Option<&'h Node>| node.map(|node| &node.below).filter(|below| !below.is_empty());
        Some((alone.is_some_and(|node| node.member), Self { whole: below(whole), alone: below(alone) }))
    }
}

/// The approximate number of members of the objects on the path to any field of a common object.
const MEMBERS: usize = 64;

/// A walk.
pub(super) struct Listing<'l, 'v, S, T> {
    members: Members,
    sink: &'l mut T,
    /// The members of the objects on the current path.
    entries: Vec<Entry<'v, S>>,
    /// Their order: the first bytes of the name as a number, which differ for most names, and the index of the entry.
    sorted: Vec<(u64, usize)>,
}

#[derive(Clone, Copy)]
struct Entry<'v, S> {
    name: &'v str,
    value: &'v Value,
    view: View<S>,
    declared: bool,
}

impl<'l, 'v, S, T: Sink> Listing<'l, 'v, S, T> {
    pub(super) fn new(members: Members, sink: &'l mut T) -> Self {
        Self { members, sink, entries: Vec::with_capacity(MEMBERS), sorted: Vec::with_capacity(MEMBERS) }
    }

    /// Visits the fields below a value.
    pub(super) fn below<'a>(&mut self, view: View<S>, value: &'v Value, hidden: OmittedFields<'_>)
    where
        S: FieldSchema<'a>,
    {
        self.parts(view, view.walk(value), value, hidden);
    }

    /// Visits the fields below a value with a known walk.
    fn parts<'a>(&mut self, view: View<S>, walk: Walk, value: &'v Value, hidden: OmittedFields<'_>)
    where
        S: FieldSchema<'a>,
    {
        match walk {
            Walk::Leaf => {}
            Walk::Members => self.each_member(view, value, |listing, entry| listing.field(entry, hidden)),
            Walk::Items => self.items(view, value, hidden),
        }
    }

    /// Visits the fields added or changed since `before`.
    ///
    /// Returns false if a general comparison is needed: `before` has more than objects that contain objects, scalars
    /// and empty values.
    pub(super) fn since<'a>(
        &mut self,
        view: View<S>,
        before: &Value,
        value: &'v Value,
        hidden: OmittedFields<'_>,
    ) -> bool
    where
        S: FieldSchema<'a>,
    {
        let mut is_all = (view.walk(before), view.walk(value)) == (Walk::Members, Walk::Members);
        self.each_member(view, value, |listing, entry| match before.as_object().and_then(|it| it.get(entry.name)) {
            _ if !is_all => {}
            None => listing.field(entry, hidden),
            Some(before) => is_all = listing.field_since(entry, before, hidden),
        });
        is_all
    }

    fn field<'a>(&mut self, entry: Entry<'v, S>, hidden: OmittedFields<'_>)
    where
        S: FieldSchema<'a>,
    {
        let Entry { name, value, view, declared, .. } = entry;
        let Some((is_hidden, hidden)) = hidden.below(PathElementRef::Field(name)) else { return };
        let walk = view.walk(value);
        let member = self.members.has(walk, declared, value) && !is_hidden;
        self.sink.open(PathElementRef::Field(name), member);
        self.parts(view, walk, value, hidden);
        self.sink.close();
    }

    /// [`since`](Self::since) for a field that exists in both values.
    fn field_since<'a>(&mut self, entry: Entry<'v, S>, before: &Value, hidden: OmittedFields<'_>) -> bool
    where
        S: FieldSchema<'a>,
    {
        let Entry { name, value, view, .. } = entry;
        let Some((is_hidden, hidden)) = hidden.below(PathElementRef::Field(name)) else { return true };
        let walk = view.walk(value);
        let are_values = walk == Walk::Leaf || is_bare(before) && is_bare(value);
        self.sink.open(PathElementRef::Field(name), are_values && !is_hidden && !same(before, value));
        let is_all = match walk {
            _ if walk != view.walk(before) => false,
            _ if are_values => true,
            Walk::Members => self.since(view, before, value, hidden),
            Walk::Items => {
                self.items(view, value, hidden);
                is_bare(before)
            }
            Walk::Leaf => true,
        };
        self.sink.close();
        is_all
    }

    /// Visits members in the order of their names, which is that of their path elements.
    fn each_member<'a>(&mut self, view: View<S>, value: &'v Value, mut tell: impl FnMut(&mut Self, Entry<'v, S>))
    where
        S: FieldSchema<'a>,
    {
        let start = self.entries.len();
        let mut near = 0;
        for (name, value) in value.as_object().into_iter().flatten() {
            let (view, declared) = view.member_near(name, &mut near);
            self.sorted.push((head(name), self.entries.len()));
            self.entries.push(Entry { name, value, view, declared });
        }
        let name = |place: usize| self.entries[place].name;
        self.sorted[start..].sort_unstable_by(|(head, place), (other_head, other)| {
            head.cmp(other_head).then_with(|| name(*place).cmp(name(*other)))
        });
        for next in start..self.sorted.len() {
            // The nested call pushes its entries behind these, and pops them again.
            let (_, place) = self.sorted[next];
            tell(self, self.entries[place]);
        }
        self.entries.truncate(start);
        self.sorted.truncate(start);
    }

    /// All repetitions of an item are owned together as one field, without the fields in them.
    fn items<'a>(&mut self, view: View<S>, value: &'v Value, hidden: OmittedFields<'_>)
    where
        S: FieldSchema<'a>,
    {
        let Some(list) = value.as_array() else { return };
        let keys = Keys::from_list(view);
        let items = Items::new(&keys, list);
        for group in items.groups() {
            let step = items.step(group.start);
            let Some((is_hidden, hidden)) = hidden.below(step) else { continue };
            self.sink.open(step, !is_hidden);
            if let [item] = items.group(group) {
                self.below(view.items(), item, hidden);
            }
            self.sink.close();
        }
    }
}

/// Returns true if a value has no parts.
fn is_bare(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The first eight bytes of a name as a number, in the order of names.
fn head(name: &str) -> u64 {
    match name.as_bytes().first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => name.bytes().fold(0, |head, byte| head << 8 | u64::from(byte)) << (8 * (8 - name.len()).min(7)),
    }
}
