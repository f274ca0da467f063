//! Builds a value tree from the tokens of a YAML text.
//!
//! The grammar is YAML 1.1 as `go-yaml` v2 reads it, with its error texts. `scalar.rs` determines the types of plain
//! scalars. Anchors and aliases are refused, so that a document can't become larger than its text.

use std::borrow::Cow;

use keelson_meta::go_format::quote;
use keelson_meta::json::{Entry, Map, Number, Slot, Text, Value, integral};

use super::YamlError;
use super::emit::float_text;
use super::scalar::{Meaning, meaning};
use super::scan::{Scanner, Token};
use super::text::{Mark, check_characters};
use crate::json::{Duplicates, MAX_DEPTH, Parsed};
use crate::room::{Rest, count_any};

/// The number of members of a mapping that are collected before a map is allocated.
const LARGE_MAPPING: usize = 4096;
/// The prefix of YAML's own tags.
const CORE: &str = "tag:yaml.org,2002:";
/// The maximum number of tag handles of a document. Each tag is compared with them.
const MAX_HANDLES: usize = 64;
/// The merge key.
const MERGE: &str = "<<";

/// Reads the only document of the text.
pub(super) fn document(text: &str) -> Result<Parsed, YamlError> {
    check_characters(text)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.starts_with('\u{feff}') {
        return Err(YamlError { line: 0, problem: "found a second byte order mark".to_owned() });
    }
    let mut reader = Reader {
        scanner: Scanner::new(text),
        handles: Vec::new(),
        duplicates: Duplicates::default(),
        members: Vec::new(),
        keys: Vec::new(),
    };
    let value = reader.document()?;
    reader.end()?;
    Ok(Parsed { value, duplicates: reader.duplicates.into_messages() })
}

struct Reader<'t> {
    scanner: Scanner<'t>,
    /// The prefixes that directives assign to tag handles.
    handles: Vec<(&'t str, Cow<'t, str>)>,
    duplicates: Duplicates,
    /// Members of the open mappings. A complete mapping takes its members from here.
    members: Vec<Slot>,
    /// The positions of the keys of these members.
    keys: Vec<KeyPosition>,
}

/// The position of a value, which determines the styles that are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a flow-style collection: no value in block style.
    Flow,
    /// Any value, except a sequence that is not indented.
    Block,
    /// Any value: the position of a key or value of a mapping in block style.
    Member,
}

impl<'t> Reader<'t> {
    /// The document. Null for a text without one.
    fn document(&mut self) -> Result<Value, YamlError> {
        let (token, _) = self.scanner.peek()?;
        match token {
            Token::StreamEnd => return Ok(Value::Null),
            Token::Version(..) | Token::TagHandle { .. } | Token::DocumentStart => self.directives()?,
            _ => return self.value(Place::Block, 0),
        }
        let (token, mark) = self.scanner.take()?;
        if token != Token::DocumentStart {
            return Err(misplaced(mark, "did not find expected <document start>"));
        }
        if self.is_between_documents()? { Ok(Value::Null) } else { self.value(Place::Block, 0) }
    }

    fn directives(&mut self) -> Result<(), YamlError> {
        let mut has_version = false;
        loop {
            let (token, mark) = self.scanner.peek()?;
            match token {
                Token::Version(..) if has_version => {
                    return Err(misplaced(mark, "found duplicate %YAML directive"));
                }
                Token::Version(1, 1) => has_version = true,
                Token::Version(..) => return Err(misplaced(mark, "found incompatible YAML document")),
                Token::TagHandle { handle, prefix } => {
                    if self.handles.iter().any(|(known, _)| known == handle) {
                        return Err(misplaced(mark, "found duplicate %TAG directive"));
                    }
                    if self.handles.len() == MAX_HANDLES {
                        return Err(problem(mark, "too many %TAG directives"));
                    }
                    self.handles.push((*handle, prefix.clone()));
                }
                _ => return Ok(()),
            }
            self.scanner.take()?;
        }
    }

    fn is_between_documents(&mut self) -> Result<bool, YamlError> {
        let (token, _) = self.scanner.peek()?;
        Ok(matches!(
            token,
            Token::Version(..) | Token::TagHandle { .. } | Token::DocumentStart | Token::DocumentEnd | Token::StreamEnd
        ))
    }

