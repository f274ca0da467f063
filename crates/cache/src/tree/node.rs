//! Nodes of the tree: search, insert with splits, remove with joins.
//!
//! Invariants, which the tests check:
//! - All leaves have the same depth.
//! - The sums of a node are the sums of its items.
//! - A separator is above every key on its left and not above any key on its right.
//! - No child of an inner node is empty.
//! - A removal leaves no underfull node that has a neighbour.

use std::ops::Range;
use std::sync::Arc;

use super::keys::{Keys, common};
use super::{INNER_MAX, Item, LEAF_MAX, UNDERFULL};

/// The number and the weight of some items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of items.
    pub count: usize,
    /// The sum of their weights.
    pub weight: u64,
}

impl Sums {
    const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.weight += other.weight;
    }

    const fn take(&mut self, other: Self) {
        self.count -= other.count;
        self.weight -= other.weight;
    }
}

pub(super) enum Node<T: Item> {
    Leaf(Arc<Leaf<T>>),
    Inner(Arc<Inner<T>>),
}

/// Consecutive items, and the data derived from them.
pub struct Leaf<T: Item> {
    /// The keys of the items. Copies of a leaf share them, since most writes replace an item.
    keys: Keys,
    items: Vec<T>,
    weight: u64,
    derived: T::Derived,
}

pub(super) struct Inner<T: Item> {
    children: Vec<Node<T>>,
    /// The separators. The i-th is between `children[i]` and `children[i + 1]`. Copies of a node share them, since few
    /// writes change them.
    separators: Keys,
    sums: Sums,
}

/// The right half of a split node, and the separator before it.
pub(super) type Sibling<T> = (Vec<u8>, Node<T>);

/// The result of an insert into a node.
pub(super) struct InsertResult<T: Item> {
    pub(super) replaced: Option<T>,
    pub(super) sibling: Option<Sibling<T>>,
}

impl<T: Item> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(leaf.clone()),
            Self::Inner(inner) => Self::Inner(inner.clone()),
        }
    }
}

impl<T: Item> Node<T> {
    pub(super) fn sums(&self) -> Sums {
        match self {
            Self::Leaf(leaf) => leaf.sums(),
            Self::Inner(inner) => inner.sums,
        }
    }

