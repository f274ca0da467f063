//! `fieldsV1`: the encoding of sets of fields in `metadata.managedFields`.
//!
//! The encoding is a tree of objects: `f:<name>` for fields, `k:<JSON>` for items by key, `v:<JSON>` for items of sets,
//! `i:<number>` for indexes. A field is a member if its object is empty or has a member `.`.

use std::fmt;

use keelson_meta::go_format;
use keelson_meta::json::{Map, Value};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};

use super::element::PathElement;
use super::element_ref::{PathElementRef, key_fields, key_object};
use super::set::{FieldSet, Node};

/// The name that marks a field with members below it as a member itself.
const SELF: &str = ".";
/// `SELF` as JSON text.
pub(super) const SELF_MEMBER: &str = "\".\":{}";
/// The text of the empty set.
pub(super) const NO_FIELDS: &str = "{}";

/// The reason why `fieldsV1` cannot be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum FieldsError {
    /// A value is not an object.
    #[error("fields are not a JSON object")]
    NotAnObject,
    /// A name is not a path element.
    #[error("parsing key as path element: {0}")]
    BadElement(String),
}

impl FieldSet {
    /// Reads `fieldsV1`. Path elements of unknown types are skipped, since a later version of Kubernetes may define
    /// them.
    ///
    /// # Errors
    /// A value that is not an object, or a name that is not a path element.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        Ok(read(fields)?.0)
    }

    /// The set as `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(write(self, false))
    }

    /// Reads the text of `fieldsV1` without building a tree.
    ///
    /// # Errors
    /// A value that is not an object, or a name that is not a path element.
    pub fn from_text(text: &str) -> Result<Self, FieldsError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        // Texts come from stored objects, whose depth is limited.
        deserializer.disable_recursion_limit();
        let read =
            Members.deserialize(&mut deserializer).map_err(|error| FieldsError::BadElement(error.to_string()))?;
        Ok(read.0)
    }

    /// Appends the text of `fieldsV1`: the compact JSON of [`to_fields_v1`](Self::to_fields_v1).
    pub fn write_text(&self, out: &mut String) {
        write_text(self, false, out);
    }
}

/// Reads the members below a field. The flag is true if the field itself is a member.
struct Members;

impl<'de> DeserializeSeed<'de> for Members {
    type Value = (FieldSet, bool);

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = (FieldSet, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", FieldsError::NotAnObject)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut itself, mut has_members) = (false, false);
        let mut nodes = Vec::new();
        while let Some(name) = members.next_key_seed(NameSeed)? {
            match name {
                Name::Element(element) => {
                    has_members = true;
                    let (below, member) = members.next_value_seed(Members)?;
                    nodes.push(Node { element, member, below });
                }
                Name::Myself => {
                    itself = true;
                    members.next_value::<IgnoredAny>()?;
                }
                Name::Unknown => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok((FieldSet::from_nodes(nodes), itself || !has_members))
    }
}

/// The name of a member of `fieldsV1`.
enum Name {
    Element(PathElement),
    Myself,
    Unknown,
}

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        if name == SELF {
            return Ok(Name::Myself);
        }
        Ok(parse(name).map_err(E::custom)?.map_or(Name::Unknown, Name::Element))
    }
}

/// The members below a field. The flag is true if the field itself is a member.
fn read(fields: &Value) -> Result<(FieldSet, bool), FieldsError> {
    let members = fields.as_object().ok_or(FieldsError::NotAnObject)?;
    let mut itself = false;
    let mut nodes = Vec::with_capacity(members.len());
    for (name, value) in members {
        if name == SELF {
            itself = true;
        } else if let Some(element) = parse(name)? {
            let (below, member) = read(value)?;
            nodes.push(Node { element, member, below });
        }
    }
    let set = FieldSet::from_nodes(nodes);
    let itself = itself || set.is_empty();
    Ok((set, itself))
}

/// Parses a name. `None` for an unknown type.
pub(super) fn parse(name: &str) -> Result<Option<PathElement>, FieldsError> {
    let bad = || FieldsError::BadElement(name.to_owned());
    let Some((kind, rest)) = name.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(bad());
    };
    Ok(Some(match kind {
        "f" => PathElement::field(rest),
        "v" => PathElement::value(serde_json::from_str(rest).map_err(|_| bad())?),
        "k" => {
            let fields: Map = serde_json::from_str(rest).map_err(|_| bad())?;
            PathElement::key(fields.into_iter().map(|(name, value)| (name.into(), value)))
        }
        "i" => PathElement::Index(rest.parse().map_err(|_| bad())?),
        _ => return Ok(None),
    }))
}