    /// Checks that no further document with content follows.
    fn end(&mut self) -> Result<(), YamlError> {
        let mut begins = false;
        loop {
            match self.scanner.take()? {
                (Token::StreamEnd, _) => return Ok(()),
                (Token::DocumentEnd, _) => begins = false,
                (Token::DocumentStart, _) => begins = true,
                (_, mark) if begins => return Err(problem(mark, "more than one document")),
                (_, mark) => return Err(misplaced(mark, "did not find expected <document start>")),
            }
        }
    }

    /// The value that begins with the next token.
    fn value(&mut self, place: Place, depth: usize) -> Result<Value, YamlError> {
        let tag = self.tag()?;
        let (token, mark) = self.scanner.peek()?;
        if depth > MAX_DEPTH {
            return Err(problem(mark, "exceeded max depth"));
        }
        let is_block = place != Place::Flow;
        match token {
            Token::Entry if place == Place::Member => self.entries(mark, depth + 1, false),
            Token::Scalar { .. } => {
                let (token, mark) = self.scanner.take()?;
                let Token::Scalar { text, is_plain } = token else { return Ok(Value::Null) };
                scalar(text, is_plain, tag.as_deref(), mark)
            }
            Token::FlowSequenceStart => self.flow_sequence(depth + 1),
            Token::FlowMappingStart => self.flow_mapping(depth + 1),
            Token::SequenceStart if is_block => {
                self.scanner.take()?;
                self.entries(mark, depth + 1, true)
            }
            Token::MappingStart if is_block => self.mapping(depth + 1),
            _ if tag.is_some() => scalar(Cow::Borrowed(""), true, tag.as_deref(), mark),
            _ => Err(misplaced(mark, "did not find expected node content")),
        }
    }

