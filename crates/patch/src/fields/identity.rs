//! The identity of items in associative lists, which are merged by key and not by index.
//!
//! The keys of a list are looked up once. Identities are borrowed from the items, so comparing lists copies no values.

use std::cmp::Ordering;
use std::ops::Range;

use keelson_meta::go_format;
use keelson_meta::json::Value;
use thiserror::Error;

use super::element::order;
use super::element_ref::PathElementRef;
use super::schema::{FieldSchema, Granularity};
use super::view::View;

/// The reason why an item has no identity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum NoIdentity {
    #[error("associative list with keys may not have a null element")]
    NullItem,
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any \
         key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("invalid indexing of non-associative list")]
    NotAssociative,
}

/// The value of one key field of an item. `None` if the field is absent and has no default. Such an item differs from
/// each item that has the field.
pub(super) type KeyValue<'k> = Option<&'k Value>;

/// The identity of the items of one list.
pub(super) enum Keys<'a> {
    /// The values of the key fields; every item has at least one. `declared` has the order used in messages, `names` is
    /// sorted.
    Fields { declared: Vec<KeyField<'a>>, names: Vec<&'a str> },
    /// The item itself.
    Value,
    /// None: the list is owned as a whole.
    Nothing,
}

/// A key field.
pub(super) struct KeyField<'a> {
    name: &'a str,
    /// The default of the field.
    default: Option<Value>,
    /// The index in the sorted names.
    place: usize,
}

static NULL: Value = Value::Null;

impl<'a> Keys<'a> {
    pub(super) fn from_list<S: FieldSchema<'a>>(list: View<S>) -> Self {
        match (list, list.form()) {
            (View::Known(list), Granularity::KeyedList) => {
                let mut names: Vec<_> = list.keys().collect();
                names.sort_unstable();
                let field = |name| KeyField {
                    name,
                    default: list.key_default(name),
                    place: names.binary_search(&name).unwrap_or_default(),
                };
                Self::Fields { declared: list.keys().map(field).collect(), names }
            }
            (View::Known(_), Granularity::Set) => Self::Value,
            _ => Self::Nothing,
        }
    }

    /// The number of values of an identity.
    fn width(&self) -> usize {
        match self {
            Self::Fields { names, .. } => names.len(),
            Self::Value => 1,
            Self::Nothing => 0,
        }
    }

    /// Appends the values of an item's identity.
    fn identify<'k>(&'k self, item: &'k Value, values: &mut Vec<KeyValue<'k>>) -> Result<(), NoIdentity> {
        match self {
            Self::Fields { declared, .. } => {
                let start = values.len();
                values.resize(start + declared.len(), None);
                identify_by(declared, item, &mut values[start..]).inspect_err(|_| values.truncate(start))
            }
            Self::Value => match item {
                Value::Object(_) => Err(NoIdentity::ObjectInSet),
                Value::Array(_) => Err(NoIdentity::ListInSet),
                Value::Null => Err(NoIdentity::NullInSet),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    values.push(Some(item));
                    Ok(())
                }
            },
            Self::Nothing => Err(NoIdentity::NotAssociative),
        }
    }

    /// Returns true if two lists have items with the same identities in the same order.
    pub(super) fn are_in_step(&self, left: &[Value], right: &[Value]) -> bool {
        let (mut one, mut other) = (Vec::with_capacity(self.width()), Vec::with_capacity(self.width()));
        let mut are_same = |(left, right)| {
            one.clear();
            other.clear();
            let known = self.identify(left, &mut one).is_ok() && self.identify(right, &mut other).is_ok();
            known && order_identities(&one, &other).is_eq()
        };
        left.len() == right.len() && left.iter().zip(right).all(&mut are_same)
    }

    fn step<'k>(&'k self, identity: &'k [KeyValue<'k>]) -> PathElementRef<'k> {
        match (self, identity) {
            (Self::Fields { names, .. }, values) => PathElementRef::Key { names, values },
            (_, [Some(value), ..]) => PathElementRef::Value(value),
            (_, [None, ..] | []) => PathElementRef::Value(&NULL),
        }
    }
}