    /// Returns true if both are the same node in memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(one), Self::Leaf(other)) => Arc::ptr_eq(one, other),
            (Self::Inner(one), Self::Inner(other)) => Arc::ptr_eq(one, other),
            (Self::Leaf(_), Self::Inner(_)) | (Self::Inner(_), Self::Leaf(_)) => false,
        }
    }

    /// The number of levels from this node to the leaves.
    pub(super) fn height(&self) -> usize {
        let mut node = self;
        let mut height = 0;
        while let Self::Inner(inner) = node {
            height += 1;
            let Some(child) = inner.children.first() else { break };
            node = child;
        }
        height
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => return leaf.keys.find(key).ok().map(|at| &leaf.items[at]),
                Self::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    pub(super) fn before(&self, key: &[u8]) -> Sums {
        let mut sums = Sums::default();
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => {
                    let at = leaf.keys.find(key).unwrap_or_else(|at| at);
                    sums.add(Sums { count: at, weight: leaf.items[..at].iter().map(Item::weight).sum() });
                    return sums;
                }
                Self::Inner(inner) => {
                    let child = inner.child_of(key);
                    inner.children[..child].iter().for_each(|child| sums.add(child.sums()));
                    node = &inner.children[child];
                }
            }
        }
    }

    pub(super) fn leaf_at(&self, rank: usize) -> Option<(&Arc<Leaf<T>>, usize)> {
        let mut node = self;
        let mut rank = rank;
        loop {
            match node {
                Self::Leaf(leaf) => return (rank < leaf.items.len()).then_some((leaf, rank)),
                Self::Inner(inner) => {
                    let (child, rest) = inner.child_index_at(rank)?;
                    node = &inner.children[child];
                    rank = rest;
                }
            }
        }
    }

    /// Inserts an item. `rightmost` is true for the last node of its level. If a full one grows at its end, its left
    /// half stays full.
    pub(super) fn insert(&mut self, key: &[u8], item: T, rightmost: bool) -> InsertResult<T> {
        match self {
            Self::Leaf(leaf) => Leaf::unshared(leaf).insert(key, item, rightmost),
            Self::Inner(inner) => Inner::unshared(inner).insert(key, item, rightmost),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<T> {
        match self {
            Self::Leaf(leaf) => Leaf::unshared(leaf).remove(key),
            Self::Inner(inner) => Inner::unshared(inner).remove(key),
        }
    }

    /// Returns the child of an inner node with a single child.
    pub(super) fn only_child(&self) -> Option<Self> {
        match self {
            Self::Leaf(_) => None,
            Self::Inner(inner) => match inner.children.as_slice() {
                [only] => Some(only.clone()),
                _ => None,
            },
        }
    }

    /// Creates a node above two neighbours.
    pub(super) fn join(left: Self, (separator, right): Sibling<T>) -> Self {
        Self::Inner(Arc::new(Inner::new(vec![left, right], Keys::new(&[separator]))))
    }

    /// Builds inner nodes of about `fill` children above a level of nodes with separators, until one is left. `None`
    /// for an empty level.
    pub(super) fn stack(mut level: Vec<Sibling<T>>, fill: usize) -> Option<Self> {
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len() / fill + 1);
            let mut nodes = level.into_iter().peekable();
            while let Some((first, node)) = nodes.next() {
                let (mut children, mut separators) = (vec![node], Vec::new());
                // The last inner node gets one more child if that child would otherwise be alone.
                while children.len() < fill || nodes.len() == 1 {
                    let Some((separator, node)) = nodes.next() else { break };
                    separators.push(separator);
                    children.push(node);
                }
                above.push((first, Self::Inner(Arc::new(Inner::new(children, Keys::new(&separators))))));
            }
            level = above;
        }
        level.pop().map(|(_, node)| node)
    }

    fn is_underfull(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.items.len() < LEAF_MAX / UNDERFULL,
            Self::Inner(inner) => inner.children.len() < INNER_MAX / UNDERFULL,
        }
    }

    /// Moves all items of `right` into `left`. Splits the result if it is too large for one node.
    fn rebalance(left: &mut Self, separator: &[u8], right: &Self) -> Option<Sibling<T>> {
        match (left, right) {
            (Self::Leaf(left), Self::Leaf(right)) => Leaf::unshared(left).absorb(right),
            (Self::Inner(left), Self::Inner(right)) => Inner::unshared(left).absorb(separator, right),
            (Self::Leaf(_), Self::Inner(_)) | (Self::Inner(_), Self::Leaf(_)) => {
                unreachable!("neighbours are at one depth")
            }
        }
    }
}

impl<T: Item> Leaf<T> {
    pub(super) fn new(keys: Keys, items: Vec<T>) -> Self {
        let weight = items.iter().map(Item::weight).sum();
        Self { keys, items, weight, derived: T::Derived::default() }
    }

    /// The items in key order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The keys of the items.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The data derived from these items.
    pub const fn derived(&self) -> &T::Derived {
        &self.derived
    }

    /// The number and the weight of the items.
    pub const fn sums(&self) -> Sums {
        Sums { count: self.items.len(), weight: self.weight }
    }

    /// A range of the items.
    pub(super) fn part(&self, places: Range<usize>) -> Self {
        Self::new(self.keys.part(places.clone()), self.items[places].to_vec())
    }

    /// Returns the leaf for a change. Copies it if it is shared. Clears derived data.
    fn unshared(this: &mut Arc<Self>) -> &mut Self {
        if Arc::get_mut(this).is_none() {
            let mut items = Vec::with_capacity(this.items.len() + 1);
            items.extend_from_slice(&this.items);
            let keys = this.keys.clone();
            *this = Arc::new(Self { keys, items, weight: this.weight, derived: T::Derived::default() });
        }
        let leaf = Arc::get_mut(this).expect("it was unshared or has just been made");
        leaf.derived = T::Derived::default();
        leaf
    }

