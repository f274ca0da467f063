//! Iterators of a tree: a borrowing one over items, an owned one over leaves.
//!
//! Both start at a key or a rank without visiting earlier items. A tree of ordinary depth needs no allocation.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::node::{Inner, Node};
use super::{CowTree, Item, Leaf};

/// The depth of a tree that needs no allocation, enough for 8 * 32^5 leaves.
const INLINE_DEPTH: usize = 6;

/// Items of a tree in key order.
pub struct Iter<'a, T: Item> {
    /// The path from the root: each inner node and the child to visit next.
    above: SmallVec<[(&'a Inner<T>, usize); INLINE_DEPTH]>,
    items: std::slice::Iter<'a, T>,
    left: usize,
}

impl<'a, T: Item> Iter<'a, T> {
    pub(super) fn new(root: &'a Node<T>, from: usize, to: usize) -> Self {
        let mut iter = Self { above: SmallVec::new(), items: [].iter(), left: to.saturating_sub(from) };
        if iter.left > 0 {
            iter.seek(root, from);
        }
        iter
    }

    fn seek(&mut self, root: &'a Node<T>, rank: usize) {
        let mut node = root;
        let mut rank = rank;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.items = leaf.items()[rank.min(leaf.items().len())..].iter();
                    return;
                }
                Node::Inner(inner) => {
                    let Some((at, rest)) = inner.child_index_at(rank) else { return };
                    self.above.push((inner, at + 1));
                    node = &inner.children()[at];
                    rank = rest;
                }
            }
        }
    }

    fn next_leaf(&mut self) -> Option<()> {
        loop {
            let (inner, at) = self.above.last_mut()?;
            let inner: &'a Inner<T> = inner;
            match inner.children().get(*at) {
                None => {
                    self.above.pop();
                }
                Some(child) => {
                    *at += 1;
                    self.seek(child, 0);
                    return Some(());
                }
            }
        }
    }
}

impl<'a, T: Item> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        if self.left == 0 {
            return None;
        }
        loop {
            if let Some(item) = self.items.next() {
                self.left -= 1;
                return Some(item);
            }
            self.next_leaf()?;
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T: Item> ExactSizeIterator for Iter<'_, T> {}

/// The leaves of a range of ranks, in order. It owns its tree, so it can be held across awaits.
#[derive(Clone)]
pub struct LeafCursor<T: Item> {
    tree: CowTree<T>,
    next: usize,
    end: usize,
}

impl<T: Item> LeafCursor<T> {
    pub(super) const fn new(tree: CowTree<T>, from: usize, to: usize) -> Self {
        Self { tree, next: from, end: to }
    }

    /// The number of items in the remaining leaves.
    pub const fn remaining(&self) -> usize {
        self.end.saturating_sub(self.next)
    }
}

impl<T: Item> Iterator for LeafCursor<T> {
    type Item = LeafSlice<T>;

    fn next(&mut self) -> Option<LeafSlice<T>> {
        if self.next >= self.end {
            return None;
        }
        let (leaf, from) = self.tree.leaf_at(self.next)?;
        let to = leaf.items().len().min(from + self.end - self.next);
        let slice = LeafSlice { leaf: leaf.clone(), from, to };
        self.next += to - from;
        Some(slice)
    }
}

/// The keys of a range of ranks, in order. It owns its tree, so it can be held across awaits.
///
/// Cost: each key is assembled from its leaf in one reused buffer.
pub struct KeyCursor<T: Item> {
    leaves: LeafCursor<T>,
    leaf: Option<LeafSlice<T>>,
    /// The index of the next key in the leaf.
    next: usize,
    key: Vec<u8>,
}

impl<T: Item> KeyCursor<T> {
    pub(super) const fn new(leaves: LeafCursor<T>) -> Self {
        Self { leaves, leaf: None, next: 0, key: Vec::new() }
    }

    /// The next key.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        if self.leaf.as_ref().is_none_or(|leaf| leaf.places().end == self.next) {
            self.leaf = self.leaves.next();
            self.next = self.leaf.as_ref()?.places().start;
        }
        self.key.clear();
        self.leaf.as_ref()?.leaf().keys().write(self.next, &mut self.key);
        self.next += 1;
        Some(&self.key)
    }

    /// The number of remaining keys.
    pub fn remaining(&self) -> usize {
        self.leaves.remaining() + self.leaf.as_ref().map_or(0, |leaf| leaf.places().end - self.next)
    }
}

/// A leaf, or the part of it within a range.
pub struct LeafSlice<T: Item> {
    leaf: Arc<Leaf<T>>,
    from: usize,
    to: usize,
}

impl<T: Item> LeafSlice<T> {
    /// The items of the leaf within the range.
    pub fn items(&self) -> &[T] {
        &self.leaf.items()[self.from..self.to]
    }

    /// The indexes of these items in the leaf.
    pub const fn places(&self) -> Range<usize> {
        self.from..self.to
    }

    /// Returns true if the range contains all items of the leaf.
    pub fn is_whole(&self) -> bool {
        self.from == 0 && self.to == self.leaf.items().len()
    }

    /// Returns a leaf with exactly these items.
    pub(super) fn into_leaf(self) -> Arc<Leaf<T>> {
        if self.is_whole() { self.leaf } else { Arc::new(self.leaf.part(self.places())) }
    }

    /// The leaf itself, with all its items.
    pub const fn leaf(&self) -> &Arc<Leaf<T>> {
        &self.leaf
    }
}
