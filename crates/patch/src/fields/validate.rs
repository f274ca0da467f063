//! The check whether an object can be owned by its fields at all: nothing undeclared, values of the right kind, items with
//! keys.
//!
//! Apply asks it of what a client sends. The messages are upstream's, and are bounded in bytes.

use std::fmt;

use keelson_meta::json::Value;

use super::element::PathElement;
use super::element_ref::PathElementRef;
use super::identity::{Items, Keys};
use super::schema::{FieldSchema, Granularity, Member, Scalar};
use super::view::View;
use crate::go_text;

/// How many bytes of paths and messages are collected. A path is as long as the keys that a client chose for it, and there may
/// be a fault for every few bytes below it.
const MAX_BYTES: usize = 256 * 1024;

/// Whether a list may have an item more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// As objects that are stored already may.
    Allowed,
    /// As what is applied may not.
    Refused,
}

/// Something that is not as the schema has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, such as `.spec.containers[name="a"].image`.
    pub path: String,
    /// What.
    pub message: String,
}

/// All that is not as the schema has it; printed as upstream does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return only.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

impl std::error::Error for Violations {}

/// Checks the object against the schema. Cost: proportional to the object.
///
/// # Errors
/// Everything that is wrong; of several undeclared fields of one object only the first.
pub fn validate<'a>(schema: impl FieldSchema<'a>, object: &Value, duplicates: Duplicates) -> Result<(), Violations> {
    let mut found = Found { duplicates, violations: Vec::new(), written: 0 };
    found.walk(schema, object, &ValuePath::Root);
    if found.violations.is_empty() { Ok(()) } else { Err(Violations(found.violations)) }
}

/// The way to a value: a chain on the stack, of which only a violation makes a text.
enum ValuePath<'p> {
    Root,
    Part(&'p ValuePath<'p>, PathElementRef<'p>),
    Index(&'p ValuePath<'p>, usize),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Part(parent, step) => write!(f, "{parent}{}", step.to_element()),
            Self::Index(parent, index) => write!(f, "{parent}{}", PathElement::Index(*index)),
        }
    }
}

struct Found {
    duplicates: Duplicates,
    violations: Vec<Violation>,
    /// Bytes of what was found.
    written: usize,
}

impl Found {
    fn report(&mut self, place: &ValuePath<'_>, message: impl FnOnce() -> String) {
        if self.written < MAX_BYTES {
            let violation = Violation { path: place.to_string(), message: message() };
            self.written += violation.path.len() + violation.message.len();
            self.violations.push(violation);
        }
    }

    fn walk<'a>(&mut self, schema: impl FieldSchema<'a>, value: &Value, place: &ValuePath<'_>) {
        let form = schema.form();
        match (form, value) {
            (Granularity::Any | Granularity::Deduced, _) | (_, Value::Null) => {}
            (Granularity::Scalar(scalar), value) => self.scalar(scalar, value, place),
            (Granularity::Map | Granularity::AtomicMap, Value::Object(members)) => {
                let mut near = 0;
                for (name, value) in members {
                    let place = ValuePath::Part(place, PathElementRef::Field(name));
                    match schema.member_near(name, &mut near) {
                        Member::Field(field) => self.walk(field, value, &place),
                        Member::Entry(entry) => self.walk(entry, value, &place),
                        Member::Unknown => {}
                        Member::Undeclared => {
                            return self.report(&place, || "field not declared in schema".to_owned());
                        }
                    }
                }
            }
            (Granularity::Map | Granularity::AtomicMap, other) => {
                self.report(place, || format!("expected map, got &{{{}}}", go_text::value(other)));
            }
            (Granularity::AtomicList, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = schema.items() {
                        self.walk(schema, item, &ValuePath::Index(place, index));
                    }
                }
            }
            (Granularity::Set | Granularity::KeyedList, Value::Array(items)) => self.items(schema, items, place),
            (Granularity::AtomicList | Granularity::Set | Granularity::KeyedList, other) => {
                self.report(place, || format!("expected list, got &{{{}}}", go_text::value(other)));
            }
        }
    }

    fn items<'a>(&mut self, schema: impl FieldSchema<'a>, list: &[Value], place: &ValuePath<'_>) {
        let keys = Keys::of(View::Known(schema));
        let (items, fault) = Items::valid(&keys, list);
        let mut repeated: Vec<_> = items.groups().flat_map(|group| items.places(group).iter().skip(1)).collect();
        repeated.sort_unstable();
        let valid = fault.as_ref().map_or(list.len(), |(index, _)| *index);
        for (index, item) in list[..valid].iter().enumerate() {
            let step = items.step_at(index);
            if self.duplicates == Duplicates::Refused && repeated.binary_search(&&index).is_ok() {
                self.report(place, || format!("duplicate entries for key {}", step.to_element()));
            }
            if let Some(schema) = schema.items() {
                self.walk(schema, item, &ValuePath::Part(place, step));
            }
        }
        // Without an identity there is no path to report anything further at.
        if let Some((index, error)) = fault {
            self.report(place, || format!("element {index}: {error}"));
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value, place: &ValuePath<'_>) {
        let go_value = || match value {
            Value::String(text) => keelson_meta::go_format::quote(text),
            other => go_text::value(other),
        };
        let fits = matches!(
            (scalar, value),
            (Scalar::String, Value::String(_))
                | (Scalar::Numeric, Value::Number(_))
                | (Scalar::Boolean, Value::Bool(_))
                | (Scalar::Untyped, Value::String(_) | Value::Number(_) | Value::Bool(_))
        );
        if fits {
            return;
        }
        self.report(place, || match scalar {
            Scalar::String => format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_value()),
            Scalar::Numeric => {
                format!("expected numeric (int or float), got {}", go_text::type_name(value))
            }
            Scalar::Boolean => format!("expected boolean, got &{{{}}}", go_text::value(value)),
            Scalar::Untyped => format!("expected any scalar, got &{{{}}}", go_text::value(value)),
        });
    }
}
