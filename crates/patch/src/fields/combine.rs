//! Combines a set of fields with fields stored as `fieldsV1` text. Parses only those parts of the text that the set
//! affects.
//!
//! Owned fields are kept as text. Most writes change few fields, so most of the text is skipped or copied.

use std::cmp::Ordering;

use super::element::PathElement;
use super::scan::Scan;
use super::set::{FieldSet, Node};
use super::text::{SELF_MEMBER, is_open, parse, write_node};

/// The set operation. Its operands are the fields of the text and the fields of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combination {
    /// Fields in either.
    Union,
    /// Fields of the text that are not in the set. A removed field keeps the fields below it.
    Difference,
    /// Fields in both.
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
/// `None` if a part that was read has another form than this server writes. The caller must then parse the text.
pub(super) fn combine(text: &str, set: &FieldSet, how: Combination) -> Option<String> {
    let mut combiner = Combiner { how, text: Scan(text), out: String::with_capacity(text.len()) };
    combiner.level(set.nodes(), Root::Yes)?;
    combiner.text.0.is_empty().then_some(combiner.out)
}

/// The position of an object: the whole set, which is never a member, or a field.
#[derive(Clone, Copy)]
enum Root {
    Yes,
    /// A field. The flag is true if the set has the field itself as a member.
    No(bool),
}

struct Combiner<'t> {
    how: Combination,
    text: Scan<'t>,
    out: String,
}

impl Combiner<'_> {
    /// Combines the next object with these nodes. Returns false if the result is empty.
    fn level(&mut self, nodes: &[Node], root: Root) -> Option<bool> {
        let start = self.out.len();
        let stated = self.text.begin()?;
        let member = match root {
            Root::Yes => false,
            Root::No(theirs) => self.how.has(stated, theirs),
        };
        self.out.push('{');
        if member {
            self.out.push_str(SELF_MEMBER);
        }
        let head = self.out.len();
        if nodes.is_empty() {
            let members = self.text.skip_members()?;
            self.only_in_text(members);
        } else {
            self.members(nodes)?;
        }
        let has_more = self.out.len() > head;
        if member && !has_more {
            self.out.truncate(start + 1);
        }
        self.out.push('}');
        Some(member || has_more)
    }

    fn members(&mut self, nodes: &[Node]) -> Option<()> {
        let mut nodes = nodes.iter().peekable();
        let mut last: Option<Name<'_>> = None;
        let mut begin = self.text.0;
        while let Some(raw) = self.text.member(last.is_none())? {
            let name = Name::read(raw)?;
            if last.as_ref().is_some_and(|last| last.cmp(&name).is_ge()) {
                // Members are out of order, so a node may have been skipped.
                return None;
            }
            while let Some(node) = nodes.next_if(|node| name.cmp_element(&node.element).is_gt()) {
                self.only_in_set(node);
            }
            match nodes.next_if(|node| name.cmp_element(&node.element).is_eq()) {
                Some(node) => self.in_both(raw, node)?,
                None => {
                    self.text.skip()?;
                    let member = &begin[..begin.len() - self.text.0.len()];
                    self.only_in_text(member.strip_prefix(',').unwrap_or(member));
                }
            }
            last = Some(name);
            begin = self.text.0;
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

    fn separate(&mut self) {
        if !is_open(&self.out) {
            self.out.push(',');
        }
    }
}

/// Returns true if the texts prove that all fields of the first are in the second. Texts in another form than this
/// server writes prove nothing.
pub(super) fn shows(part: &str, whole: &str) -> bool {
    is_part(&mut Scan(part), &mut Scan(whole)).is_some()
}

fn is_part(part: &mut Scan<'_>, whole: &mut Scan<'_>) -> Option<()> {
    let (is_member, has_member) = (part.begin()?, whole.begin()?);
    if is_member && !has_member {
        return None;
    }
    let (mut is_first, mut is_first_of_whole) = (true, true);
    while let Some(name) = part.member(is_first)? {
        is_first = false;
        while whole.member(is_first_of_whole)?? != name {
            is_first_of_whole = false;
            whole.skip()?;
        }
        is_first_of_whole = false;
        is_part(part, whole)?;
    }
    whole.skip_members().map(drop)
}

/// The name of a member: a path element, parsed only as far as necessary.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_compare_as_subsets_like_their_sets() {
        let texts = [
            r#"{"f:a":{}}"#,
            r#"{"f:a":{},"f:b":{}}"#,
            r#"{"f:a":{".":{},"f:x":{}},"f:b":{}}"#,
            r#"{"f:a":{"f:x":{}},"f:b":{}}"#,
            r#"{"f:a":{"f:x":{},"f:y":{}},"f:c":{}}"#,
            r#"{"f:b":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}"#,
            r#"{"f:b":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}"#,
            r#"{"f:b":{".":{},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}},"f:c":{}}"#,
        ];
        let set = |text| FieldSet::from_text(text).unwrap();
        for part in texts {
            for whole in texts {
                assert_eq!(shows(part, whole), set(part).is_subset(&set(whole)), "{part} in {whole}");
            }
            let spaced = part.replace(':', ": ");
            assert!(!shows(&spaced, part) && !shows(part, &spaced), "{spaced}");
        }
    }
}
