//! Sets of fields that are combined with a text of `fieldsV1`, without reading more of it than the set asks for.
//!
//! What managers own is kept as text. Most writes change few fields, so what is beside these is passed over or copied as it
//! stands.

use std::cmp::Ordering;

use super::element::PathElement;
use super::set::{FieldSet, Node};
use super::text::{SELF_MEMBER, is_open, parse, write_node};

/// What is made of the fields of the text and those of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combination {
    /// Those in either.
    Union,
    /// Those of the text that are not in the set. Taking away a field leaves what is below it.
    Difference,
    /// Those in both.
    Intersection,
}

impl Combination {
    fn has(self, text: bool, set: bool) -> bool {
        match self {
            Self::Union => text || set,
            Self::Difference => text && !set,
            Self::Intersection => text && set,
        }
    }
}

/// The text of the combination.
///
/// `None` for a text that is not as sets are written, as far as it was looked at; then it has to be read.
pub(super) fn combine(text: &str, set: &FieldSet, how: Combination) -> Option<String> {
    let mut combiner = Combiner { how, rest: text, out: String::with_capacity(text.len()) };
    combiner.level(set.nodes(), Root::Yes)?;
    combiner.rest.is_empty().then_some(combiner.out)
}

/// Whether an object is that of the whole set, which nobody owns.
enum Root {
    Yes,
    /// Otherwise whether the set has the field itself as a member.
    No(bool),
}

struct Combiner<'t> {
    how: Combination,
    /// What of the text is not read yet.
    rest: &'t str,
    out: String,
}

impl<'t> Combiner<'t> {
    /// Combines the object that comes next with these nodes. Returns whether anything is left of it.
    fn level(&mut self, nodes: &[Node], root: Root) -> Option<bool> {
        let start = self.out.len();
        self.expect(b'{')?;
        let stated = match self.rest.strip_prefix(SELF_MEMBER) {
            Some(rest) => {
                self.rest = rest;
                // With nothing below it, an empty object would say so.
                self.expect(b',')?;
                true
            }
            None => false,
        };
        let member = match root {
            Root::Yes => false,
            Root::No(theirs) => self.how.has(stated || self.rest.starts_with('}'), theirs),
        };
        self.out.push('{');
        if member {
            self.out.push_str(SELF_MEMBER);
        }
        let head = self.out.len();
        self.members(nodes)?;
        let has_more = self.out.len() > head;
        if member && !has_more {
            self.out.truncate(start + 1);
        }
        self.out.push('}');
        Some(member || has_more)
    }

    fn members(&mut self, nodes: &[Node]) -> Option<()> {
        if nodes.is_empty() {
            return self.others();
        }
        let mut nodes = nodes.iter().peekable();
        let mut last: Option<Name<'_>> = None;
        while !self.eat(b'}') {
            if last.is_some() {
                self.expect(b',')?;
            }
            let begin = self.rest;
            let raw = self.string()?;
            self.expect(b':')?;
            let name = Name::read(raw)?;
            if last.as_ref().is_some_and(|last| last.cmp(&name).is_ge()) {
                // Out of order, so that a node may have been passed already.
                return None;
            }
            while let Some(node) = nodes.next_if(|node| name.cmp_element(&node.element).is_gt()) {
                self.only_in_set(node);
            }
            match nodes.next_if(|node| name.cmp_element(&node.element).is_eq()) {
                Some(node) => self.in_both(raw, node)?,
                None => {
                    self.skip()?;
                    self.only_in_text(&begin[..begin.len() - self.rest.len()]);
                }
            }
            last = Some(name);
        }
        nodes.for_each(|node| self.only_in_set(node));
        Some(())
    }

    fn in_both(&mut self, raw: &str, node: &Node) -> Option<()> {
        let start = self.out.len();
        self.separate();
        self.out.extend(["\"", raw, "\":"]);
        if !self.level(node.below.nodes(), Root::No(node.member))? {
            self.out.truncate(start);
        }
        Some(())
    }

    fn only_in_set(&mut self, node: &Node) {
        if self.how.has(false, true) {
            write_node(node, &mut self.out);
        }
    }

    fn only_in_text(&mut self, members: &str) {
        if self.how.has(true, false) && !members.is_empty() {
            self.separate();
            self.out.push_str(members);
        }
    }

    /// All members of an object of which the set has none.
    fn others(&mut self) -> Option<()> {
        let begin = self.rest;
        self.skip_to_end()?;
        let members = &begin[..begin.len() - self.rest.len()];
        self.expect(b'}')?;
        self.only_in_text(members);
        Some(())
    }

    fn separate(&mut self) {
        if !is_open(&self.out) {
            self.out.push(',');
        }
    }

    /// Passes over a byte, if it comes next.
    fn eat(&mut self, wanted: u8) -> bool {
        let comes = self.rest.as_bytes().first() == Some(&wanted);
        if comes {
            self.rest = &self.rest[1..];
        }
        comes
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.eat(wanted).then_some(())
    }

    /// A string, as it stands between its quotes.
    fn string(&mut self) -> Option<&'t str> {
        let text = self.rest.strip_prefix('"')?;
        let end = end_of_string(text.as_bytes())?;
        self.rest = &text[end + 1..];
        Some(&text[..end])
    }

    /// Passes over an object.
    fn skip(&mut self) -> Option<()> {
        self.expect(b'{')?;
        self.skip_to_end()?;
        self.expect(b'}')
    }

    /// Passes over the members of an object.
    fn skip_to_end(&mut self) -> Option<()> {
        let (bytes, mut at, mut depth) = (self.rest.as_bytes(), 0, 0_usize);
        loop {
            match bytes.get(at)? {
                b'}' if depth == 0 => break,
                b'}' => depth -= 1,
                b'{' => depth += 1,
                b'"' => at += 1 + end_of_string(&bytes[at + 1..])?,
                b':' | b',' => {}
                _ => return None,
            }
            at += 1;
        }
        self.rest = &self.rest[at..];
        Some(())
    }
}

/// Where the quote is that ends a string.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if text[at] == b'"' {
            return Some(at);
        }
        // What is escaped ends nothing.
        at += 2;
        if at > text.len() {
            return None;
        }
    }
}

/// The name of a member: a path element, read no further than has to be.
enum Name<'t> {
    Field(&'t str),
    Other(PathElement),
}

impl<'t> Name<'t> {
    fn read(raw: &'t str) -> Option<Self> {
        if raw.contains('\\') {
            let name: String = serde_json::from_str(&format!("\"{raw}\"")).ok()?;
            return parse(&name).ok()?.map(Self::Other);
        }
        match raw.strip_prefix("f:") {
            Some(name) => Some(Self::Field(name)),
            None => parse(raw).ok()?.map(Self::Other),
        }
    }

    fn cmp_element(&self, element: &PathElement) -> Ordering {
        match self {
            Self::Field(name) => element.cmp_field(name).reverse(),
            Self::Other(name) => name.cmp(element),
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (left, Self::Other(right)) => left.cmp_element(right),
            (Self::Other(left), Self::Field(right)) => left.cmp_field(right),
        }
    }
}
