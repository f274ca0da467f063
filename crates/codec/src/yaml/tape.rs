//! Reads a JSON text into a flat list of its values, in order. The YAML writer needs it to know all keys of an object
//! before it writes the first.
//!
//! A tape is built for each written object, and only has positions in the text. Code that reads fields uses an
//! [`Outline`](crate::Outline). The text must be compact and valid. For any other text the tape is wrong, but reading
//! it never panics and always ends.

use crate::cursor::quote_or_backslash;
use crate::room::{Rest, count_values};
use crate::syntax::MAX_DEPTH;

/// The approximate number of bytes of an object for each value, for reserving memory.
const BYTES_PER_VALUE: usize = 16;

/// The values of one text, which may be borrowed or shared.
#[derive(Debug)]
pub(super) struct Tape<T> {
    text: T,
    values: Vec<Value>,
    /// The unescaped texts of strings with escapes.
    unescaped: Vec<String>,
}

/// One value. It precedes its parts.
#[derive(Clone, Copy, Debug)]
struct Value {
    key: Span,
    /// The range of the number, or of the string's content.
    content: Span,
    kind: Kind,
    /// The index of the next value after this one and its parts.
    end: u32,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    True,
    False,
    Number,
    Text,
    Array,
    Object,
}

/// A part of the text, or an unescaped text.
#[derive(Clone, Copy, Debug)]
enum Span {
    Of { start: u32, end: u32 },
    Unescaped(u32),
}

const NOTHING: Span = Span::Of { start: 0, end: 0 };

/// The index of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TapeIndex(u32);

impl<T: AsRef<str>> Tape<T> {
    /// Reads a text. Text beyond 4 GiB is ignored.
    pub(super) fn read(text: T) -> Self {
        let values = Vec::with_capacity(text.as_ref().len() / BYTES_PER_VALUE + 1);
        let mut reader = Reader { text: text.as_ref(), values, unescaped: Vec::new(), at: 0 };
        reader.value(NOTHING, 0);
        let Reader { values, unescaped, .. } = reader;
        Self { text, values, unescaped }
    }

