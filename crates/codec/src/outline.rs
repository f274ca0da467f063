//! Reads a JSON text into a flat list of its values, all of which borrow from the text.
//!
//! An outline is for code that reads many objects: one pass, one allocation, no copies except for escaped strings. The
//! memory is at most about twenty times the text. A value precedes its parts and has the index of their end. The text
//! must be compact and valid, as stored objects are. For any other text the outline is wrong, but reading it never
//! panics and always ends.

use crate::cursor::Cursor;
use crate::room::{Rest, count_values};
use crate::syntax::MAX_DEPTH;

/// The approximate number of bytes of an object for each value, for reserving memory.
const BYTES_PER_VALUE: usize = 24;

/// The values of one text.
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    text: &'a str,
    /// The concatenated unescaped texts of strings with escapes.
    decoded: String,
    nodes: Vec<Node>,
}

/// A value. There may be one for every second byte of a text, so it has offsets instead of contents.
#[derive(Clone, Debug)]
struct Node {
    /// The key in the enclosing object. Empty in arrays.
    key: Span,
    /// The text of a number or string. Empty for other values.
    content: Span,
    /// The index of the next value after this one and its parts.
    end: u32,
    kind: Kind,
    /// True if the key is in `decoded`.
    is_key_decoded: bool,
    /// True if the content is in `decoded`.
    is_content_decoded: bool,
}

/// The start and length of a piece of text, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn new(start: usize, length: usize) -> Self {
        // No stored text has 4 GiB. The part of a longer text beyond that reads as empty.
        Self { start: u32::try_from(start).unwrap_or(u32::MAX), length: u32::try_from(length).unwrap_or(0) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    True,
    False,
    Number,
    Text,
    Array,
    Object,
}

/// The content of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, in its notation.
    Number(&'a str),
    /// An unescaped string.
    Text(&'a str),
    /// The start of an array.
    Array,
    /// The start of an object.
    Object,
}

/// One value of an outline.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    outline: &'a Outline<'a>,
    at: usize,
}

impl<'a> Outline<'a> {
    /// Reads all values.
    pub fn read(text: &'a str) -> Self {
        Self::with(text, |_, _| false)
    }

    /// Reads the values of an object, but skips `managedFields` in its metadata, and the members of `spec` that
    /// `passed_over` names, at any depth. For code that reads a few fields of many objects.
    pub fn read_sparsely(text: &'a str, passed_over: &[&str]) -> Self {
        Self::with(text, |section, key| match section {
            Section::Metadata => key == "managedFields",
            Section::Spec => passed_over.contains(&key),
            Section::Root | Section::Elsewhere => false,
        })
    }

    /// The outermost value.
    pub fn root(&self) -> Item<'_> {
        Item { outline: self, at: 0 }
    }

    fn with(text: &'a str, passes_over: impl Fn(Section, &str) -> bool) -> Self {
        let nodes = Vec::with_capacity(text.len() / BYTES_PER_VALUE + 1);
        let outline = Self { text, decoded: String::new(), nodes };
        let mut reader = Reader { outline, cursor: Cursor::new(text.as_bytes(), 0), passes_over };
        reader.value(TextSpan::default(), Section::Root, 0);
        reader.outline
    }

    fn at(&self, span: Span, is_decoded: bool) -> &str {
        let text = if is_decoded { &self.decoded } else { self.text };
        let start = span.start as usize;
        text.get(start..start + span.length as usize).unwrap_or_default()
    }
}

impl<'a> Item<'a> {
    /// The length of the whole text in bytes.
    pub fn text_bytes(self) -> usize {
        self.outline.text.len()
    }

    /// The content.
    pub fn content(self) -> Content<'a> {
        let node = &self.outline.nodes[self.at];
        let text = || self.outline.at(node.content, node.is_content_decoded);
        match node.kind {
            Kind::Null => Content::Null,
            Kind::True => Content::Bool(true),
            Kind::False => Content::Bool(false),
            Kind::Number => Content::Number(text()),
            Kind::Text => Content::Text(text()),
            Kind::Array => Content::Array,
            Kind::Object => Content::Object,
        }
    }

    /// The member with this key. Cost: one comparison for each member.
    pub fn get(self, key: &str) -> Option<Self> {
        self.members().find(|(name, _)| *name == key).map(|(_, item)| item)
    }

    /// The members of an object, or the elements of an array with empty keys.
    pub fn members(self) -> impl Iterator<Item = (&'a str, Self)> {
        let Self { outline, at } = self;
        let end = outline.nodes[at].end as usize;
        let mut next = at + 1;
        std::iter::from_fn(move || {
            let node = outline.nodes[..end].get(next)?;
            let item = Item { outline, at: next };
            next = node.end as usize;
            Some((outline.at(node.key, node.is_key_decoded), item))
        })
    }
}

/// The section of an object that a value belongs to. It determines which members are skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Root,
    Metadata,
    Spec,
    Elsewhere,
}

impl Section {
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Root, "metadata") => Self::Metadata,
            (Self::Root, "spec") | (Self::Spec, _) => Self::Spec,
            (Self::Root | Self::Metadata | Self::Elsewhere, _) => Self::Elsewhere,
        }
    }
}

/// A string of the text.
#[derive(Clone, Copy, Default)]
struct TextSpan {
    span: Span,
    is_decoded: bool,
}

struct Reader<'a, P> {
    outline: Outline<'a>,
    cursor: Cursor<'a>,
    passes_over: P,
}

