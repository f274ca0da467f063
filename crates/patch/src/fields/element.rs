//! One step of a path into an object, and paths.
//!
//! The order of elements is the one in `fieldsV1`, so that sets can be merged like sorted lists.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value};

/// One step from a value to a part of it. The order is the one in which `fieldsV1` lists them.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object or an entry of a map.
    Field(Arc<str>),
    /// The item of a list that has these values in its key fields, which are sorted by name.
    Key(Arc<[(Arc<str>, Value)]>),
    /// The item of a set that is this value.
    Value(Arc<Value>),
    /// The item of a list at this index.
    Index(usize),
}

impl PathElement {
    /// The field with this name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The item of a list with these values in its key fields.
    pub fn key(fields: impl IntoIterator<Item = (Arc<str>, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        Self::Key(fields.into())
    }

    /// The item of a set that is this value.
    pub fn value(value: Value) -> Self {
        Self::Value(Arc::new(value))
    }

    pub(super) fn is_field(&self) -> bool {
        matches!(self, Self::Field(_))
    }

    /// Compares the element with the field of this name.
    pub(super) fn cmp_field(&self, name: &str) -> Ordering {
        match self {
            Self::Field(own) => (**own).cmp(name),
            Self::Key(_) | Self::Value(_) | Self::Index(_) => Ordering::Greater,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                let pairs = left.iter().zip(right.iter());
                pairs
                    .map(|((name, value), (other, wanted))| name.cmp(other).then_with(|| order(value, wanted)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (Self::Value(left), Self::Value(right)) => order(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Formats a step as in messages: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", readable(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", readable(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value as upstream prints it in paths.
fn readable(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(readable).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let members: Vec<_> =
                members.into_iter().map(|(name, value)| format!("{name}={}", readable(value))).collect();
            format!("{{{}}}", members.join(";"))
        }
    }
}

/// Steps from the root of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<PathElement>);

impl Path {
    /// The steps.
    pub fn elements(&self) -> &[PathElement] {
        &self.0
    }
}

impl FromIterator<PathElement> for Path {
    fn from_iter<T: IntoIterator<Item = PathElement>>(elements: T) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// The order of values: numbers by value, then texts, booleans, lists, objects, null.
pub(super) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| order(left, right));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => order_objects(left, right),
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn order_objects(left: &Map, right: &Map) -> Ordering {
    let (mut left_names, mut right_names): (Vec<_>, Vec<_>) = (left.keys().collect(), right.keys().collect());
    left_names.sort_unstable();
    right_names.sort_unstable();
    for (name, other) in left_names.iter().zip(&right_names) {
        let values = || match (left.get(name), right.get(other)) {
            (Some(left), Some(right)) => order(left, right),
            _ => Ordering::Equal,
        };
        let order = name.cmp(other).then_with(values);
        if order.is_ne() {
            return order;
        }
    }
    left_names.len().cmp(&right_names.len())
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Returns true for equal values, with numbers compared by value.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    left == right || order(left, right).is_eq()
}
