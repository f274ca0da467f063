//! Values that come from an object's tree.
//!
//! A declaration determines how a value is read, for example a string as a time. An object with a declaration has only
//! its declared fields that are not null, under their names in expressions. Maps and data without a declaration have
//! all their members.

use super::{List, Map, Text, Value};
use crate::decl::{Decl, DeclKind};
use crate::library::times;
use keelson_meta::json;

/// A map or an object of the tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeMap<'a> {
    fields: &'a json::Map,
    decl: Option<&'a Decl>,
}

/// A value of the tree, read by its declaration.
pub fn from_tree<'a>(value: &'a json::Value, decl: Option<&'a Decl>) -> Value<'a> {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => Value::Bool(*value),
        json::Value::Number(number) => match decl.map(|decl| &decl.kind) {
            Some(DeclKind::Double) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            Some(DeclKind::Int) => Value::Int(number.as_i64().or_else(|| whole(number)).unwrap_or(i64::MAX)),
            _ => number
                .as_i64()
                .map(Value::Int)
                .or_else(|| number.as_f64().map(Value::Double))
                .unwrap_or(Value::Double(f64::NAN)),
        },
        json::Value::String(text) => from_text(text, decl),
        json::Value::Array(elements) => {
            Value::List(List::Tree(elements, decl.filter(|decl| matches!(decl.kind, DeclKind::List(..)))))
        }
        json::Value::Object(fields) => from_map(fields, decl),
    }
}

/// An object of the tree, read by its declaration.
pub fn from_map<'a>(fields: &'a json::Map, decl: Option<&'a Decl>) -> Value<'a> {
    let decl = decl.filter(|decl| matches!(decl.kind, DeclKind::Map(_) | DeclKind::Object(_)));
    Value::Map(Map::Tree(TreeMap { fields, decl }))
}

fn whole(number: &json::Number) -> Option<i64> {
    let number = number.as_f64()?;
    (number.fract() == 0.0 && number.abs() < 9.2e18).then_some(number as i64)
}

/// Reads a string by its declaration. If it can't be read so, it stays a string, since formats are validated elsewhere.
fn from_text<'a>(text: &'a str, decl: Option<&Decl>) -> Value<'a> {
    let plain = Value::String(Text::Borrowed(text));
    match decl.map(|decl| &decl.kind) {
        Some(DeclKind::Timestamp) => times::parse_timestamp(text)
            .or_else(|| times::parse_timestamp(&format!("{text}T00:00:00Z")))
            .map_or(plain, Value::Timestamp),
        Some(DeclKind::Duration) => times::parse_duration(text).map_or(plain, Value::Duration),
        Some(DeclKind::Quantity) => keelson_meta::Quantity::parse(text).map_or(plain, Value::Quantity),
        Some(DeclKind::Bytes) => {
            data_encoding::BASE64.decode(text.as_bytes()).map_or(plain, |bytes| Value::Bytes(bytes.into()))
        }
        _ => plain,
    }
}

impl<'a> TreeMap<'a> {
    /// The names and values, in the order of the tree.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&'a str, &'a json::Value)> + use<'a> {
        let is_object = matches!(self.decl, Some(Decl { kind: DeclKind::Object(_), .. }));
        self.fields.iter().filter(move |(_, value)| !is_object || !value.is_null())
    }

    pub(super) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        self.keys().map(|(name, value)| (Value::text(name), from_tree(value, self.decl_of(name)))).collect()
    }

    /// The value of the member with this name in the data, which differs from its name in expressions for names such as
    /// `a-b`.
    pub(super) fn member(&self, name: &str) -> Option<Value<'a>> {
        let (name, value) = self.keys().find(|(known, _)| *known == name)?;
        Some(from_tree(value, self.decl_of(name)))
    }

    /// The declaration of the member with this name in the data.
    fn decl_of(&self, name: &str) -> Option<&'a Decl> {
        match &self.decl?.kind {
            DeclKind::Map(values) => Some(values),
            DeclKind::Object(object) => match object.field(name) {
                Some(field) if field.property == name => Some(&field.decl),
                _ => object.fields.values().find(|field| field.property == name).map(|field| &*field.decl),
            },
            _ => None,
        }
    }

    /// The value of the field with this name in expressions.
    pub(super) fn get(&self, name: &str) -> Option<Value<'a>> {
        match self.decl {
            None => self.fields.get(name).map(|value| from_tree(value, None)),
            Some(Decl { kind: DeclKind::Object(object), .. }) => {
                let field = object.field(name)?;
                let value = self.fields.get(&field.property).filter(|value| !value.is_null())?;
                Some(from_tree(value, Some(&field.decl)))
            }
            Some(decl) => self.fields.get(name).map(|value| from_tree(value, decl.element().map(|of| &**of))),
        }
    }
}