    fn insert(&mut self, key: &[u8], item: T, rightmost: bool) -> InsertResult<T> {
        self.weight += item.weight();
        match self.keys.find(key) {
            Ok(at) => {
                let replaced = std::mem::replace(&mut self.items[at], item);
                self.weight -= replaced.weight();
                InsertResult { replaced: Some(replaced), sibling: None }
            }
            Err(at) => {
                self.keys = self.keys.with(at, key);
                self.items.insert(at, item);
                let over = self.items.len() > LEAF_MAX;
                InsertResult { replaced: None, sibling: over.then(|| self.split(at, rightmost)) }
            }
        }
    }

    /// Splits a leaf that has one item too many. The last insert was at index `at`.
    fn split(&mut self, at: usize, rightmost: bool) -> Sibling<T> {
        // Keys often arrive in ascending order. The left half then gets no more inserts and should stay well filled.
        self.split_at(match (at == LEAF_MAX, rightmost) {
            (true, true) => LEAF_MAX,
            (true, false) => LEAF_MAX - LEAF_MAX / UNDERFULL,
            (false, _) => LEAF_MAX / 2,
        })
    }

    /// Moves the items from `cut` on into a new leaf.
    fn split_at(&mut self, cut: usize) -> Sibling<T> {
        let separator = separator(&self.keys.get(cut - 1), &self.keys.get(cut));
        let right = Self::new(self.keys.part(cut..self.keys.len()), self.items.split_off(cut));
        self.keys = self.keys.part(0..cut);
        self.weight -= right.weight;
        (separator, Node::Leaf(Arc::new(right)))
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        let at = self.keys.find(key).ok()?;
        self.keys = self.keys.without(at);
        let removed = self.items.remove(at);
        self.weight -= removed.weight();
        Some(removed)
    }

    fn absorb(&mut self, right: &Self) -> Option<Sibling<T>> {
        self.keys = self.keys.joined(None, &right.keys);
        self.items.extend_from_slice(&right.items);
        self.weight += right.weight;
        (self.items.len() > LEAF_MAX).then(|| self.split_at(self.items.len() / 2))
    }
}

impl<T: Item> Inner<T> {
    fn new(children: Vec<Node<T>>, separators: Keys) -> Self {
        let mut inner = Self { children, separators, sums: Sums::default() };
        inner.sum_up();
        inner
    }

    fn unshared(this: &mut Arc<Self>) -> &mut Self {
        if Arc::get_mut(this).is_none() {
            *this = Arc::new(Self {
                children: this.children.clone(),
                separators: this.separators.clone(),
                sums: this.sums,
            });
        }
        Arc::get_mut(this).expect("it was unshared or has just been made")
    }

    pub(super) fn children(&self) -> &[Node<T>] {
        &self.children
    }

    fn sum_up(&mut self) {
        self.sums = Sums::default();
        for child in &self.children {
            self.sums.add(child.sums());
        }
    }

    fn child_of(&self, key: &[u8]) -> usize {
        self.separators.find(key).map_or_else(|at| at, |at| at + 1)
    }

    /// The index of the child that has the item of this rank, and the rank of the item in the child.
    pub(super) fn child_index_at(&self, rank: usize) -> Option<(usize, usize)> {
        let mut rank = rank;
        for (at, child) in self.children.iter().enumerate() {
            let count = child.sums().count;
            if rank < count {
                return Some((at, rank));
            }
            rank -= count;
        }
        None
    }

