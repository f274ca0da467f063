//! Whether an object can be owned by its fields at all: nothing undeclared, values of the right kind, items with keys.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::element::PathElement;
use super::identity::of_item;
use super::schema::{FieldSchema, Form, Member, Scalar};
use crate::go_text;

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
    let mut found = Found { path: Vec::new(), duplicates, violations: Vec::new() };
    found.walk(schema, object);
    if found.violations.is_empty() { Ok(()) } else { Err(Violations(found.violations)) }
}

/// One step of the way to a value. Only a violation makes a text of it.
enum Step<'v> {
    Field(&'v str),
    Item(PathElement),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Item(element) => element.fmt(f),
        }
    }
}

struct Found<'v> {
    path: Vec<Step<'v>>,
    duplicates: Duplicates,
    violations: Vec<Violation>,
}

impl<'v> Found<'v> {
    fn report(&mut self, message: impl Into<String>) {
        let path = self.path.iter().map(Step::to_string).collect();
        self.violations.push(Violation { path, message: message.into() });
    }

    fn step<'a>(&mut self, step: Step<'v>, schema: impl FieldSchema<'a>, value: &'v Value) {
        self.path.push(step);
        self.walk(schema, value);
        self.path.pop();
    }

    fn walk<'a>(&mut self, schema: impl FieldSchema<'a>, value: &'v Value) {
        let form = schema.form();
        match (form, value) {
            (Form::Any | Form::Deduced, _) | (_, Value::Null) => {}
            (Form::Scalar(scalar), value) => self.scalar(scalar, value),
            (Form::Map | Form::AtomicMap, Value::Object(members)) => {
                for (name, value) in members {
                    match schema.member(name) {
                        Member::Field(field) => self.step(Step::Field(name), field, value),
                        Member::Entry(entry) => self.step(Step::Field(name), entry, value),
                        Member::Unknown => {}
                        Member::Undeclared => {
                            self.path.push(Step::Field(name));
                            self.report("field not declared in schema");
                            self.path.pop();
                            return;
                        }
                    }
                }
            }
            (Form::Map | Form::AtomicMap, other) => {
                self.report(format!("expected map, got &{{{}}}", go_text::value(other)));
            }
            (Form::AtomicList, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = schema.items() {
                        self.step(Step::Item(PathElement::Index(index)), schema, item);
                    }
                }
            }
            (Form::Set | Form::KeyedList, Value::Array(items)) => self.items(schema, items),
            (Form::AtomicList | Form::Set | Form::KeyedList, other) => {
                self.report(format!("expected list, got &{{{}}}", go_text::value(other)));
            }
        }
    }

    fn items<'a>(&mut self, schema: impl FieldSchema<'a>, items: &'v [Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = match of_item(super::view::View::Known(schema), item) {
                Ok(element) => element,
                // Without an identity there is no path to report anything further at.
                Err(error) => return self.report(format!("element {index}: {error}")),
            };
            if !seen.insert(element.clone()) && self.duplicates == Duplicates::Refused {
                self.report(format!("duplicate entries for key {element}"));
            }
            if let Some(schema) = schema.items() {
                self.step(Step::Item(element), schema, item);
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        let go_value = || match value {
            Value::String(text) => keelson_meta::go_format::quote(text),
            other => go_text::value(other),
        };
        let message = match (scalar, value) {
            (Scalar::String, Value::String(_))
            | (Scalar::Numeric, Value::Number(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::String(_) | Value::Number(_) | Value::Bool(_)) => return,
            (Scalar::String, _) => format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_value()),
            (Scalar::Numeric, _) => {
                format!("expected numeric (int or float), got {}", go_text::type_name(value))
            }
            (Scalar::Boolean, _) => format!("expected boolean, got &{{{}}}", go_text::value(value)),
            (Scalar::Untyped, _) => format!("expected any scalar, got &{{{}}}", go_text::value(value)),
        };
        self.report(message);
    }
}
