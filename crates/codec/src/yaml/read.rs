//! From YAML events to a value tree.
//!
//! Plain scalars are resolved as `go-yaml` does, in `scalar.rs`. Anchors and aliases are refused, so that a document can't
//! become larger than its text.

use std::borrow::Cow;

use keelson_meta::go_format::quote;
use keelson_meta::json::{Entry, Map, Number, Slot, Text, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::YamlError;
use super::input::{Ahead, BoundedInput, document_start};
use super::scalar::{Meaning, integral, meaning};
use crate::json::{Duplicates, MAX_DEPTH, Parsed};
use crate::room::{Rest, count_any};

/// YAML 1.1 takes no collection of more than 1,024 characters for a key; this is what is said of one that is far larger.
const TOO_FAR_AHEAD: &str = "could not find expected ':'";

/// How many members of a mapping are collected before a map is made of them.
const LARGE_MAPPING: usize = 4096;

/// Reads the only document of the text.
pub(super) fn document(text: &str) -> Result<Parsed, YamlError> {
    let text = match document_start(text) {
        "" => Cow::Borrowed(text),
        start => Cow::Owned([start, text.trim_start_matches('\u{feff}')].concat()),
    };
    let ahead = Ahead::default();
    let parser = Parser::new(BoundedInput::new(&text, ahead.clone()));
    let (duplicates, members, keys) = (Duplicates::default(), Vec::new(), Vec::new());
    let mut reader = Reader { text: text.as_ref(), parser, ahead, duplicates, members, keys };
    let mut value = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if value.is_some() => return Err(problem(at, "more than one document")),
            Event::DocumentStart(_) => {
                let (first, at) = reader.next()?;
                value = Some(reader.value(first, at, 0)?);
            }
            Event::StreamEnd => break,
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => return Err(problem(at, "content outside of a document")),
        }
    }
    Ok(Parsed { value: value.unwrap_or_default(), duplicates: reader.duplicates.into_messages() })
}

struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, BoundedInput<'a>>,
    ahead: Ahead,
    duplicates: Duplicates,
    /// Members of the mappings that are being read. Each takes its own off the end when all are known.
    members: Vec<Slot>,
    /// Their keys.
    keys: Vec<Stands>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Marker), YamlError> {
        self.ahead.start();
        match self.parser.next_event() {
            Some(Ok((event, span))) if !self.ahead.is_exceeded() => Ok((event, span.start)),
            Some(Ok((_, span))) => Err(problem(span.start, TOO_FAR_AHEAD)),
            Some(Err(error)) if self.ahead.is_exceeded() => Err(problem(*error.marker(), TOO_FAR_AHEAD)),
            Some(Err(error)) => Err(problem(*error.marker(), error.info())),
            None => Err(YamlError { line: 1, problem: "unexpected end of the text".to_owned() }),
        }
    }

    fn value(&mut self, event: Event<'a>, at: Marker, depth: usize) -> Result<Value, YamlError> {
        if depth > MAX_DEPTH {
            return Err(problem(at, "exceeded max depth"));
        }
        match event {
            Event::Scalar(text, style, 0, tag) => scalar(text, style, tag.as_deref(), at),
            Event::SequenceStart(0, _) => self.sequence(at, depth + 1),
            Event::MappingStart(0, _) => self.mapping(at, depth + 1),
            Event::Alias(_) | Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                Err(problem(at, "anchors and aliases are not supported"))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Err(problem(at, "expected a value")),
        }
    }

    fn sequence(&mut self, opened: Marker, depth: usize) -> Result<Value, YamlError> {
        let mut array = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                array.shrink_to_fit();
                return Ok(Value::Array(array));
            }
            self.rest(opened, at).make_room(&mut array, ends_of_elements);
            array.push(self.value(event, at, depth)?);
        }
    }

    /// What is not read yet of a collection.
    fn rest(&self, opened: Marker, at: Marker) -> Rest<'a> {
        // Markers count characters. In a text of long ones that is a place before the one that is meant, and more is counted.
        Rest::new(self.text.as_bytes(), opened.index(), at.index())
    }

    fn mapping(&mut self, opened: Marker, depth: usize) -> Result<Value, YamlError> {
        let start = self.members.len();
        // What comes behind so many members goes into the map at once, so that keys that come again and again take no room.
        let mut large: Option<Map> = None;
        while let Some(member) = self.member(depth)? {
            match &mut large {
                Some(map) => {
                    if map.is_full() {
                        map.reserve(self.rest(opened, member.stands.at).count(map.len(), ends_of_elements));
                    }
                    self.insert(map, member);
                }
                None => {
                    self.members.push(Slot::new(member.name, member.value));
                    self.keys.push(member.stands);
                    if self.members.len() - start == LARGE_MAPPING {
                        large = Some(self.collect(start));
                    }
                }
            }
        }
        Ok(Value::Object(match large {
            Some(map) => map,
            None => self.collect(start),
        }))
    }

    /// The next member of a mapping; `None` at the end of the mapping.
    fn member(&mut self, depth: usize) -> Result<Option<Member>, YamlError> {
        let (event, at) = self.next()?;
        let key = match event {
            Event::MappingEnd => return Ok(None),
            Event::Scalar(text, style, 0, tag) => scalar(text, style, tag.as_deref(), at)?,
            Event::Alias(_) | Event::Scalar(..) => return Err(problem(at, "anchors and aliases are not supported")),
            _ => return Err(problem(at, "a key must be a scalar")),
        };
        let stands = Stands { at, is_text: key.is_string() };
        let name = name_of(key, at)?;
        let (event, at) = self.next()?;
        let value = self.value(event, at, depth)?;
        Ok(Some(Member { name, value, stands }))
    }

    fn insert(&self, map: &mut Map, member: Member) {
        match map.entry(member.name) {
            Entry::Vacant(entry) => {
                entry.insert(member.value);
            }
            Entry::Occupied(mut entry) => {
                member.stands.note(entry.key(), &self.duplicates);
                entry.insert(member.value);
            }
        }
    }

    /// The mapping of which the members from `start` on were read.
    fn collect(&mut self, start: usize) -> Map {
        let map = Map::from_slots(self.members.drain(start..), |number, key| {
            self.keys[start + number].note(key, &self.duplicates);
        });
        self.keys.truncate(start);
        map
    }
}

