//! JSON text to value trees and back.
//!
//! Reading accepts what `serde_json` accepts, with two differences: arrays and objects may nest [`MAX_DEPTH`] deep, and
//! keys that come twice are reported, because `fieldValidation` asks for them. Faults read as Go's `encoding/json`
//! writes them; that text is only worked out after the fast path has failed.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::pretty;
use crate::syntax;
pub use crate::syntax::{JsonError, MAX_DEPTH};

/// How many duplicate keys are reported; upstream stops at the same number.
const MAX_DUPLICATES: usize = 100;

/// A value and what was odd about its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of keys that came twice the last one counts.
    pub value: Value,
    /// The paths of keys that came twice, such as `data.a` or `spec.containers[0].name`, each path once.
    pub duplicates: Vec<String>,
}

/// Reads one JSON value and nothing else.
///
/// # Errors
/// Text that is not JSON, not UTF-8, or nests deeper than [`MAX_DEPTH`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, JsonError> {
    let duplicates = Duplicates::default();
    match std::str::from_utf8(bytes).map(|text| read(text, &duplicates)) {
        Ok(Ok(value)) => Ok(Parsed { value, duplicates: duplicates.into_paths() }),
        Ok(Err(error)) => Err(explain(bytes, &error)),
        Err(_) => Err(syntax::check(bytes).err().unwrap_or(JsonError::NotUtf8)),
    }
}

/// Compact JSON.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(value, &mut out);
    out
}

/// JSON as Go's `MarshalIndent` writes it: two spaces, empty arrays and objects on one line. No final newline.
pub fn to_vec_pretty(value: &Value) -> Vec<u8> {
    let compact = to_vec(value);
    let mut out = Vec::with_capacity(compact.len() * 2);
    pretty::write(&compact, 0, &mut out);
    out
}

/// Appends compact JSON.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("keys are strings and memory takes every byte");
}

/// Appends a JSON string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("memory takes every byte");
}

fn read(text: &str, duplicates: &Duplicates) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // The seed keeps its own, larger bound.
    deserializer.disable_recursion_limit();
    let value = Seed { path: &Path::Root, depth: 0, duplicates }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

fn explain(bytes: &[u8], error: &serde_json::Error) -> JsonError {
    match syntax::check(bytes) {
        Err(fault) => fault,
        Ok(_) => JsonError::Refused(error.to_string()),
    }
}

/// The keys met twice so far. Shared by the seeds of one parse.
#[derive(Default)]
pub(crate) struct Duplicates(RefCell<Vec<String>>);

impl Duplicates {
    /// Notes that `key` came twice in the object at `path`.
    pub(crate) fn add(&self, path: &Path<'_>, key: &str) {
        let mut paths = self.0.borrow_mut();
        if paths.len() < MAX_DUPLICATES {
            let text = Path::Key(path, key).to_string();
            if !paths.contains(&text) {
                paths.push(text);
            }
        }
    }

    /// The paths, in the order they were met.
    pub(crate) fn into_paths(self) -> Vec<String> {
        self.0.into_inner()
    }
}

/// The way to the value being read. Lives on the stack: only a duplicate makes a text of it.
pub(crate) enum Path<'a> {
    /// The value itself.
    Root,
    /// A member of the object at the path.
    Key(&'a Path<'a>, &'a str),
    /// An element of the array at the path.
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Reads a value at a path.
struct Seed<'a> {
    path: &'a Path<'a>,
    depth: usize,
    duplicates: &'a Duplicates,
}

impl Seed<'_> {
    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth == MAX_DEPTH { Err(E::custom(JsonError::TooDeep)) } else { Ok(self.depth + 1) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut array = Vec::new();
        loop {
            let path = Path::Index(self.path, array.len());
            match elements.next_element_seed(Seed { path: &path, depth, duplicates: self.duplicates })? {
                Some(element) => array.push(element),
                None => return Ok(Value::Array(array)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            let value = members.next_value_seed(Seed { path: &path, depth, duplicates: self.duplicates })?;
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    self.duplicates.add(self.path, entry.key());
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}
