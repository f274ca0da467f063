//! A JSON text as a flat list of its values, all of which borrow from the text.
//!
//! For readers of many objects: one pass, one allocation, and nothing is copied unless it has escapes. What it holds is at most
//! some twenty times as long as the text, whatever that says. A value stands
//! before the values inside it and knows where they end. The text must be compact and valid, as stored objects are; of
//! other texts the outline is wrong, but reading it never panics and always ends.

use crate::cursor::Cursor;
use crate::room::{Rest, count_values};
use crate::syntax::MAX_DEPTH;

/// About how many bytes of an object there are for each value.
const BYTES_PER_VALUE: usize = 24;

/// The values of one text.
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    text: &'a str,
    /// What the strings with escapes say, one behind the other.
    decoded: String,
    nodes: Vec<Node>,
}

/// A value. There may be one for every second byte of a text, so it holds places rather than what is there.
#[derive(Clone, Debug)]
struct Node {
    /// The key in the enclosing object; empty in arrays.
    key: Span,
    /// The text of a number or a string; empty for what else there is.
    content: Span,
    /// The place of the first value behind this one and all that is in it.
    end: u32,
    kind: Kind,
    /// Whether the key is among what was decoded.
    is_key_decoded: bool,
    /// Whether the content is.
    is_content_decoded: bool,
}

/// Where a piece of text begins, and how many bytes it has.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn new(start: usize, length: usize) -> Self {
        // No text that is stored is so long; of one that is, the outline has nothing to show from there on.
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

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(&'a str),
    /// A string, without its escapes.
    Text(&'a str),
    /// Elements follow.
    Array,
    /// Members follow.
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

    /// Reads the values of an object, without the metadata's `managedFields` and the members of `spec`, at any depth, that
    /// `passed_over` names. For those who look at a few fields of many objects.
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
        reader.value(Found::default(), Section::Root, 0);
        reader.outline
    }

    fn at(&self, span: Span, is_decoded: bool) -> &str {
        let text = if is_decoded { &self.decoded } else { self.text };
        let start = span.start as usize;
        text.get(start..start + span.length as usize).unwrap_or_default()
    }
}

impl<'a> Item<'a> {
    /// The length in bytes of the text that it stands in.
    pub fn text_bytes(self) -> usize {
        self.outline.text.len()
    }

    /// What it is.
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

    /// The member with this key. Cost: one comparison a member.
    pub fn get(self, key: &str) -> Option<Self> {
        self.members().find(|(name, _)| *name == key).map(|(_, item)| item)
    }

    /// The members of an object or the elements of an array, whose keys are empty.
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

/// Where in an object a value stands, as far as it matters for what is passed over.
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
struct Found {
    span: Span,
    is_decoded: bool,
}

struct Reader<'a, P> {
    outline: Outline<'a>,
    cursor: Cursor<'a>,
    passes_over: P,
}

impl<P: Fn(Section, &str) -> bool> Reader<'_, P> {
    fn value(&mut self, key: Found, section: Section, depth: usize) {
        let at = self.outline.nodes.len();
        let (kind, content) = match self.cursor.peek() {
            b'"' => (Kind::Text, self.string()),
            b'{' if depth < MAX_DEPTH => (Kind::Object, Found::default()),
            b'[' if depth < MAX_DEPTH => (Kind::Array, Found::default()),
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
                _ => self.value(Found::default(), section, depth + 1),
            }
        }
    }

    /// As [`Cursor::key`], for the text.
    fn key(&mut self) -> Option<Found> {
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

    fn string(&mut self) -> Found {
        let start = self.cursor.position() + 1;
        let raw = self.cursor.string();
        if !raw.bytes().contains(&b'\\') {
            return Found { span: Span::new(start, raw.bytes().len()), is_decoded: false };
        }
        let decoded = &mut self.outline.decoded;
        let before = decoded.len();
        decoded.push_str(&raw.decode());
        Found { span: Span::new(before, decoded.len() - before), is_decoded: true }
    }

    fn scalar(&mut self) -> (Kind, Found) {
        let start = self.cursor.position();
        self.cursor.skip();
        if self.cursor.position() == start {
            // No value starts like this; a step keeps the walk going.
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
        (kind, Found { span, is_decoded: false })
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
    fn an_outline_holds_what_a_tree_holds() {
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
