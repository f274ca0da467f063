//! A JSON text as a flat list of its values, all of which borrow from the text.
//!
//! For readers of many objects: one pass, one allocation, and nothing is copied unless it has escapes. A value stands
//! before the values inside it and knows where they end. The text must be compact and valid, as stored objects are; of
//! other texts the outline is wrong, but reading it never panics and always ends.

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::json::grow;
use crate::syntax::MAX_DEPTH;

/// About how many bytes of an object there are for each value.
const BYTES_PER_VALUE: usize = 24;

/// The values of one text.
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Clone, Debug)]
struct Node<'a> {
    /// The key in the enclosing object; empty in arrays.
    key: Cow<'a, str>,
    content: Content<'a>,
    /// The place of the first value behind this one and all that is in it.
    end: u32,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(&'a str),
    /// A string, without its escapes.
    Text(Cow<'a, str>),
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
        Self::with(text, |place, key| match place {
            Place::Metadata => key == "managedFields",
            Place::Spec => passed_over.contains(&key),
            Place::Root | Place::Elsewhere => false,
        })
    }

    /// The outermost value.
    pub fn root(&self) -> Item<'_> {
        Item { outline: self, at: 0 }
    }

    fn with(text: &'a str, passes_over: impl Fn(Place, &str) -> bool) -> Self {
        let nodes = Vec::with_capacity(text.len() / BYTES_PER_VALUE + 1);
        let mut reader = Reader { text, cursor: Cursor::new(text.as_bytes(), 0), nodes, passes_over };
        reader.value(Cow::Borrowed(""), Place::Root, 0);
        Self { nodes: reader.nodes }
    }
}

impl<'a> Item<'a> {
    /// What it is.
    pub fn content(self) -> &'a Content<'a> {
        &self.outline.nodes[self.at].content
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
            Some((&*node.key, item))
        })
    }
}

/// Where in an object a value stands, as far as it matters for what is passed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Spec,
    Elsewhere,
}

impl Place {
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Root, "metadata") => Self::Metadata,
            (Self::Root, "spec") | (Self::Spec, _) => Self::Spec,
            (Self::Root | Self::Metadata | Self::Elsewhere, _) => Self::Elsewhere,
        }
    }
}

struct Reader<'a, P> {
    text: &'a str,
    cursor: Cursor<'a>,
    nodes: Vec<Node<'a>>,
    passes_over: P,
}

impl<'a, P: Fn(Place, &str) -> bool> Reader<'a, P> {
    fn value(&mut self, key: Cow<'a, str>, place: Place, depth: usize) {
        let at = self.nodes.len();
        let content = match self.cursor.peek() {
            b'"' => Content::Text(self.string()),
            b'{' if depth < MAX_DEPTH => Content::Object,
            b'[' if depth < MAX_DEPTH => Content::Array,
            _ => self.scalar(),
        };
        let (object, array) = (content == Content::Object, content == Content::Array);
        grow(&mut self.nodes);
        self.nodes.push(Node { key, content, end: 0 });
        if object {
            self.members(place, depth);
        } else if array {
            self.elements(place, depth);
        }
        self.nodes[at].end = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
    }

    fn members(&mut self, place: Place, depth: usize) {
        self.cursor.step();
        while let Some(key) = self.key() {
            if (self.passes_over)(place, &key) {
                self.cursor.skip();
            } else {
                let place = place.below(&key);
                self.value(key, place, depth + 1);
            }
        }
    }

    fn elements(&mut self, place: Place, depth: usize) {
        self.cursor.step();
        loop {
            match self.cursor.peek() {
                b',' => self.cursor.step(),
                b']' | 0 => break self.cursor.step(),
                _ => self.value(Cow::Borrowed(""), place, depth + 1),
            }
        }
    }

    /// As [`Cursor::key`], for the text.
    fn key(&mut self) -> Option<Cow<'a, str>> {
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

    fn string(&mut self) -> Cow<'a, str> {
        let start = self.cursor.position() + 1;
        let raw = self.cursor.string();
        if raw.bytes().contains(&b'\\') {
            return raw.decode();
        }
        Cow::Borrowed(self.text.get(start..start + raw.bytes().len()).unwrap_or_default())
    }

    fn scalar(&mut self) -> Content<'a> {
        let start = self.cursor.position();
        self.cursor.skip();
        if self.cursor.position() == start {
            // No value starts like this; a step keeps the walk going.
            self.cursor.step();
        }
        match self.text.get(start..self.cursor.position()).unwrap_or_default() {
            "true" => Content::Bool(true),
            "false" => Content::Bool(false),
            number if number.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                Content::Number(number)
            }
            _ => Content::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::{Map, Value, json};

    fn tree(item: Item<'_>) -> Value {
        match item.content() {
            Content::Null => Value::Null,
            Content::Bool(value) => (*value).into(),
            Content::Number(number) => serde_json::from_str(number).unwrap(),
            Content::Text(text) => (**text).into(),
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
        assert_eq!(at(&["x", "c"]).unwrap().content(), &Content::Number("3"));
        assert_eq!(at(&["c"]).unwrap().content(), &Content::Number("4"));
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
