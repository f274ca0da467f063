//! Lenient access to an object's fields, without a type for each kind.
//!
//! Absent fields have Go's zero values: an empty text, zero, false, an empty list.

use std::time::SystemTime;

use keelson_codec::outline::{Content, Item};
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::Value;

use crate::age::age;

/// The object of a row, and the current time.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The object.
    pub object: Item<'a>,
    /// The current time.
    pub now: SystemTime,
}

impl<'a> Subject<'a> {
    /// The object's field of this name.
    pub fn at(&self, field: &str) -> FieldValue<'a> {
        FieldValue(self.object.get(field))
    }

    /// The cell with the object's name.
    pub fn name(&self) -> Value {
        self.at("metadata").at("name").cell()
    }

    /// The cell with the name of a class, marked as the default if it has one of these annotations.
    pub fn name_of_class(&self, marks: &[&str]) -> Value {
        let is_default = marks.iter().any(|key| self.annotation(key) == Some("true"));
        format!("{}{}", self.at("metadata").at("name").text(), if is_default { " (default)" } else { "" }).into()
    }

    /// The cell with the object's age.
    pub fn age(&self) -> Value {
        self.since(self.at("metadata").at("creationTimestamp")).into()
    }

    /// The time since then.
    pub fn since(&self, time: FieldValue<'_>) -> String {
        age(time.time(), self.now)
    }

    /// The annotation with this key.
    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        self.at("metadata").at("annotations").at(key).set_text()
    }

    /// Returns true if the object is being deleted.
    pub fn deleting(&self) -> bool {
        self.at("metadata").at("deletionTimestamp").is_set()
    }
}

/// A part of an object that may be absent.
#[derive(Clone, Copy)]
pub struct FieldValue<'a>(Option<Item<'a>>);

impl<'a> FieldValue<'a> {
    /// The field of this name.
    pub fn at(self, field: &str) -> Self {
        Self(self.0.and_then(|value| value.get(field)))
    }

    /// The element at this index.
    pub fn nth(self, place: usize) -> Self {
        Self(self.elements().nth(place))
    }

    /// Returns this value, or the other one if this is absent or empty.
    pub fn or(self, other: Self) -> Self {
        if self.is_set() && self.set_text() != Some("") { self } else { other }
    }

    /// Returns true for a value other than null, even an empty one.
    pub fn is_set(self) -> bool {
        self.0.is_some_and(|value| value.content() != Content::Null)
    }

    /// The text. Empty if absent.
    pub fn text(self) -> &'a str {
        self.set_text().unwrap_or_default()
    }

    /// The text, if there is one.
    pub fn set_text(self) -> Option<&'a str> {
        match self.0?.content() {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number. Zero if absent.
    pub fn int(self) -> i64 {
        self.set_int().unwrap_or_default()
    }

    /// The number, if there is one.
    pub fn set_int(self) -> Option<i64> {
        match self.0?.content() {
            Content::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// The boolean. False if absent.
    pub fn flag(self) -> bool {
        self.set_flag().unwrap_or_default()
    }

    /// The boolean, if there is one.
    pub fn set_flag(self) -> Option<bool> {
        match self.0?.content() {
            Content::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The time, if it is valid.
    pub fn time(self) -> Option<SystemTime> {
        parse_rfc3339(self.set_text()?)
    }

    /// A string or number as text, for quantities and int-or-string values. `None` if absent.
    pub fn printed(self) -> Option<String> {
        match self.0?.content() {
            Content::Text(text) | Content::Number(text) => Some(text.to_owned()),
            Content::Null | Content::Bool(_) | Content::Array | Content::Object => None,
        }
    }

    /// A quantity as text. Zero if absent.
    pub fn quantity(self) -> String {
        self.printed().unwrap_or_else(|| "0".to_owned())
    }

    /// The elements of the list.
    pub fn items(self) -> std::vec::IntoIter<Self> {
        self.elements().map(|element| Self(Some(element))).collect::<Vec<_>>().into_iter()
    }

    /// The entries of the map, in stored order.
    pub fn entries(self) -> impl Iterator<Item = (&'a str, Self)> {
        let map = self.0.filter(|value| value.content() == Content::Object);
        map.into_iter().flat_map(Item::members).map(|(key, value)| (key, Self(Some(value))))
    }

    /// The number of elements or entries.
    pub fn len(self) -> usize {
        self.0.map_or(0, |value| value.members().count())
    }

    /// Returns true without elements or entries.
    pub fn is_empty(self) -> bool {
        self.0.is_none_or(|value| value.members().next().is_none())
    }

    fn elements(self) -> impl Iterator<Item = Item<'a>> {
        let list = self.0.filter(|value| value.content() == Content::Array);
        list.into_iter().flat_map(Item::members).map(|(_, element)| element)
    }

    /// The first condition of this type in a list.
    pub fn condition(self, kind: &str) -> Self {
        Self(self.elements().find(|condition| Self(Some(*condition)).at("type").text() == kind))
    }

    /// Returns true for a condition with status `True`.
    pub fn holds(self) -> bool {
        self.at("status").text() == "True"
    }

    /// The cell with this text.
    pub fn cell(self) -> Value {
        self.text().into()
    }

    /// The cell with this text, or with `fallback` if it is absent.
    pub fn cell_or(self, fallback: &str) -> Value {
        self.set_text().unwrap_or(fallback).into()
    }

    /// The cell with this text, or with `fallback` if it is absent or empty.
    pub fn cell_unless_empty(self, fallback: &str) -> Value {
        crate::text::or(self.text(), fallback).into()
    }

    /// The cell with this number.
    pub fn int_cell(self) -> Value {
        self.int().into()
    }

    /// The cell with the number of elements or entries.
    pub fn len_cell(self) -> Value {
        self.len().into()
    }
}
