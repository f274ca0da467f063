//! Validates an object before its fields are owned: no undeclared fields, correct types, and items with keys.
//!
//! Apply calls this on the client's object. Messages are upstream's, and their size is limited.

use std::fmt;

use keelson_meta::json::Value;

use super::element::PathElement;
use super::element_ref::PathElementRef;
use super::identity::{Items, Keys};
use super::schema::{FieldSchema, Granularity, Member, Scalar};
use super::view::View;
use crate::go_text;

/// The maximum bytes of paths and messages. Clients determine the length of the map keys in a path, and there may be a
/// fault for every few bytes below a path.
const MAX_BYTES: usize = 256 * 1024;

/// The rule for repeated list items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Allowed, as in stored objects.
    Allowed,
    /// Refused, as in applied objects.
    Refused,
}

/// A violation of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path, such as `.spec.containers[name="a"].image`.
    pub path: String,
    /// The fault.
    pub message: String,
}

/// All violations of the schema, formatted as upstream does.
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
/// All violations. Of several undeclared fields of one object only the first is reported.
pub fn validate<'a>(schema: impl FieldSchema<'a>, object: &Value, duplicates: Duplicates) -> Result<(), Violations> {
    let mut found = Found { duplicates, violations: Vec::new(), written: 0 };
    found.walk(schema, object, &ValuePath::Root);
    if found.violations.is_empty() { Ok(()) } else { Err(Violations(found.violations)) }
}

/// The path of a value: a chain on the stack, formatted only for a violation.
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
    /// Bytes of the violations.
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
        let keys = Keys::from_list(View::Known(schema));
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
        // An item without an identity has no path, so violations in it can't be reported.
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
