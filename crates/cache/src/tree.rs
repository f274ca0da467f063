//! A counted, copy-on-write B+tree: items ordered by byte strings, whose clones cost one pointer.
//!
//! Every node has the sums of the number and of the weight (bytes) of the items below it. So a rank, an access to the
//! n-th item and the size of a range take O(log n). On the path of a write, nodes that a clone shares are copied, and
//! others are changed in place. Each leaf has a cell for data derived from its items. A change of the leaf clears it.
//! The tree must not know the items.

mod diff;
mod iter;
mod keys;
mod node;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use diff::Diff;
pub use iter::{Iter, KeyCursor, LeafCursor, LeafSlice};
pub use keys::Keys;
use node::Node;
pub use node::{Leaf, Sums};

/// The maximum number of items in a leaf.
pub const LEAF_MAX: usize = 32;
/// The maximum number of children of an inner node.
pub const INNER_MAX: usize = 32;
/// A node with less than the maximum divided by this number is joined with a neighbour.
const UNDERFULL: usize = 4;
/// The fill of nodes from [`CowTree::from_sorted`] in quarters. It leaves space for some inserts before the first
/// split.
const FILL_QUARTERS: usize = 3;

/// An item of a [`CowTree`]. Cloning an item should be as cheap as cloning an `Arc`.
pub trait Item: Clone {
    /// Data derived from all items of a leaf and kept until the leaf changes.
    type Derived: Default;

    /// The size of this item in bytes, which the tree adds up. It must never change.
    fn weight(&self) -> u64;
}

/// For trees that are only sets of keys.
impl Item for () {
    type Derived = ();

    fn weight(&self) -> u64 {
        0
    }
}

/// A map from byte strings to items. See the text of the module.
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
        Self { root: Node::Leaf(Arc::new(Leaf::new(Keys::default(), Vec::new()))) }
    }
}

impl<T: Item> CowTree<T> {
    /// Builds a tree of well-filled nodes from items with strictly ascending keys. O(n).
    pub fn from_sorted<K: AsRef<[u8]>>(items: impl IntoIterator<Item = (K, T)>) -> Self {
        let fill = LEAF_MAX * FILL_QUARTERS / 4;
        let mut items = items.into_iter().peekable();
        Self::of_leaves(std::iter::from_fn(move || {
            items.peek()?;
            let (mut keys, mut leaf) = (Vec::with_capacity(fill), Vec::with_capacity(fill));
            for (key, item) in items.by_ref().take(fill) {
                keys.push(key);
                leaf.push(item);
            }
            leaf.shrink_to_fit();
            debug_assert!(keys.is_sorted_by(|a, b| a.as_ref() < b.as_ref()), "keys must ascend");
            Some(Arc::new(Leaf::new(Keys::new(&keys), leaf)))
        }))
    }

    /// Builds a tree of these leaves. No leaf may be empty, and the keys must strictly ascend.
    fn of_leaves(leaves: impl Iterator<Item = Arc<Leaf<T>>>) -> Self {
        let mut level: Vec<node::Sibling<T>> = Vec::new();
        let mut last = Vec::new();
        for leaf in leaves {
            let keys = leaf.keys();
            let separator = if level.is_empty() { Vec::new() } else { node::separator(&last, &keys.get(0)) };
            last = keys.get(keys.len() - 1);
            level.push((separator, Node::Leaf(leaf)));
        }
        Self { root: Node::stack(level, INNER_MAX * FILL_QUARTERS / 4).unwrap_or_else(|| Self::default().root) }
    }

    /// Returns true if both are clones of one tree, without a change since.
    pub fn is_same(&self, other: &Self) -> bool {
        self.root.is_same(&other.root)
    }

    /// The number of items. O(1).
    pub fn len(&self) -> usize {
        self.root.sums().count
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sum of the weights of all items. O(1).
    pub fn weight(&self) -> u64 {
        self.root.sums().weight
    }

    /// The item with this key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&T> {
        self.root.get(key.as_ref())
    }

    /// Adds an item. If there is an item with this key, replaces and returns it.
    pub fn insert(&mut self, key: impl AsRef<[u8]>, item: T) -> Option<T> {
        let grown = self.root.insert(key.as_ref(), item, true);
        if let Some(sibling) = grown.sibling {
            self.root = Node::join(self.root.clone(), sibling);
        }
        grown.replaced
    }

    /// Removes and returns the item with this key. Copies nothing if there is none.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Option<T> {
        self.get(&key)?;
        let removed = self.root.remove(key.as_ref());
        while let Some(only) = self.root.only_child() {
            self.root = only;
        }
        removed
    }

    /// Replaces the items with ranks in `from..to`. The new keys must strictly ascend between those of the adjacent
    /// items.
    /// Cost: O(number of leaves). Unchanged items are not visited, except the items of the leaves at both ends.
    pub fn splice<K: AsRef<[u8]>>(&mut self, from: usize, to: usize, items: impl IntoIterator<Item = (K, T)>) {
        let between = Self::from_sorted(items);
        let parts = [self.leaves(0, from), between.leaves(0, between.len()), self.leaves(to, self.len())];
        *self = Self::of_leaves(parts.into_iter().flatten().map(LeafSlice::into_leaf));
    }

    /// The number and the weight of the items with keys below `key`.
    pub fn before(&self, key: impl AsRef<[u8]>) -> Sums {
        self.root.before(key.as_ref())
    }

    /// The n-th item in key order, from 0.
    pub fn nth(&self, rank: usize) -> Option<&T> {
        self.leaf_at(rank).map(|(leaf, at)| &leaf.items()[at])
    }

    /// The items with ranks in `from..to`, in key order. Ranks after the last item are ignored.
    pub fn iter_ranks(&self, from: usize, to: usize) -> Iter<'_, T> {
        Iter::new(&self.root, from, to.min(self.len()))
    }

    /// All items in key order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.iter_ranks(0, self.len())
    }

    /// The leaves that have the items with ranks in `from..to`, as an owned iterator.
    pub fn leaves(&self, from: usize, to: usize) -> LeafCursor<T> {
        LeafCursor::new(self.clone(), from, to.min(self.len()))
    }

    /// The keys of these ranks.
    pub fn keys(&self, from: usize, to: usize) -> KeyCursor<T> {
        KeyCursor::new(self.leaves(from, to))
    }

    /// The leaf with the item of this rank, and the item's index in it.
    fn leaf_at(&self, rank: usize) -> Option<(&Arc<Leaf<T>>, usize)> {
        self.root.leaf_at(rank)
    }
}