fn identify_by<'k>(fields: &'k [KeyField<'_>], item: &'k Value, values: &mut [KeyValue<'k>]) -> Result<(), NoIdentity> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err(NoIdentity::NullItem),
        _ => return Err(NoIdentity::NotAnObject),
    };
    for field in fields {
        values[field.place] = members.get(field.name).or(field.default.as_ref());
    }
    if values.iter().any(Option::is_some) {
        return Ok(());
    }
    let names: Vec<String> = fields.iter().map(|field| go_format::quote(field.name)).collect();
    Err(NoIdentity::NoKeys(names.join(" ")))
}

/// The order of identities of one list, which is that of their path elements.
pub(super) fn order_identities(left: &[KeyValue<'_>], right: &[KeyValue<'_>]) -> Ordering {
    let differing = left.iter().zip(right).enumerate().find_map(|(place, pair)| {
        let order = match pair {
            (Some(left), Some(right)) => order(left, right),
            (None, None) => Ordering::Equal,
            (None, Some(_)) => order_of_shorter(&left[place..]),
            (Some(_), None) => order_of_shorter(&right[place..]).reverse(),
        };
        Some(order).filter(|order| order.is_ne())
    });
    differing.unwrap_or(Ordering::Equal)
}

/// Compares an identity that ends here with one that has another field here: by the name of the shorter one's next
/// field, if it has one.
fn order_of_shorter(rest: &[KeyValue<'_>]) -> Ordering {
    if rest.iter().any(Option::is_some) { Ordering::Greater } else { Ordering::Less }
}

/// The items of a list, sorted by identity. Equal ones keep the order of the list.
pub(super) struct Items<'k, 'v> {
    keys: &'k Keys<'k>,
    values: Vec<KeyValue<'k>>,
    /// The index of each item in the list.
    places: Vec<usize>,
    items: Vec<&'v Value>,
}

impl<'k, 'v: 'k> Items<'k, 'v> {
    /// Collects the items that have an identity.
    pub(super) fn new(keys: &'k Keys<'k>, list: &'v [Value]) -> Self {
        Self::until(keys, list, |_, _| true)
    }

    /// The items before the first without an identity, and the reason why it has none.
    pub(super) fn valid(keys: &'k Keys<'k>, list: &'v [Value]) -> (Self, Option<(usize, NoIdentity)>) {
        let mut fault = None;
        let items = Self::until(keys, list, |place, error| {
            fault = Some((place, error));
            false
        });
        (items, fault)
    }

    /// Collects items. For each item without an identity, calls `goes_on`, which returns true to continue.
    fn until(keys: &'k Keys<'k>, list: &'v [Value], mut goes_on: impl FnMut(usize, NoIdentity) -> bool) -> Self {
        let width = keys.width();
        let mut values = Vec::with_capacity(list.len() * width);
        let mut places = Vec::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            match keys.identify(item, &mut values) {
                Ok(()) => places.push(place),
                Err(error) => {
                    if !goes_on(place, error) {
                        break;
                    }
                    values.resize(values.len() + width, None);
                }
            }
        }
        let identity = |place: usize| &values[place * width..(place + 1) * width];
        places.sort_by(|left, right| order_identities(identity(*left), identity(*right)));
        let items = places.iter().map(|place| &list[*place]).collect();
        Self { keys, values, places, items }
    }

    /// The identity of the item at this index of the list.
    pub(super) fn identity_at(&self, place: usize) -> &[KeyValue<'k>] {
        let width = self.keys.width();
        &self.values[place * width..(place + 1) * width]
    }

    /// The identity at this index of the sorted order.
    pub(super) fn identity(&self, index: usize) -> &[KeyValue<'k>] {
        self.identity_at(self.places[index])
    }

    /// The step to the item at this index of the list.
    pub(super) fn step_at(&self, place: usize) -> PathElementRef<'_> {
        self.keys.step(self.identity_at(place))
    }

    /// The step to the item at this index of the sorted order.
    pub(super) fn step(&self, index: usize) -> PathElementRef<'_> {
        self.step_at(self.places[index])
    }

    /// The ranges of items with equal identities, in sorted order.
    pub(super) fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            let first = self.places.get(start).map(|place| self.identity_at(*place))?;
            next += 1;
            while next < self.places.len() && order_identities(first, self.identity(next)).is_eq() {
                next += 1;
            }
            Some(start..next)
        })
    }

    /// The items of a group.
    pub(super) fn group(&self, group: Range<usize>) -> &[&'v Value] {
        &self.items[group]
    }

    /// The indexes in the list of a group's items.
    pub(super) fn places(&self, group: Range<usize>) -> &[usize] {
        &self.places[group]
    }
}
