//! Parses JSON text into value trees, and formats trees as JSON.
//!
//! The reader accepts the same input as `serde_json`, with two differences. Arrays and objects may nest [`MAX_DEPTH`]
//! deep, and duplicate keys are reported for `fieldValidation`. Errors have the text of Go's `encoding/json`, which is
//! computed only after parsing failed.

use std::cell::RefCell;
use std::fmt;

use keelson_meta::json::{Map, Number, Slot, Text, Value};

use crate::cursor::{not_plain, quote_or_backslash};
use crate::pretty;
use crate::room::{Rest, count_any};
use crate::syntax;
pub use crate::syntax::{JsonError, MAX_DEPTH};

/// The maximum number of reported duplicate keys, as upstream.
const MAX_DUPLICATES: usize = 100;
/// The maximum bytes of the paths of duplicate keys. Clients determine the length of the keys in a path, and one path
/// may have a duplicate for every short key below it.
const MAX_DUPLICATE_BYTES: usize = 64 * 1024;
/// The number of elements from which an array is read directly into its own allocation, with capacity reserved in
/// advance. Such an array may be most of the body.
const LARGE_ARRAY: usize = 4096;
/// The maximum digits of a number that always fits into 64 bits.
const MAX_COUNT_DIGITS: usize = 19;

/// A parsed value, and the faults of its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of duplicate keys the last one counts.
    pub value: Value,
    /// Upstream's message for each distinct duplicate key: `duplicate field "spec.containers[0].name"` for JSON,
    /// `line 4: key "name" already set in map` for YAML.
    pub duplicates: Vec<String>,
}

/// Parses one JSON value without trailing text.
///
/// # Errors
/// Text that is not JSON, not UTF-8, or nests deeper than [`MAX_DEPTH`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, JsonError> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(syntax::check(bytes).err().unwrap_or(JsonError::NotUtf8));
    };
    let mut reader = Reader::new(text);
    match reader.document() {
        Ok(value) => Ok(Parsed { value, duplicates: reader.duplicates.into_messages() }),
        Err(RefusedText) => {
            Err(syntax::check(bytes).err().unwrap_or(JsonError::Refused("the text can't be read".to_owned())))
        }
    }
}

/// Formats compact JSON.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(value, &mut out);
    out
}

/// Formats JSON as Go's `MarshalIndent` does: two spaces, empty arrays and objects on one line, no final line feed.
pub fn to_vec_pretty(value: &Value) -> Vec<u8> {
    let compact = to_vec(value);
    let mut out = Vec::with_capacity(compact.len() * 2);
    pretty::write(&compact, 0, &mut out);
    out
}