/// A member of a mapping.
struct Member {
    name: Text,
    value: Value,
    stands: Stands,
}

/// Where a key stands, and whether it is a text there: `go-yaml` names keys so when they come twice.
struct Stands {
    at: Marker,
    is_text: bool,
}

impl Stands {
    /// Notes that the key came before.
    fn note(&self, key: &str, duplicates: &Duplicates) {
        duplicates.note(self.at.index(), || {
            let shown = if self.is_text { quote(key) } else { key.to_owned() };
            format!("line {}: key {shown} already set in map", self.at.line())
        });
    }
}

/// How many elements or members a text can have at the most. A comma or a line more in a text costs a place that is not used.
fn ends_of_elements(text: &[u8]) -> usize {
    count_any(text, *b",\n")
}

/// JSON keys are strings: other scalars become what JSON would print for them.
fn name_of(key: Value, at: Marker) -> Result<Text, YamlError> {
    match key {
        Value::String(text) => Ok(text),
        Value::Null => Err(problem(at, "a key must not be null")),
        other => Ok(other.to_string().into()),
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>, at: Marker) -> Result<Value, YamlError> {
    let tag = tag.map(core_tag);
    let resolved = match tag {
        None if style == ScalarStyle::Plain => meaning(&text),
        None | Some(None | Some("str")) => Meaning::Text,
        Some(Some("binary")) => return Err(problem(at, "the tag !!binary is not supported")),
        Some(Some(_)) => meaning(&text),
    };
    if let Some(Some(wanted)) = tag
        && !fits(wanted, resolved)
    {
        return Err(problem(at, &format!("cannot decode `{text}` as a !!{wanted}")));
    }
    match resolved {
        Meaning::Null => Ok(Value::Null),
        Meaning::Bool(value) => Ok(Value::Bool(value)),
        Meaning::Int(number) => Ok(Value::Number(number.into())),
        Meaning::Unsigned(number) => Ok(Value::Number(number.into())),
        Meaning::Float(number) => json_number(number)
            .map(Value::Number)
            .ok_or_else(|| problem(at, &format!("JSON cannot hold the number `{text}`"))),
        Meaning::Merge => Err(problem(at, "merge keys are not supported")),
        Meaning::Timestamp | Meaning::Text => Ok(Value::from(text)),
    }
}

/// The name of a tag of the core schema, `None` for a tag of someone else, which leaves text as it is.
fn core_tag(tag: &Tag) -> Option<&str> {
    tag.is_yaml_core_schema().then_some(tag.suffix.as_str())
}

fn fits(tag: &str, meaning: Meaning) -> bool {
    match tag {
        "null" => meaning == Meaning::Null,
        "bool" => matches!(meaning, Meaning::Bool(_)),
        "int" => matches!(meaning, Meaning::Int(_) | Meaning::Unsigned(_)),
        "float" => matches!(meaning, Meaning::Int(_) | Meaning::Unsigned(_) | Meaning::Float(_)),
        "timestamp" => meaning == Meaning::Timestamp,
        _ => meaning == Meaning::Text,
    }
}

/// Go turns YAML into JSON text before it reads it, and prints floats without a fraction as integers.
fn json_number(number: f64) -> Option<Number> {
    integral(number).map(Number::from).or_else(|| Number::from_f64(number))
}

fn problem(at: Marker, problem: &str) -> YamlError {
    YamlError { line: at.line(), problem: problem.to_owned() }
}
