//! Sinks of a walk over owned fields, which go into a set of fields, or straight into the text of `fieldsV1`.
//!
//! Fields arrive in the order in which sets hold them, so neither has to sort. What is neither a member nor a parent of one leaves
//! no trace.

use super::element_ref::PathElementRef;
use super::set::{FieldSet, Node};
use super::text::{SELF_MEMBER, is_open, write_step};

/// Where a walk tells the fields that it finds, from the root down.
pub(super) trait Sink {
    /// A field, and whether it is a member itself. What is told until it is closed is below it.
    fn open(&mut self, step: PathElementRef<'_>, member: bool);
    /// The field that was opened last is over.
    fn close(&mut self);
}

/// Makes a set.
#[derive(Default)]
pub(super) struct SetSink {
    /// What is on the level that is told, and for each field that is open, what was on its level before it.
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

/// Makes the text of `fieldsV1`.
pub(super) struct TextSink {
    text: String,
    /// Where each open field begins, and whether it is a member.
    open: Vec<(usize, bool)>,
}

impl TextSink {
    /// `size` is about how long the text will be, in bytes.
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