/// Appends compact JSON.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => serde_json::to_writer(out, number).expect("writing to a Vec cannot fail"),
        Value::String(text) => write_string(text, out),
        Value::Array(elements) => {
            if elements.len() >= LARGE_ARRAY {
                // The capacity includes some bytes for the text after the elements.
                out.reserve(elements.iter().map(least_bytes).sum::<usize>() + 256);
            }
            out.push(b'[');
            for (place, element) in elements.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(element, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (place, (key, value)) in members.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

/// The minimum size of an element and its comma in compact JSON, without visiting its parts.
fn least_bytes(element: &Value) -> usize {
    1 + match element {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(_) | Value::Object(_) => 2,
    }
}

/// Returns true if a text needs no escapes in a JSON string.
pub fn is_plain(text: &str) -> bool {
    // A fold without early exit, which the compiler vectorizes.
    text.bytes().fold(true, |plain, byte| plain & (byte >= 0x20) & (byte != b'"') & (byte != b'\\'))
}

/// Appends a JSON string. Nearly every text needs no escapes.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    if !is_plain(text) {
        return serde_json::to_writer(out, text).expect("writing to a Vec cannot fail");
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// The duplicate keys found so far, shared by all readers of one text.
#[derive(Default)]
pub(crate) struct Duplicates(RefCell<DuplicateKeys>);

#[derive(Default)]
struct DuplicateKeys {
    /// Each message once, with a position in the text.
    messages: Vec<(usize, String)>,
    /// Bytes of all formatted messages, including repeated ones.
    written: usize,
}

impl Duplicates {
    /// Records that `key` at this position of the text is a duplicate in the object at `path`.
    pub(crate) fn add(&self, place: usize, path: &Path<'_>, key: &str) {
        self.note(place, || format!("duplicate field \"{}\"", Path::Key(path, key)));
    }

    /// Records a message about a key at this position of the text.
    pub(crate) fn note(&self, place: usize, message: impl FnOnce() -> String) {
        let mut noted = self.0.borrow_mut();
        if noted.messages.len() < MAX_DUPLICATES && noted.written < MAX_DUPLICATE_BYTES {
            let text = message();
            noted.written += text.len();
            if !noted.messages.iter().any(|(_, known)| *known == text) {
                noted.messages.push((place, text));
            }
        }
    }

    /// The messages, in the order of the text.
    pub(crate) fn into_messages(self) -> Vec<String> {
        let mut messages = self.0.into_inner().messages;
        messages.sort_by_key(|(place, _)| *place);
        messages.into_iter().map(|(_, message)| message).collect()
    }
}

/// The path of the value being read: a chain on the stack, formatted only for a duplicate.
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

/// The reader refuses the text. [`syntax::check`] then finds the reason.
struct RefusedText;

/// Reads a value with its parts.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    duplicates: Duplicates,
    /// The members of all open objects, those of the innermost last. A complete object takes its members from here, so
    /// that its map is allocated once in the right size. Growing a map costs more than parsing its contents.
    members: Vec<Slot>,
    /// The positions of their keys.
    places: Vec<usize>,
    /// Elements of the open arrays, innermost last.
    elements: Vec<Value>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let (members, places, elements) = (Vec::with_capacity(64), Vec::with_capacity(64), Vec::with_capacity(32));
        Self { text, at: 0, duplicates: Duplicates::default(), members, places, elements }
    }

    /// The only value of the text.
    fn document(&mut self) -> Result<Value, RefusedText> {
        let value = self.value(&Path::Root, 0)?;
        self.skip_whitespace();
        if self.at == self.text.len() { Ok(value) } else { Err(RefusedText) }
    }

    /// The next value. `depth` is the number of enclosing arrays and objects.
    fn value(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, RefusedText> {
        match self.peek()? {
            b'{' => self.object(path, deeper(depth)?),
            b'[' => self.array(path, deeper(depth)?),
            b'"' => self.string().map(Value::String),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn object(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, RefusedText> {
        let start = self.members.len();
        self.at += 1;
        let mut more = self.peek()? != b'}';
        while more {
            if self.peek()? != b'"' {
                return Err(RefusedText);
            }
            let place = self.at;
            let key = self.string()?;
            if self.peek()? != b':' {
                return Err(RefusedText);
            }
            self.at += 1;
            let value = self.value(&Path::Key(path, &key), depth)?;
            // The stack has the members of all open objects, so their text begins at the start of the body.
            let rest = Rest::new(self.text.as_bytes(), 0, self.at);
            rest.make_room(&mut self.members, |text| count_any(text, [b':']));
            rest.make_room(&mut self.places, |text| count_any(text, [b':']));
            self.members.push(Slot::new(key, value));
            self.places.push(place);
            more = self.separator(b'}')?;
        }
        self.at += 1;
        let map = Map::from_slots(self.members.drain(start..), |number, key| {
            self.duplicates.add(self.places[start + number], path, key);
        });
        self.places.truncate(start);
        Ok(Value::Object(map))
    }

    fn array(&mut self, path: &Path<'_>, depth: usize) -> Result<Value, RefusedText> {
        let (start, opened) = (self.elements.len(), self.at);
        self.at += 1;
        let mut more = self.peek()? != b']';
        while more {
            let index = self.elements.len() - start;
            let element = self.value(&Path::Index(path, index), depth)?;
            self.elements.push(element);
            more = self.separator(b']')?;
            if more && self.elements.len() - start == LARGE_ARRAY {
                return self.large_array(path, depth, start, opened);
            }
        }
        self.at += 1;
        Ok(Value::Array(self.elements.drain(start..).collect()))
    }

    /// Reads the rest of an array that starts at `start`, whose first elements are on the stack.
    fn large_array(
        &mut self,
        path: &Path<'_>,
        depth: usize,
        start: usize,
        opened: usize,
    ) -> Result<Value, RefusedText> {
        let mut array: Vec<Value> = self.elements.drain(start..).collect();
        loop {
            Rest::new(self.text.as_bytes(), opened, self.at).make_room(&mut array, commas);
            let element = self.value(&Path::Index(path, array.len()), depth)?;
            array.push(element);
            if !self.separator(b']')? {
                self.at += 1;
                array.shrink_to_fit();
                return Ok(Value::Array(array));
            }
        }
    }

    /// Skips a comma. Returns false at the end of the array or object.
    fn separator(&mut self, end: u8) -> Result<bool, RefusedText> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == end => Ok(false),
            _ => Err(RefusedText),
        }
    }

    /// The next string, after its opening quote.
    fn string(&mut self) -> Result<Text, RefusedText> {
        let start = self.at + 1;
        let rest = &self.text.as_bytes()[start..];
        let plain = not_plain(rest).ok_or(RefusedText)?;
        match rest[plain] {
            b'"' => {
                self.at = start + plain + 1;
                Ok(Text::new(&self.text[start..start + plain]))
            }
            b'\\' => self.escaped(start, start + plain),
            _ => Err(RefusedText),
        }
    }

    /// The string that begins at `start` and has its first backslash at `end`.
    fn escaped(&mut self, start: usize, mut end: usize) -> Result<Text, RefusedText> {
        while self.text.as_bytes().get(end) != Some(&b'"') {
            // The byte after a backslash does not end the string.
            end = (end + 2).min(self.text.len());
            end += quote_or_backslash(&self.text.as_bytes()[end..]).ok_or(RefusedText)?;
        }
        self.at = end + 1;
        let quoted = &self.text[start - 1..=end];
        serde_json::from_str(quoted).or_else(|_| replace_lone_surrogates(quoted).ok_or(RefusedText))
    }

    fn number(&mut self) -> Result<Value, RefusedText> {
        let rest = &self.text[self.at..];
        let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let number = &rest[..rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len())];
        self.at += number.len();
        // Nearly every number is a small integer.
        let is_count = (1..=MAX_COUNT_DIGITS).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && (number.len() == 1 || !number.starts_with('0'));
        if is_count && let Ok(count) = number.parse::<u64>() {
            return Ok(Value::Number(count.into()));
        }
        serde_json::from_str::<Number>(number).map(Value::Number).map_err(|_| RefusedText)
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, RefusedText> {
        if !self.text[self.at..].starts_with(word) {
            return Err(RefusedText);
        }
        self.at += word.len();
        Ok(value)
    }

    /// The first byte of the next token.
    fn peek(&mut self) -> Result<u8, RefusedText> {
        self.skip_whitespace();
        self.text.as_bytes().get(self.at).copied().ok_or(RefusedText)
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }
}

/// The content of a string, with U+FFFD for each escape of a lone surrogate, as Go decodes it. `None` if it has other
/// faults.
fn replace_lone_surrogates(quoted: &str) -> Option<Text> {
    /// The code unit of the escape at the start of a text.
    fn unit(text: &str) -> Option<u16> {
        u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
    }
    let mut whole = String::with_capacity(quoted.len());
    let mut rest = quoted;
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        whole.push_str(before);
        let is_pair = || matches!(escape.get(6..).and_then(unit), Some(0xdc00..=0xdfff));
        let length = match unit(escape) {
            Some(0xd800..=0xdbff) if is_pair() => 12,
            Some(0xd800..=0xdfff) => {
                whole.push('\u{fffd}');
                rest = &escape[6..];
                continue;
            }
            Some(_) => 6,
            None => 2,
        };
        whole.push_str(escape.get(..length)?);
        rest = &escape[length..];
    }
    whole.push_str(rest);
    serde_json::from_str(&whole).ok()
}

/// The number of commas between the elements of the array whose rest this text is, up to its end. The result for
/// invalid JSON is arbitrary, since it only determines the reserved capacity.
fn commas(text: &[u8]) -> usize {
    let (mut found, mut depth, mut at) = (0, 0usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b',' if depth == 0 => found += 1,
            b']' if depth == 0 => break,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                at += 1;
                while text.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn deeper(depth: usize) -> Result<usize, RefusedText> {
    if depth == MAX_DEPTH { Err(RefusedText) } else { Ok(depth + 1) }
}
