//! `fieldsV1`: the form in which sets of fields stand in `metadata.managedFields`.
//!
//! A tree of objects: `f:<name>` for fields, `k:<JSON>` for items by key, `v:<JSON>` for items of sets, `i:<number>` for
//! positions. A field is a member if its object is empty or has a member `.`.

use keelson_meta::go_format;
use serde_json::{Map, Value};
use thiserror::Error;

use super::element::PathElement;
use super::set::{FieldSet, Node};

/// The member that makes a field with members below it a member itself.
const SELF: &str = ".";

/// Why `fieldsV1` cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FieldsError {
    /// What should be an object is none.
    #[error("fields are not a JSON object")]
    NotAnObject,
    /// A name is no path element.
    #[error("parsing key as path element: {0}")]
    BadElement(String),
}

impl FieldSet {
    /// Reads `fieldsV1`. Path elements of unknown types are left out, since a later version may know them.
    ///
    /// # Errors
    /// What is no object or no path element.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        Ok(read(fields)?.0)
    }

    /// The set as `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(write(self, false))
    }
}

/// The members below, and whether the field itself is one.
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

/// `None` for a type that is not known.
fn parse(name: &str) -> Result<Option<PathElement>, FieldsError> {
    let bad = || FieldsError::BadElement(name.to_owned());
    let Some((kind, rest)) = name.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(bad());
    };
    Ok(Some(match kind {
        "f" => PathElement::field(rest),
        "v" => PathElement::value(serde_json::from_str(rest).map_err(|_| bad())?),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
            PathElement::key(fields.into_iter().map(|(name, value)| (name.into(), value)))
        }
        "i" => PathElement::Index(rest.parse().map_err(|_| bad())?),
        _ => return Ok(None),
    }))
}

fn write(set: &FieldSet, itself: bool) -> Map<String, Value> {
    let mut members = Map::with_capacity(set.nodes().len() + 1);
    if itself && !set.is_empty() {
        members.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    for node in set.nodes() {
        members.insert(print(&node.element), Value::Object(write(&node.below, node.member)));
    }
    members
}

fn print(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let fields: Map<_, _> = fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
            format!("k:{}", go_format::json(&Value::Object(fields)))
        }
        PathElement::Value(value) => format!("v:{}", go_format::json(value)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}