    /// The full tag of the next value, if it has one.
    fn tag(&mut self) -> Result<Option<Cow<'t, str>>, YamlError> {
        let unsupported = |mark| Err(problem(mark, "anchors and aliases are not supported"));
        match self.scanner.peek()? {
            (Token::Anchor, mark) => return unsupported(mark),
            (Token::Tag { .. }, _) => {}
            _ => return Ok(None),
        }
        let (token, mark) = self.scanner.take()?;
        if let (Token::Anchor, mark) = self.scanner.peek()? {
            return unsupported(mark);
        }
        let Token::Tag { handle, suffix } = token else { return Ok(None) };
        let known = self.handles.iter().find(|(known, _)| *known == handle).map(|(_, prefix)| &**prefix);
        let prefix = match (known, handle) {
            (_, "") => return Ok(Some(suffix)),
            (Some(prefix), _) => prefix,
            (None, "!") => "!",
            (None, "!!") => CORE,
            (None, _) => return Err(misplaced(mark, "found undefined tag handle")),
        };
        Ok(Some([prefix, &suffix].concat().into()))
    }

    /// Reads the entries of a sequence in block style. A sequence that is not indented has no end token.
    fn entries(&mut self, opened: Mark, depth: usize, is_indented: bool) -> Result<Value, YamlError> {
        let mut array = Vec::new();
        loop {
            match self.scanner.peek()? {
                (Token::Entry, _) => {}
                (Token::BlockEnd, _) if is_indented => {
                    self.scanner.take()?;
                    break;
                }
                (_, mark) if is_indented => return Err(misplaced(mark, "did not find expected '-' indicator")),
                _ => break,
            }
            self.scanner.take()?;
            let (token, at) = self.scanner.peek()?;
            let is_empty = match token {
                Token::Entry | Token::BlockEnd => true,
                Token::Key | Token::Value => !is_indented,
                _ => false,
            };
            self.rest(opened, at).make_room(&mut array, ends_of_elements);
            array.push(if is_empty { Value::Null } else { self.value(Place::Block, depth)? });
        }
        array.shrink_to_fit();
        Ok(Value::Array(array))
    }

    fn flow_sequence(&mut self, depth: usize) -> Result<Value, YamlError> {
        let (_, opened) = self.scanner.take()?;
        let mut array = Vec::new();
        while self.goes_on(array.is_empty(), &Token::FlowSequenceEnd, "did not find expected ',' or ']'")? {
            let (token, at) = self.scanner.peek()?;
            let is_pair = *token == Token::Key;
            self.rest(opened, at).make_room(&mut array, ends_of_elements);
            array.push(if is_pair { self.pair(depth + 1)? } else { self.value(Place::Flow, depth)? });
        }
        array.shrink_to_fit();
        Ok(Value::Array(array))
    }

    /// Returns true if a collection in flow style has another element. Otherwise its end is consumed.
    fn goes_on(&mut self, is_first: bool, end: &Token<'_>, problem: &str) -> Result<bool, YamlError> {
        let (token, mark) = self.scanner.peek()?;
        if token != end && !is_first {
            if *token != Token::FlowEntry {
                return Err(misplaced(mark, problem));
            }
            self.scanner.take()?;
        }
        let goes_on = self.scanner.peek()?.0 != end;
        if !goes_on {
            self.scanner.take()?;
        }
        Ok(goes_on)
    }

    /// Reads a mapping with a single member within a sequence in flow style.
    fn pair(&mut self, depth: usize) -> Result<Value, YamlError> {
        let (_, mark) = self.scanner.take()?;
        let mut map = Map::new();
        let name = match self.scanner.peek()?.0 {
            Token::Value | Token::FlowEntry | Token::FlowSequenceEnd => return Err(problem(mark, NULL_KEY)),
            _ => self.name(Place::Flow)?,
        };
        let (value, _) = self.flow_value(&Token::FlowSequenceEnd, depth)?;
        map.insert(name.text, value);
        Ok(Value::Object(map))
    }

    /// The value of a key in flow style, and its position. Null if there is none before the end of the collection.
    fn flow_value(&mut self, end: &Token<'_>, depth: usize) -> Result<(Value, Mark), YamlError> {
        if *self.scanner.peek()?.0 == Token::Value {
            self.scanner.take()?;
            let (token, at) = self.scanner.peek()?;
            if *token != Token::FlowEntry && token != end {
                return Ok((self.value(Place::Flow, depth)?, at));
            }
        }
        Ok((Value::Null, self.scanner.peek()?.1))
    }

    fn flow_mapping(&mut self, depth: usize) -> Result<Value, YamlError> {
        let (_, opened) = self.scanner.take()?;
        let mut mapping = self.begin(opened);
        while self.goes_on(mapping.is_empty(self), &Token::FlowMappingEnd, "did not find expected ',' or '}'")? {
            let (token, mark) = self.scanner.peek()?;
            // Only a key that the scanner found has a value.
            let has_value = *token == Token::Key;
            if has_value {
                self.scanner.take()?;
                if matches!(self.scanner.peek()?.0, Token::Value | Token::FlowEntry | Token::FlowMappingEnd) {
                    return Err(problem(mark, NULL_KEY));
                }
            }
            let name = self.name(Place::Flow)?;
            let (value, at) = match has_value {
                true => self.flow_value(&Token::FlowMappingEnd, depth)?,
                false => (Value::Null, self.scanner.peek()?.1),
            };
            let stands = name.stands(at);
            self.add(&mut mapping, name.text, value, stands);
        }
        Ok(self.finish(mapping))
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, YamlError> {
        let (_, opened) = self.scanner.take()?;
        let mut mapping = self.begin(opened);
        loop {
            match self.scanner.take()? {
                (Token::BlockEnd, _) => return Ok(self.finish(mapping)),
                (Token::Key, _) => {}
                (_, mark) => return Err(misplaced(mark, "did not find expected key")),
            }
            let (token, mark) = self.scanner.peek()?;
            if matches!(token, Token::Key | Token::Value | Token::BlockEnd) {
                return Err(problem(mark, NULL_KEY));
            }
            let name = self.name(Place::Member)?;
            let (value, at) = self.block_value(depth)?;
            let stands = name.stands(at);
            self.add(&mut mapping, name.text, value, stands);
        }
    }

    /// The value of a key in block style, and its position. Null if there is none.
    fn block_value(&mut self, depth: usize) -> Result<(Value, Mark), YamlError> {
        let (token, mark) = self.scanner.peek()?;
        if *token != Token::Value {
            return Ok((Value::Null, mark));
        }
        self.scanner.take()?;
        match self.scanner.peek()? {
            (Token::Key | Token::Value | Token::BlockEnd, _) => Ok((Value::Null, mark)),
            (_, at) => Ok((self.value(Place::Member, depth)?, at)),
        }
    }

    /// The key of a member.
    fn name(&mut self, place: Place) -> Result<Name, YamlError> {
        let tag = self.tag()?;
        let (token, mark) = self.scanner.peek()?;
        let is_scalar = matches!(token, Token::Scalar { .. });
        let is_collection = match token {
            Token::FlowSequenceStart | Token::FlowMappingStart => true,
            Token::SequenceStart | Token::MappingStart => place != Place::Flow,
            Token::Entry => place == Place::Member,
            _ => false,
        };
        if is_collection {
            return Err(problem(mark, "a key must be a scalar"));
        }
        if !is_scalar && tag.is_none() {
            return Err(misplaced(mark, "did not find expected node content"));
        }
        let (text, is_plain) = match is_scalar.then(|| self.scanner.take()).transpose()? {
            Some((Token::Scalar { text, is_plain }, _)) => (text, is_plain),
            _ => (Cow::Borrowed(""), true),
        };
        let is_merge =
            text == MERGE && (is_plain && tag.is_none() || tag.as_deref().and_then(core_tag) == Some("merge"));
        if is_merge {
            return Err(problem(mark, "merge keys are not supported"));
        }
        let (resolved, text) = resolve(text, is_plain, tag.as_deref(), mark)?;
        let name = match resolved {
            Meaning::Text | Meaning::Timestamp | Meaning::Merge => {
                return Ok(Name { text: text.into(), at: mark, is_text: true });
            }
            Meaning::Null => return Err(problem(mark, NULL_KEY)),
            Meaning::Unsigned(_) => return Err(problem(mark, &format!("JSON cannot have the key `{text}`"))),
            Meaning::Bool(value) => value.to_string(),
            Meaning::Int(number) => number.to_string(),
            Meaning::Float(number) => float_key(number),
        };
        Ok(Name { text: name.into(), at: mark, is_text: false })
    }

    /// The unread part of a collection.
    fn rest(&self, opened: Mark, at: Mark) -> Rest<'t> {
        Rest::new(self.scanner.text().as_bytes(), opened.at, at.at)
    }
}

