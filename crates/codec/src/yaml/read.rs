//! From YAML events to a value tree.

use std::borrow::Cow;

use keelson_meta::json::{Entry, Map, Number, Text, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use super::YamlError;
use super::scalar::{Meaning, integral, meaning};
use crate::json::{Duplicates, MAX_DEPTH, Parsed, Path};

/// Reads the only document of the text.
pub(super) fn document(text: &str) -> Result<Parsed, YamlError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), duplicates: Duplicates::default() };
    let mut value = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if value.is_some() => return Err(problem(at, "more than one document")),
            Event::DocumentStart(_) => {
                let (first, at) = reader.next()?;
                value = Some(reader.value(first, at, &Path::Root, 0)?);
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
    Ok(Parsed { value: value.unwrap_or_default(), duplicates: reader.duplicates.into_paths() })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    duplicates: Duplicates,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Marker), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start)),
            Some(Err(error)) => Err(problem(*error.marker(), error.info())),
            None => Err(YamlError { line: 1, problem: "unexpected end of the text".to_owned() }),
        }
    }

    fn value(&mut self, event: Event<'a>, at: Marker, path: &Path<'_>, depth: usize) -> Result<Value, YamlError> {
        if depth > MAX_DEPTH {
            return Err(problem(at, "exceeded max depth"));
        }
        match event {
            Event::Scalar(text, style, 0, tag) => scalar(text, style, tag.as_deref(), at),
            Event::SequenceStart(0, _) => self.sequence(path, depth + 1),
            Event::MappingStart(0, _) => self.mapping(path, depth + 1),
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

    fn sequence(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, YamlError> {
        let mut array = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(array));
            }
            let element = self.value(event, at, &Path::Index(path, array.len()), depth)?;
            array.push(element);
        }
    }

    fn mapping(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, YamlError> {
        let mut map = Map::new();
        loop {
            let (event, at) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(Value::Object(map)),
                Event::Scalar(text, style, 0, tag) => key(text, style, tag.as_deref(), at)?,
                Event::Alias(_) | Event::Scalar(..) => {
                    return Err(problem(at, "anchors and aliases are not supported"));
                }
                _ => return Err(problem(at, "a key must be a scalar")),
            };
            let (event, value_at) = self.next()?;
            let value = self.value(event, value_at, &Path::Key(path, &key), depth)?;
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    self.duplicates.add(at.index(), path, entry.key());
                    entry.insert(value);
                }
            }
        }
    }
}

/// JSON keys are strings: other scalars become what JSON would print for them.
fn key(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>, at: Marker) -> Result<Text, YamlError> {
    match scalar(text, style, tag, at)? {
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
