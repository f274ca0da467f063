//! Receivers of the fields in a walk. One builds a set of fields, the other the text of `fieldsV1`.
//!
//! A walk passes the fields in the order of sets, so receivers need not sort. A field that is neither a member nor has
//! members below it is dropped.

use super::element_ref::PathElementRef;
use super::set::{FieldSet, Node};
use super::text::{SELF_MEMBER, is_open, write_step};

/// Receives the fields of a walk, from the root down.
pub(super) trait Sink {
    /// Begins a field. `member` is true if it is a member itself. Fields that begin before it is closed are below it.
    fn open(&mut self, step: PathElementRef<'_>, member: bool);
    /// Ends the field that was begun last.
    fn close(&mut self);
}

/// Builds a set.
#[derive(Default)]
pub(super) struct SetSink {
    /// The nodes of the current level. For each open field, also the nodes before it on its level.
    nodes: Vec<Node>,
    open: Vec<(Node, Vec<Node>)>,
}

impl SetSink {
    pub(super) fn finish(self) -> FieldSet {
        FieldSet::from_nodes(self.nodes)
    }
}

impl Sink for SetSink {
    fn open(&mut self, step: PathElementRef<'_>, member: bool) {
        let node = Node { element: step.to_element(), member, below: FieldSet::new() };
        self.open.push((node, std::mem::take(&mut self.nodes)));
    }

    fn close(&mut self) {
        if let Some((mut node, beside)) = self.open.pop() {
            node.below = FieldSet::from_nodes(std::mem::replace(&mut self.nodes, beside));
            self.nodes.extend(node.kept());
        }
    }
}

/// Builds the text of `fieldsV1`.
pub(super) struct TextSink {
    text: String,
    /// The start of each open field, and true if it is a member.
    open: Vec<(usize, bool)>,
}

impl TextSink {
    /// An empty sink. `size` is the expected length of the text in bytes.
    pub(super) fn new(size: usize) -> Self {
        let mut text = String::with_capacity(size);
        text.push('{');
        Self { text, open: Vec::with_capacity(16) }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

impl Sink for TextSink {
    fn open(&mut self, step: PathElementRef<'_>, member: bool) {
        let start = self.text.len();
        if !is_open(&self.text) {
            self.text.push(',');
        } else if self.open.last().is_some_and(|(_, member)| *member) {
            self.text.push_str(SELF_MEMBER);
            self.text.push(',');
        }
        write_step(step, &mut self.text);
        self.text.push_str(":{");
        self.open.push((start, member));
    }

    fn close(&mut self) {
        let Some((start, member)) = self.open.pop() else { return };
        if member || !is_open(&self.text) {
            self.text.push('}');
        } else {
            self.text.truncate(start);
        }
    }
}