    fn insert(&mut self, key: &[u8], item: T, rightmost: bool) -> InsertResult<T> {
        let at = self.child_of(key);
        let last = at + 1 == self.children.len();
        self.sums.take(self.children[at].sums());
        let InsertResult { replaced, sibling } = self.children[at].insert(key, item, rightmost && last);
        self.sums.add(self.children[at].sums());
        if let Some((separator, node)) = sibling {
            self.sums.add(node.sums());
            self.adopt(at, &separator, node);
        }
        let sibling = (self.children.len() > INNER_MAX).then(|| {
            let len = self.children.len();
            self.split_at(if last { len - INNER_MAX / UNDERFULL } else { len / 2 })
        });
        InsertResult { replaced, sibling }
    }

    /// Inserts a node after the child at `at`.
    fn adopt(&mut self, at: usize, separator: &[u8], node: Node<T>) {
        self.children.insert(at + 1, node);
        self.separators = self.separators.with(at, separator);
    }

    /// Moves the children from `cut` on into a new node.
    fn split_at(&mut self, cut: usize) -> Sibling<T> {
        let right = Self::new(self.children.split_off(cut), self.separators.part(cut..self.separators.len()));
        let between = self.separators.get(cut - 1);
        self.separators = self.separators.part(0..cut - 1);
        self.sums.take(right.sums);
        (between, Node::Inner(Arc::new(right)))
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        let at = self.child_of(key);
        let removed = self.children[at].remove(key)?;
        self.sums.count -= 1;
        self.sums.weight -= removed.weight();
        if self.children[at].is_underfull() && self.children.len() > 1 {
            self.mend(at);
        }
        Some(removed)
    }

    /// Joins an underfull child with a neighbour, or distributes the items of both evenly.
    fn mend(&mut self, at: usize) {
        let left = at.saturating_sub(1);
        let right = self.children.remove(left + 1);
        let separator = self.separators.get(left);
        self.separators = self.separators.without(left);
        if let Some((separator, right)) = Node::rebalance(&mut self.children[left], &separator, &right) {
            self.adopt(left, &separator, right);
        }
    }

    fn absorb(&mut self, separator: &[u8], right: &Self) -> Option<Sibling<T>> {
        self.separators = self.separators.joined(Some(separator), &right.separators);
        self.children.extend_from_slice(&right.children);
        self.sums.add(right.sums);
        let len = self.children.len();
        (len > INNER_MAX).then(|| self.split_at(len / 2))
    }
}

/// The shortest key that is above `below` and not above `above`.
pub(super) fn separator(below: &[u8], above: &[u8]) -> Vec<u8> {
    above[..=common(below, above)].to_vec()
}

#[cfg(test)]
impl<T: Item> Node<T> {
    /// Checks the invariants of this node and all nodes below it. Returns its depth.
    pub(super) fn check(&self, root: bool) -> usize {
        match self {
            Self::Leaf(leaf) => {
                assert!(leaf.items.len() <= LEAF_MAX && leaf.items.len() == leaf.keys.len());
                assert!((1..leaf.keys.len()).all(|at| leaf.keys.get(at - 1) < leaf.keys.get(at)));
                assert_eq!(leaf.weight, leaf.items.iter().map(Item::weight).sum::<u64>());
                1
            }
            Self::Inner(inner) => {
                assert!(inner.children.len() <= INNER_MAX && (inner.children.len() > 1 || !root));
                assert_eq!(inner.children.len(), inner.separators.len() + 1);
                let mut sums = Sums::default();
                inner.children.iter().for_each(|child| sums.add(child.sums()));
                assert_eq!(sums, inner.sums);
                let key = |node: &Self, rank| {
                    let (leaf, at) = node.leaf_at(rank).expect("no child is empty");
                    leaf.keys.get(at)
                };
                for at in 0..inner.separators.len() {
                    let (left, right) = (&inner.children[at], &inner.children[at + 1]);
                    let separator = inner.separators.get(at);
                    assert!(key(left, left.sums().count - 1) < separator && separator <= key(right, 0));
                }
                let depths: Vec<usize> = inner.children.iter().map(|child| child.check(false)).collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]));
                depths[0] + 1
            }
        }
    }
}
