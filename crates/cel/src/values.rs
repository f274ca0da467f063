//! The values of a running expression.
//!
//! Values of the object borrow from its tree: a string borrows its text, and a list or map refers to the tree and its
//! declaration. Only newly created values are allocated.

mod elements;
mod equality;
mod json;
mod tree;

pub use self::json::to_json;
pub use elements::Elements;
pub use equality::{compare, equals, joined};
pub use tree::{TreeMap, from_map, from_tree};

use crate::decl::{Decl, ListKind};
use crate::library::authorizer::Authorization;
use crate::library::formats::NamedFormat;
use crate::library::semver::Version;
use crate::library::times::Timestamp;
use crate::library::url::Url;
use keelson_meta::Quantity;
use keelson_meta::json as tree_json;
use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

/// A value.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // They are the names of CEL's types.
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    /// A duration in nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Type(Text<'a>),
    Optional(Option<Rc<Value<'a>>>),
    Url(Rc<Url>),
    Ip(IpAddr),
    /// An address and its prefix length.
    Cidr(IpAddr, u8),
    Quantity(Quantity),
    Semver(Rc<Version>),
    Format(NamedFormat),
    Authorization(Rc<Authorization<'a>>),
    /// A value whose fields are computed on demand.
    Fields(&'a dyn Fields),
}

/// A value whose fields are computed on demand, such as the variables of a policy.
pub trait Fields: std::fmt::Debug {
    /// Returns the field with this name, if there is one.
    ///
    /// # Errors
    /// Computing the field failed.
    fn field(&self, name: &str) -> Option<Outcome<'_>>;
}

/// A string, borrowed or allocated.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// A borrowed string.
    Borrowed(&'a str),
    /// An allocated string.
    Made(Rc<str>),
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// A list of the tree.
    Tree(&'a [tree_json::Value], Option<&'a Decl>),
    /// An allocated list.
    Made(Rc<Vec<Value<'a>>>),
    /// The concatenation of a set or map list with another list. It is a list of the same kind.
    Joined(Rc<Vec<Value<'a>>>, &'a ListKind),
}

/// A map.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// A map of the tree.
    Tree(TreeMap<'a>),
    /// An allocated map, with its entries in order of creation.
    Made(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

/// The reason why an evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// The evaluation failed for this data.
    Failed(Cow<'static, str>),
    /// The limit is exceeded. No operator absorbs this error.
    TooCostly,
}

/// A value or an error.
pub type Outcome<'a> = Result<Value<'a>, EvalError>;

impl EvalError {
    /// An error with this message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(message.into())
    }

    /// The error if no overload accepts the values.
    pub fn no_overload() -> Self {
        Self::Failed(Cow::Borrowed("no such overload"))
    }

    /// The error for a loop over a value that is not a list or map. As upstream's, it names Go types.
    pub fn no_range(value: &Value<'_>) -> Self {
        let name = match value {
            Value::Null => "Null",
            Value::Bool(_) => "Bool",
            Value::Int(_) => "Int",
            Value::Uint(_) => "Uint",
            Value::Double(_) => "Double",
            Value::String(_) => "String",
            Value::Bytes(_) => "Bytes",
            Value::Duration(_) => "Duration",
            Value::Timestamp(_) => "Timestamp",
            _ => return Self::no_overload(),
        };
        Self::new(format!("got 'types.{name}', expected iterable type"))
    }

    /// The error for a missing key or field.
    pub fn no_key(key: &str) -> Self {
        Self::Failed(Cow::Owned(format!("no such key: {key}")))
    }
}

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::TooCostly => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Made(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> Value<'a> {
    /// A borrowed string.
    pub const fn text(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// An allocated list.
    pub fn list(elements: Vec<Self>) -> Self {
        Self::List(List::Made(Rc::new(elements)))
    }

    /// An allocated map.
    pub fn map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Map::Made(Rc::new(entries)))
    }

    /// An optional with a value.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) | Self::Fields(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorization(of) => of.type_name(),
        }
    }

    /// The size of the value for cost rules.
    pub fn size(&self) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Ip(address) => address_size(address),
            // The address, and one for the prefix.
            Self::Cidr(address, _) => address_size(address) + 1,
            _ => 1,
        }
    }

    /// Returns true for the zero value of its type.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) | Self::Duration(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Optional(value) => value.as_ref().is_none_or(|value| value.is_zero()),
            _ => false,
        }
    }
}

fn address_size(address: &IpAddr) -> u64 {
    if address.is_ipv4() { 4 } else { 16 }
}

impl<'a> List<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Tree(elements, _) => elements.len(),
            Self::Made(elements) | Self::Joined(elements, _) => elements.len(),
        }
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at this index.
    pub fn get(&self, at: usize) -> Option<Value<'a>> {
        match self {
            Self::Tree(elements, decl) => Some(from_tree(elements.get(at)?, decl.and_then(element_of))),
            Self::Made(elements) | Self::Joined(elements, _) => elements.get(at).cloned(),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

fn element_of(decl: &Decl) -> Option<&Decl> {
    decl.element().map(|element| &**element)
}

impl<'a> Map<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Tree(tree) => tree.keys().count(),
            Self::Made(entries) => entries.len(),
        }
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match self {
            Self::Tree(tree) => {
                if let Value::String(name) = key {
                    tree.get(name)
                } else {
                    None
                }
            }
            Self::Made(entries) => entries.iter().find(|(other, _)| equals(other, key)).map(|(_, value)| value.clone()),
        }
    }

    /// The value of a string key.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Tree(tree) => tree.get(name),
            Self::Made(entries) => entries
                .iter()
                .find(|(key, _)| matches!(key, Value::String(text) if **text == *name))
                .map(|(_, value)| value.clone()),
        }
    }

    /// The keys and values. Their order is the same at each call.
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Tree(tree) => tree.entries(),
            Self::Made(entries) => entries.to_vec(),
        }
    }

    /// The keys. Their order is the same at each call.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Tree(tree) => tree.keys().map(|(name, _)| name).map(Value::text).collect(),
            Self::Made(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}