    /// The approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_ref().len() + self.values.capacity() * size_of::<Value>()
    }

    /// The outermost value.
    pub(super) fn root(&self) -> TapeIndex {
        TapeIndex(0)
    }

    /// The kind of a value.
    pub(super) fn kind(&self, place: TapeIndex) -> Kind {
        self.value(place).kind
    }

    /// The text of a string or a number.
    pub(super) fn content(&self, place: TapeIndex) -> &str {
        self.str(self.value(place).content)
    }

    /// The key of a member.
    pub(super) fn key(&self, place: TapeIndex) -> &str {
        self.str(self.value(place).key)
    }

    /// Returns true for an empty array or object.
    pub(super) fn is_empty(&self, place: TapeIndex) -> bool {
        self.value(place).end == place.0 + 1
    }

    /// The members of an object or the elements of an array.
    pub(super) fn members(&self, place: TapeIndex) -> impl Iterator<Item = TapeIndex> {
        let (mut next, end) = self.inside(place);
        std::iter::from_fn(move || {
            let place = next;
            (next < end).then(|| next = self.behind(place)).map(|()| place)
        })
    }

    /// The indexes of the first value in an array or object, and after its last one.
    pub(super) fn inside(&self, place: TapeIndex) -> (TapeIndex, TapeIndex) {
        (TapeIndex(place.0 + 1), self.behind(place))
    }

    /// The index after a value and its parts.
    pub(super) fn behind(&self, place: TapeIndex) -> TapeIndex {
        TapeIndex(self.value(place).end)
    }

    fn value(&self, place: TapeIndex) -> &Value {
        &self.values[place.0 as usize]
    }

    fn str(&self, span: Span) -> &str {
        match span {
            Span::Of { start, end } => self.text.as_ref().get(start as usize..end as usize).unwrap_or_default(),
            Span::Unescaped(at) => &self.unescaped[at as usize],
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    values: Vec<Value>,
    unescaped: Vec<String>,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn value(&mut self, key: Span, depth: usize) {
        let place = self.values.len();
        let (kind, content) = match self.peek() {
            b'"' => (Kind::Text, self.string()),
            b'{' if depth < MAX_DEPTH => (Kind::Object, NOTHING),
            b'[' if depth < MAX_DEPTH => (Kind::Array, NOTHING),
            _ => self.scalar(),
        };
        let end = narrow(place + 1);
        Rest::new(self.text.as_bytes(), 0, self.at).make_room(&mut self.values, count_values);
        self.values.push(Value { key, content, kind, end });
        match kind {
            Kind::Object => self.members(depth),
            Kind::Array => self.elements(depth),
            Kind::Null | Kind::True | Kind::False | Kind::Number | Kind::Text => return,
        }
        self.values[place].end = narrow(self.values.len());
    }

    fn members(&mut self, depth: usize) {
        self.at += 1;
        loop {
            if self.peek() == b',' {
                self.at += 1;
            }
            if self.peek() != b'"' {
                self.at += 1;
                return;
            }
            let key = self.string();
            self.at += 1;
            self.value(key, depth + 1);
        }
    }

    fn elements(&mut self, depth: usize) {
        self.at += 1;
        loop {
            match self.peek() {
                b',' => self.at += 1,
                b']' | 0 => break self.at += 1,
                _ => self.value(NOTHING, depth + 1),
            }
        }
    }

    /// Steps over a string.
    fn string(&mut self) -> Span {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let (mut end, mut escaped) = (start, false);
        loop {
            let rest = bytes.get(end..).unwrap_or_default();
            let Some(distance) = quote_or_backslash(rest) else {
                self.at = bytes.len();
                return NOTHING;
            };
            end += distance;
            if rest[distance] == b'"' {
                break;
            }
            escaped = true;
            end += 2;
        }
        self.at = end + 1;
        if !escaped {
            return Span::Of { start: narrow(start), end: narrow(end) };
        }
        let quoted = bytes.get(start - 1..=end).unwrap_or_default();
        self.unescaped.push(serde_json::from_slice(quoted).unwrap_or_default());
        Span::Unescaped(narrow(self.unescaped.len() - 1))
    }

    /// Steps over a number or a word, or one byte that no value starts with.
    fn scalar(&mut self) -> (Kind, Span) {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(rest.len());
        self.at += length.max(1);
        let kind = match rest.first() {
            Some(b't') => Kind::True,
            Some(b'f') => Kind::False,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        };
        (kind, Span::Of { start: narrow(start), end: narrow(start + length) })
    }
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::{Map, Value, json};

    use super::*;

    fn tree(tape: &Tape<&str>, place: TapeIndex) -> Value {
        match tape.kind(place) {
            Kind::Null => Value::Null,
            Kind::True => true.into(),
            Kind::False => false.into(),
            Kind::Number => serde_json::from_str(tape.content(place)).unwrap(),
            Kind::Text => tape.content(place).into(),
            Kind::Array => tape.members(place).map(|element| tree(tape, element)).collect(),
            Kind::Object => Value::Object(
                tape.members(place).map(|member| (tape.key(member).to_owned(), tree(tape, member))).collect::<Map>(),
            ),
        }
    }

    #[test]
    fn a_tape_equals_the_parsed_tree() {
        let value = json!({
            "a": {"b": [], "c": {}, "d": [[1, -2.5], [], "x"]}, "": null, "t\"\\e": "q\u{e9}\n", "n": true, "f": false,
            "list": [{"a": 1}, {"b": {"c": "d"}}, null], "last": 18_446_744_073_709_551_615_u64,
        });
        let text = value.to_string();
        let tape = Tape::read(text.as_str());
        assert_eq!(tree(&tape, tape.root()), value);
    }

    #[test]
    fn broken_text_ends_the_walk() {
        let deep = "[".repeat(10 * MAX_DEPTH);
        for text in ["", "{", "{\"a", "{\"a\":", "[[", "[}", "{]", "[:::", "{\"a\":}", "]", "\"\\", "tr\u{e9}", &deep] {
            let tape = Tape::read(text);
            let _ = (tape.members(tape.root()).count(), tape.content(tape.root()));
        }
    }
}
