//! Finds the fields of a variable that a program reads.
//!
//! The module analyses the steps of a program and needs no values.

use super::{FoldNode, Node, Program};
use crate::stack::with_room;

/// A path of fields.
type FieldReads<'p> = Vec<&'p str>;

impl Program {
    /// The paths of the fields of a variable that the program reads. An empty path means the whole variable. Other
    /// fields do not affect the result, unless they are below one of these.
    pub fn reads(&self, variable: &str) -> Vec<Vec<&str>> {
        let mut reads = Reads { place: self.names.iter().position(|name| name == variable), ways: Vec::new() };
        reads.look(&self.root);
        reads.ways
    }
}

struct Reads<'p> {
    place: Option<usize>,
    ways: Vec<FieldReads<'p>>,
}

impl<'p> Reads<'p> {
    fn look(&mut self, node: &'p Node) {
        match self.way(node) {
            Some(way) if self.ways.contains(&way) => {}
            Some(way) => self.ways.push(way),
            None => with_room(|| self.look_below(node)),
        }
    }

    /// The path, if the step selects fields of the variable.
    fn way(&self, node: &'p Node) -> Option<FieldReads<'p>> {
        let (mut node, mut way) = (node, FieldReads::new());
        loop {
            match node {
                Node::Select(below, field) | Node::Has(below, field) | Node::OptionalSelect(below, field) => {
                    way.push(field);
                    node = below;
                }
                Node::Variable(place) if Some(*place) == self.place => {
                    way.reverse();
                    return Some(way);
                }
                _ => return None,
            }
        }
    }

    fn look_below(&mut self, node: &'p Node) {
        match node {
            Node::Constant(_) | Node::Variable(_) | Node::Local(_) => {}
            Node::Select(below, _)
            | Node::Has(below, _)
            | Node::OptionalSelect(below, _)
            | Node::NotFalse(below)
            | Node::Append(_, below) => self.look(below),
            Node::And(sides) | Node::Or(sides) => {
                self.look(&sides.0);
                self.look(&sides.1);
            }
            Node::Conditional(parts) => {
                self.look(&parts.0);
                self.look(&parts.1);
                self.look(&parts.2);
            }
            Node::Call(call) => call.args.iter().for_each(|arg| self.look(arg)),
            Node::Regex(call) => call.args.iter().for_each(|arg| self.look(arg)),
            Node::List(elements) => elements.iter().for_each(|(element, _)| self.look(element)),
            Node::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                self.look(key);
                self.look(value);
            }),
            Node::Message(_, fields) => fields.iter().for_each(|(_, value, _)| self.look(value)),
            Node::Insert(_, key, value) => {
                self.look(key);
                value.iter().for_each(|value| self.look(value));
            }
            Node::Fold(fold) => {
                let FoldNode { range, init, condition, step, result, .. } = &**fold;
                [range, init, condition, step, result].into_iter().for_each(|part| self.look(part));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Environment, Program, Type};

    #[test]
    fn field_paths_read_from_a_variable_are_found() {
        let check = |text: &str, expect: &[&str]| {
            let environment = Environment::kubernetes().with("object", Type::Dyn).with("other", Type::Dyn);
            let program = Program::compile(text, &environment).unwrap_or_else(|error| panic!("{error}"));
            let ways: Vec<String> = program.reads("object").iter().map(|way| way.join(".")).collect();
            assert_eq!(ways, expect, "{text}");
        };
        check("object.a.b > 2 && has(object.c.d) || object.a.b < 0", &["a.b", "c.d"]);
        check("object.items.all(item, item.name == object.name)", &["items", "name"]);
        check("object.a[object.b].c == 1", &["a", "b"]);
        check("object['a'] == 1", &[""]);
        check("object.?a.?b.orValue(1) == 1", &["a.b"]);
        check("[object.a, other.b].size() == 2", &["a"]);
        check("{'x': object.a}.x == (object.b ? object.c : object.d)", &["a", "b", "c", "d"]);
        check("object == other", &[""]);
        check("other.a == 1", &[]);
        check("object.a.matches('x') && [object].all(o, o.b == 1)", &["a", ""]);
    }
}
