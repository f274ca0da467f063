//! The difference between two trees, without visiting the nodes that they share.
//!
//! Trees with a common origin share most nodes. The difference walks both in parallel and skips a shared node as a
//! whole. The cost depends on the number of changed leaves and not on the size of the trees.

use super::node::{Leaf, Node};
use super::{CowTree, Item};

/// The items that differ between two trees, in key order: the old and the new item of each key.
pub struct Diff<'a, T: Item> {
    old: Side<'a, T>,
    new: Side<'a, T>,
    same: fn(&T, &T) -> bool,
}

/// One of the two trees.
struct Side<'a, T: Item> {
    /// The remaining nodes, the next one last.
    ahead: Vec<&'a Node<T>>,
    /// The current leaf, and the index of the next item in it.
    leaf: Option<(&'a Leaf<T>, usize)>,
    /// The key of that item.
    key: Vec<u8>,
}

impl<'a, T: Item> Diff<'a, T> {
    /// Creates the difference of two trees. `same` returns true for items that are equal.
    pub fn new(old: &'a CowTree<T>, new: &'a CowTree<T>, same: fn(&T, &T) -> bool) -> Self {
        Self { old: Side::new(old), new: Side::new(new), same }
    }
}

impl<'a, T: Item> Iterator for Diff<'a, T> {
    type Item = (Option<&'a T>, Option<&'a T>);

    fn next(&mut self) -> Option<Self::Item> {
        let Self { old, new, same } = self;
        loop {
            match (old.leaf.is_some(), new.leaf.is_some()) {
                (false, false) => match (old.ahead.last(), new.ahead.last()) {
                    (None, None) => return None,
                    (Some(before), Some(after)) => {
                        let (above, below) = (before.height(), after.height());
                        if before.is_same(after) {
                            old.ahead.pop();
                            new.ahead.pop();
                            continue;
                        }
                        if above >= below {
                            old.open();
                        }
                        if below >= above {
                            new.open();
                        }
                    }
                    (Some(_), None) => old.open(),
                    (None, Some(_)) => new.open(),
                },
                (true, false) if new.ahead.is_empty() => return old.take().map(|item| (Some(item), None)),
                (false, true) if old.ahead.is_empty() => return new.take().map(|item| (None, Some(item))),
                (true, false) => new.open(),
                (false, true) => old.open(),
                (true, true) => match old.key.cmp(&new.key) {
                    std::cmp::Ordering::Less => return old.take().map(|item| (Some(item), None)),
                    std::cmp::Ordering::Greater => return new.take().map(|item| (None, Some(item))),
                    std::cmp::Ordering::Equal => {
                        let (before, after) = (old.take()?, new.take()?);
                        if !same(before, after) {
                            return Some((Some(before), Some(after)));
                        }
                    }
                },
            }
        }
    }
}

impl<'a, T: Item> Side<'a, T> {
    fn new(tree: &'a CowTree<T>) -> Self {
        Self { ahead: vec![&tree.root], leaf: None, key: Vec::new() }
    }

    /// Moves to the first item below the next node.
    fn open(&mut self) {
        match self.ahead.pop() {
            Some(Node::Inner(inner)) => self.ahead.extend(inner.children().iter().rev()),
            Some(Node::Leaf(leaf)) => self.stand(leaf, 0),
            None => {}
        }
    }

    /// Moves to an item of a leaf, or past its last item.
    fn stand(&mut self, leaf: &'a Leaf<T>, at: usize) {
        self.leaf = (at < leaf.items().len()).then_some((leaf, at));
        if self.leaf.is_some() {
            self.key.clear();
            leaf.keys().write(at, &mut self.key);
        }
    }

    fn take(&mut self) -> Option<&'a T> {
        let (leaf, at) = self.leaf?;
        self.stand(leaf, at + 1);
        leaf.items().get(at)
    }
}
