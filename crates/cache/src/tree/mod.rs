//! A counted, copy-on-write B+tree: an ordered set of items whose clones cost one pointer.
//!
//! Every node sums the number and the weight (bytes) of the items below it, so a rank, a jump to the n-th item and the
//! size of a range take O(log n). A write copies only the nodes on its path that a clone still shares; the others it
//! changes in place. Each leaf has a cell for what was computed from its items, which a change of the leaf empties.
//! Nothing here knows what the items are.

mod iter;
mod node;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::sync::Arc;

pub use iter::{Iter, LeafCursor, LeafSlice};
use node::Node;
pub use node::{Leaf, Sums};

/// The most items in a leaf.
pub const LEAF_MAX: usize = 64;
/// The most children of an inner node.
pub const INNER_MAX: usize = 32;
/// A node with fewer items or children than a quarter of the most is joined with a neighbour.
const UNDERFULL: usize = 4;
/// How full [`CowTree::from_sorted`] makes nodes, in quarters: room for some inserts before the first split.
const FILL_QUARTERS: usize = 3;

/// What a [`CowTree`] holds. Cloning an item should be as cheap as cloning an `Arc`.
pub trait Item: Clone {
    /// What items are ordered by. No two items in a tree have equal keys.
    type Key: Ord + ?Sized;
    /// A copy of a key that inner nodes keep.
    type Separator: Borrow<Self::Key> + Clone;
    /// What may be computed from all items of a leaf and kept beside them until the leaf changes.
    type Derived: Default;

    /// The key.
    fn key(&self) -> &Self::Key;
    /// The key, for an inner node.
    fn separator(&self) -> Self::Separator;
    /// The size of this item in bytes, in whatever measure the tree sums. Never changes.
    fn weight(&self) -> u64;
}

/// An ordered set of items; see the module's text.
pub struct CowTree<T: Item> {
    root: Node<T>,
}

impl<T: Item> Clone for CowTree<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone() }
    }
}

impl<T: Item> Default for CowTree<T> {
    fn default() -> Self {
        Self { root: Node::Leaf(Arc::new(Leaf::new(Vec::new()))) }
    }
}

impl<T: Item> CowTree<T> {
    /// Builds a tree from items whose keys strictly ascend, with well filled nodes. O(n).
    pub fn from_sorted(items: impl IntoIterator<Item = T>) -> Self {
        let fill = LEAF_MAX * FILL_QUARTERS / 4;
        let mut level = Vec::new();
        let mut leaf = Vec::with_capacity(fill);
        for item in items {
            debug_assert!(leaf.last().is_none_or(|last: &T| last.key() < item.key()), "items must ascend");
            leaf.push(item);
            if leaf.len() == fill {
                let full = std::mem::replace(&mut leaf, Vec::with_capacity(fill));
                level.push((full[0].separator(), Node::Leaf(Arc::new(Leaf::new(full)))));
            }
        }
        if !leaf.is_empty() {
            leaf.shrink_to_fit();
            level.push((leaf[0].separator(), Node::Leaf(Arc::new(Leaf::new(leaf)))));
        }
        Self { root: Node::stack(level, INNER_MAX * FILL_QUARTERS / 4).unwrap_or_else(|| Self::default().root) }
    }

    /// How many items there are. O(1).
    pub fn len(&self) -> usize {
        self.root.sums().count
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weights of all items, summed. O(1).
    pub fn weight(&self) -> u64 {
        self.root.sums().weight
    }

    /// The item with this key.
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        self.root.get(key)
    }

    /// Adds an item, or replaces the one with an equal key and returns it.
    pub fn insert(&mut self, item: T) -> Option<T> {
        let grown = self.root.insert(item, true);
        if let Some((separator, sibling)) = grown.sibling {
            self.root = Node::join(self.root.clone(), separator, sibling);
        }
        grown.replaced
    }

    /// Takes the item with this key out. Copies nothing when there is none.
    pub fn remove(&mut self, key: &T::Key) -> Option<T> {
        self.get(key)?;
        let removed = self.root.remove(key);
        while let Some(only) = self.root.only_child() {
            self.root = only;
        }
        removed
    }

    /// The number and the weight of the items with keys below `key`.
    pub fn before(&self, key: &T::Key) -> Sums {
        self.root.before(key)
    }

    /// The n-th item in key order, from 0.
    pub fn nth(&self, rank: usize) -> Option<&T> {
        self.root.nth(rank)
    }

    /// The items with ranks in `from..to`, in key order. Ranks behind the last item are ignored.
    pub fn iter_ranks(&self, from: usize, to: usize) -> Iter<'_, T> {
        Iter::new(&self.root, from, to.min(self.len()))
    }

    /// All items in key order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.iter_ranks(0, self.len())
    }

    /// The leaves that hold the items with ranks in `from..to`, as an iterator that owns what it needs.
    pub fn leaves(&self, from: usize, to: usize) -> LeafCursor<T> {
        LeafCursor::new(self.clone(), from, to.min(self.len()))
    }

    /// The leaf that holds the item with this rank, and where in the leaf it is.
    fn leaf_at(&self, rank: usize) -> Option<(&Arc<Leaf<T>>, usize)> {
        self.root.leaf_at(rank)
    }
}