impl<P: Fn(Section, &str) -> bool> Reader<'_, P> {
    fn value(&mut self, key: TextSpan, section: Section, depth: usize) {
        let at = self.outline.nodes.len();
        let (kind, content) = match self.cursor.peek() {
            b'"' => (Kind::Text, self.string()),
            b'{' if depth < MAX_DEPTH => (Kind::Object, TextSpan::default()),
            b'[' if depth < MAX_DEPTH => (Kind::Array, TextSpan::default()),
            _ => self.scalar(),
        };
        let rest = Rest::new(self.outline.text.as_bytes(), 0, self.cursor.position());
        rest.make_room(&mut self.outline.nodes, count_values);
        self.outline.nodes.push(Node {
            key: key.span,
            content: content.span,
            end: 0,
            kind,
            is_key_decoded: key.is_decoded,
            is_content_decoded: content.is_decoded,
        });
        match kind {
            Kind::Object => self.members(section, depth),
            Kind::Array => self.elements(section, depth),
            Kind::Null | Kind::True | Kind::False | Kind::Number | Kind::Text => {}
        }
        let end = self.outline.nodes.len();
        self.outline.nodes[at].end = u32::try_from(end).unwrap_or(u32::MAX);
    }

    fn members(&mut self, section: Section, depth: usize) {
        self.cursor.step();
        while let Some(found) = self.key() {
            let key = self.outline.at(found.span, found.is_decoded);
            if (self.passes_over)(section, key) {
                self.cursor.skip();
            } else {
                let section = section.below(key);
                self.value(found, section, depth + 1);
            }
        }
    }

    fn elements(&mut self, section: Section, depth: usize) {
        self.cursor.step();
        loop {
            match self.cursor.peek() {
                b',' => self.cursor.step(),
                b']' | 0 => break self.cursor.step(),
                _ => self.value(TextSpan::default(), section, depth + 1),
            }
        }
    }

    /// As [`Cursor::key`], with the text of the key.
    fn key(&mut self) -> Option<TextSpan> {
        if self.cursor.peek() == b',' {
            self.cursor.step();
        }
        if self.cursor.peek() != b'"' {
            self.cursor.step();
            return None;
        }
        let key = self.string();
        self.cursor.step();
        Some(key)
    }

    fn string(&mut self) -> TextSpan {
        let start = self.cursor.position() + 1;
        let raw = self.cursor.string();
        if !raw.bytes().contains(&b'\\') {
            return TextSpan { span: Span::new(start, raw.bytes().len()), is_decoded: false };
        }
        let decoded = &mut self.outline.decoded;
        let before = decoded.len();
        decoded.push_str(&raw.decode());
        TextSpan { span: Span::new(before, decoded.len() - before), is_decoded: true }
    }

    fn scalar(&mut self) -> (Kind, TextSpan) {
        let start = self.cursor.position();
        self.cursor.skip();
        if self.cursor.position() == start {
            // No value starts with this byte. One step forward guarantees that reading ends.
            self.cursor.step();
        }
        let end = self.cursor.position();
        let kind = match self.outline.text.get(start..end).unwrap_or_default() {
            "true" => Kind::True,
            "false" => Kind::False,
            number if number.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => Kind::Number,
            _ => Kind::Null,
        };
        let span = if kind == Kind::Number { Span::new(start, end - start) } else { Span::default() };
        (kind, TextSpan { span, is_decoded: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::{Map, Value, json};

    fn tree(item: Item<'_>) -> Value {
        match item.content() {
            Content::Null => Value::Null,
            Content::Bool(value) => value.into(),
            Content::Number(number) => serde_json::from_str(number).unwrap(),
            Content::Text(text) => text.into(),
            Content::Array => item.members().map(|(_, element)| tree(element)).collect(),
            Content::Object => Value::Object(item.members().map(|(key, item)| (key, tree(item))).collect::<Map>()),
        }
    }

    #[test]
    fn an_outline_equals_the_parsed_tree() {
        let value = json!({
            "a": {"b": [], "c": {}, "d": [[1, -2.5], [], "x"]}, "": null, "t\"\\e": "q\u{e9}\n", "n": true, "f": false,
            "list": [{"a": 1}, {"b": {"c": "d"}}, null], "last": 18_446_744_073_709_551_615_u64,
        });
        let text = value.to_string();
        assert_eq!(tree(Outline::read(&text).root()), value);
    }

    #[test]
    fn members_are_found_by_key() {
        let text = r#"{"x":{"a":[1,{"b":2}],"c":3},"c":4}"#;
        let outline = Outline::read(text);
        let at = |path: &[&str]| path.iter().try_fold(outline.root(), |item, key| item.get(key));
        assert_eq!(at(&["x", "c"]).unwrap().content(), Content::Number("3"));
        assert_eq!(at(&["c"]).unwrap().content(), Content::Number("4"));
        assert!(at(&["b"]).is_none() && at(&["c", "c"]).is_none());
    }

    #[test]
    fn only_named_members_of_the_spec_are_left_out() {
        let text = json!({
            "metadata": {"name": "n", "managedFields": [1], "env": "kept"},
            "spec": {"env": 1, "containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": "x"},
            "data": {"env": "kept"},
        })
        .to_string();
        let expected = json!({
            "metadata": {"name": "n", "env": "kept"},
            "spec": {"containers": [{"name": "c"}], "nodeName": "x"},
            "data": {"env": "kept"},
        });
        assert_eq!(tree(Outline::read_sparsely(&text, &["env"]).root()), expected);
    }

    #[test]
    fn broken_text_ends_the_walk() {
        let deep = "[".repeat(10 * MAX_DEPTH);
        for text in ["", "{", "{\"a", "{\"a\":", "[[", "[}", "{]", "[:::", "{\"a\":}", "]", &deep] {
            tree(Outline::read(text).root());
        }
    }
}