/// An open mapping.
struct Mapping {
    opened: Mark,
    /// The index of its first member among those of all mappings.
    start: usize,
    /// Members beyond [`LARGE_MAPPING`] are put directly into this map, so that repeated keys take no memory.
    large: Option<Map>,
}

impl Mapping {
    fn is_empty(&self, reader: &Reader<'_>) -> bool {
        self.large.is_none() && reader.members.len() == self.start
    }
}

impl Reader<'_> {
    fn begin(&self, opened: Mark) -> Mapping {
        Mapping { opened, start: self.members.len(), large: None }
    }

    fn add(&mut self, mapping: &mut Mapping, name: Text, value: Value, stands: KeyPosition) {
        let Some(map) = &mut mapping.large else {
            self.members.push(Slot::new(name, value));
            self.keys.push(stands);
            if self.members.len() - mapping.start == LARGE_MAPPING {
                mapping.large = Some(self.collect(mapping.start));
            }
            return;
        };
        if map.is_full() {
            map.reserve(self.rest(mapping.opened, stands.at).count(map.len(), ends_of_elements));
        }
        match map.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            Entry::Occupied(mut entry) => {
                stands.note(entry.key(), &self.duplicates);
                entry.insert(value);
            }
        }
    }

    fn finish(&mut self, mapping: Mapping) -> Value {
        Value::Object(match mapping.large {
            Some(map) => map,
            None => self.collect(mapping.start),
        })
    }

    /// The mapping of the members from `start` on.
    fn collect(&mut self, start: usize) -> Map {
        let map = Map::from_slots(self.members.drain(start..), |number, key| {
            self.keys[start + number].note(key, &self.duplicates);
        });
        self.keys.truncate(start);
        map
    }
}

/// A key.
struct Name {
    text: Text,
    at: Mark,
    /// True for a string key, which `go-yaml` quotes when it reports a duplicate.
    is_text: bool,
}