fn write(set: &FieldSet, itself: bool) -> Map {
    let mut members = Map::with_capacity(set.nodes().len() + 1);
    if itself && !set.is_empty() {
        members.insert(SELF, Value::Object(Map::new()));
    }
    for node in set.nodes() {
        members.insert(print(&node.element), Value::Object(write(&node.below, node.member)));
    }
    members
}

fn print(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => print_key(fields.iter().map(|(name, value)| (&**name, value))),
        PathElement::Value(value) => format!("v:{}", go_format::json(value)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

fn print_key<'v>(fields: impl Iterator<Item = (&'v str, &'v Value)>) -> String {
    format!("k:{}", go_format::json(&key_object(fields)))
}

fn write_text(set: &FieldSet, itself: bool, out: &mut String) {
    out.push('{');
    if itself && !set.is_empty() {
        out.push_str(SELF_MEMBER);
    }
    for node in set.nodes() {
        write_node(node, out);
    }
    out.push('}');
}

/// Returns true if the text ends in the start of an object that has no members yet.
pub(super) fn is_open(out: &str) -> bool {
    out.as_bytes().last() == Some(&b'{')
}

/// Appends a member to the object that `out` ends in.
pub(super) fn write_node(node: &Node, out: &mut String) {
    if !is_open(out) {
        out.push(',');
    }
    match &node.element {
        PathElement::Field(name) => write_step(PathElementRef::Field(name), out),
        PathElement::Key(fields) => write_key(fields.iter().map(|(name, value)| (&**name, value)), out),
        PathElement::Value(value) => write_step(PathElementRef::Value(value), out),
        element @ PathElement::Index(_) => write_json(&print(element), out),
    }
    out.push(':');
    write_text(&node.below, node.member, out);
}

/// Appends the name of a member of `fieldsV1`, as JSON.
pub(super) fn write_step(step: PathElementRef<'_>, out: &mut String) {
    match step {
        PathElementRef::Field(name) if is_plain(name) => {
            out.push_str("\"f:");
            out.push_str(name);
            out.push('"');
        }
        PathElementRef::Field(name) => write_json(&format!("f:{name}"), out),
        PathElementRef::Key { names, values } => write_key(key_fields(names, values), out),
        PathElementRef::Value(value) if write_simple("\"v:", value, out) => out.push('"'),
        PathElementRef::Value(value) => write_json(&format!("v:{}", go_format::json(value)), out),
    }
}

fn write_key<'v>(fields: impl Iterator<Item = (&'v str, &'v Value)> + Clone, out: &mut String) {
    let start = out.len();
    out.push_str("\"k:{");
    for (place, (name, value)) in fields.clone().enumerate() {
        if place > 0 {
            out.push(',');
        }
        out.extend(["\\\"", name, "\\\""]);
        if !is_simple(name) || !write_simple(":", value, out) {
            out.truncate(start);
            return write_json(&print_key(fields), out);
        }
    }
    out.push_str("}\"");
}

/// Appends a value as JSON within a JSON string, if the value needs no escapes. Returns false otherwise. Most keys are
/// names and port numbers, which need none.
fn write_simple(head: &str, value: &Value, out: &mut String) -> bool {
    match value {
        Value::String(text) if is_simple(text) => out.extend([head, "\\\"", text, "\\\""]),
        Value::Number(number) => out.extend([head, &number.to_string()]),
        _ => return false,
    }
    true
}

/// Appends a text as JSON.
pub(super) fn write_json(text: &str, out: &mut String) {
    if is_plain(text) {
        out.extend(["\"", text, "\""]);
    } else {
        // `Value` displays as JSON.
        out.push_str(&Value::from(text).to_string());
    }
}

/// Returns true if a text needs no escapes in JSON.
fn is_plain(text: &str) -> bool {
    // A fold without early exit, which the compiler vectorizes.
    text.bytes().fold(true, |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\'))
}

/// Returns true if a text needs no escapes in Go's JSON either.
fn is_simple(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_control() && !b"\"\\<>&".contains(&byte))
}