impl Name {
    fn stands(&self, value: Mark) -> KeyPosition {
        KeyPosition { at: self.at, line: value.line_number(), is_text: self.is_text }
    }
}

/// The position of a key, and the line of its value for the report of a duplicate.
struct KeyPosition {
    at: Mark,
    line: usize,
    is_text: bool,
}

impl KeyPosition {
    /// Records a duplicate of the key.
    fn note(&self, key: &str, duplicates: &Duplicates) {
        duplicates.note(self.at.index, || {
            let shown = if self.is_text { quote(key) } else { key.to_owned() };
            format!("line {}: key {shown} already set in map", self.line)
        });
    }
}

/// The maximum number of elements or members in a text. It also counts commas and lines within strings, which only
/// costs unused capacity.
fn ends_of_elements(text: &[u8]) -> usize {
    count_any(text, *b",\n")
}

const NULL_KEY: &str = "a key must not be null";

/// A float as a key, which Go formats with single precision.
#[expect(clippy::cast_possible_truncation, reason = "Go rounds it, too")]
fn float_key(number: f64) -> String {
    match number as f32 {
        single if single.is_nan() => ".nan".to_owned(),
        f32::INFINITY => ".inf".to_owned(),
        f32::NEG_INFINITY => "-.inf".to_owned(),
        single => float_text(single),
    }
}

fn scalar(text: Cow<'_, str>, is_plain: bool, tag: Option<&str>, at: Mark) -> Result<Value, YamlError> {
    let (resolved, text) = resolve(text, is_plain, tag, at)?;
    match resolved {
        Meaning::Null => Ok(Value::Null),
        Meaning::Bool(value) => Ok(Value::Bool(value)),
        Meaning::Int(number) => Ok(Value::Number(number.into())),
        Meaning::Unsigned(number) => Ok(Value::Number(number.into())),
        Meaning::Float(number) => json_number(number)
            .map(Value::Number)
            .ok_or_else(|| problem(at, &format!("JSON cannot hold the number `{text}`"))),
        Meaning::Timestamp | Meaning::Merge | Meaning::Text => Ok(Value::from(text)),
    }
}

/// The meaning of a scalar with this tag.
fn resolve<'s>(
    text: Cow<'s, str>,
    is_plain: bool,
    tag: Option<&str>,
    at: Mark,
) -> Result<(Meaning, Cow<'s, str>), YamlError> {
    let resolved = match tag.map(core_tag) {
        None if is_plain => meaning(&text),
        Some(Some("binary")) => return Err(problem(at, "the tag !!binary is not supported")),
        Some(Some(wanted @ ("null" | "bool" | "int" | "float" | "timestamp"))) => {
            let found = meaning(&text);
            if !fits(wanted, found) {
                return Err(problem(at, &format!("cannot decode `{text}` as a !!{wanted}")));
            }
            found
        }
        // A tag of an application leaves the text unchanged.
        None | Some(_) => Meaning::Text,
    };
    Ok((resolved, text))
}

/// The name of YAML's own tag.
fn core_tag(tag: &str) -> Option<&str> {
    tag.strip_prefix(CORE)
}

fn fits(tag: &str, meaning: Meaning) -> bool {
    match tag {
        "null" => meaning == Meaning::Null,
        "bool" => matches!(meaning, Meaning::Bool(_)),
        "int" => matches!(meaning, Meaning::Int(_) | Meaning::Unsigned(_)),
        "float" => matches!(meaning, Meaning::Int(_) | Meaning::Float(_)),
        _ => meaning == Meaning::Timestamp,
    }
}

/// Go converts YAML to JSON text first and prints integral floats as integers.
fn json_number(number: f64) -> Option<Number> {
    integral(number).map(Number::from).or_else(|| Number::from_f64(number))
}

fn problem(at: Mark, problem: &str) -> YamlError {
    YamlError { line: at.line_number(), problem: problem.to_owned() }
}

/// The error of a misplaced token. `go-yaml` counts lines from zero here.
fn misplaced(at: Mark, problem: &str) -> YamlError {
    YamlError { line: at.line, problem: problem.to_owned() }
}
