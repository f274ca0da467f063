//! Nodes of the tree: search, insert with splits, remove with joins.
//!
//! Invariants, checked by the tests: all leaves are at one depth; the sums of a node are those of its items; a separator
//! is above every key on its left and not above any on its right; no child of an inner node is empty. A removal never
//! leaves a node underfull that has a neighbour.

use std::borrow::Borrow;
use std::sync::Arc;

use super::{INNER_MAX, Item, LEAF_MAX, UNDERFULL};

/// The number and the weight of some items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many items.
    pub count: usize,
    /// Their weights, summed.
    pub weight: u64,
}

impl Sums {
    const fn add(&mut self, other: Self) {
        self.count += other.count;
        self.weight += other.weight;
    }
}

pub(super) enum Node<T: Item> {
    Leaf(Arc<Leaf<T>>),
    Inner(Arc<Inner<T>>),
}

/// Items that stand next to each other, and what was derived from them.
pub struct Leaf<T: Item> {
    items: Vec<T>,
    weight: u64,
    derived: T::Derived,
}

pub(super) struct Inner<T: Item> {
    children: Vec<Node<T>>,
    /// `separators[i]` stands between `children[i]` and `children[i + 1]`.
    separators: Vec<T::Separator>,
    sums: Sums,
}

/// What an insert did to a node.
pub(super) struct Grown<T: Item> {
    pub(super) replaced: Option<T>,
    /// The right half, when the node was split.
    pub(super) sibling: Option<(T::Separator, Node<T>)>,
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

    pub(super) fn get(&self, key: &T::Key) -> Option<&T> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => return leaf.search(key).ok().map(|at| &leaf.items[at]),
                Self::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    pub(super) fn before(&self, key: &T::Key) -> Sums {
        let mut sums = Sums::default();
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => {
                    let at = leaf.search(key).unwrap_or_else(|at| at);
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

    pub(super) fn nth(&self, rank: usize) -> Option<&T> {
        self.leaf_at(rank).map(|(leaf, at)| &leaf.items[at])
    }

    pub(super) fn leaf_at(&self, rank: usize) -> Option<(&Arc<Leaf<T>>, usize)> {
        let mut node = self;
        let mut rank = rank;
        loop {
            match node {
                Self::Leaf(leaf) => return (rank < leaf.items.len()).then_some((leaf, rank)),
                Self::Inner(inner) => {
                    let (child, rest) = inner.child_at(rank)?;
                    node = child;
                    rank = rest;
                }
            }
        }
    }

    /// `rightmost`: no item of the tree is behind this node, so a full node that grows at its end is left full.
    pub(super) fn insert(&mut self, item: T, rightmost: bool) -> Grown<T> {
        match self {
            Self::Leaf(leaf) => Leaf::unshared(leaf).insert(item, rightmost),
            Self::Inner(inner) => Inner::unshared(inner).insert(item, rightmost),
        }
    }

    pub(super) fn remove(&mut self, key: &T::Key) -> Option<T> {
        match self {
            Self::Leaf(leaf) => Leaf::unshared(leaf).remove(key),
            Self::Inner(inner) => Inner::unshared(inner).remove(key),
        }
    }

    /// The child of an inner node that has no other.
    pub(super) fn only_child(&self) -> Option<Self> {
        match self {
            Self::Leaf(_) => None,
            Self::Inner(inner) => match inner.children.as_slice() {
                [only] => Some(only.clone()),
                _ => None,
            },
        }
    }

    /// A node above two neighbours.
    pub(super) fn join(left: Self, separator: T::Separator, right: Self) -> Self {
        Self::Inner(Arc::new(Inner::new(vec![left, right], vec![separator])))
    }

    /// Builds inner nodes of `fill` children above a level of nodes until one is left; `None` for an empty level.
    pub(super) fn stack(mut level: Vec<(T::Separator, Self)>, fill: usize) -> Option<Self> {
        while level.len() > 1 {
            let mut above = Vec::with_capacity(level.len() / fill + 1);
            let mut nodes = level.into_iter().peekable();
            while let Some((first, node)) = nodes.next() {
                let mut inner = Inner::new(vec![node], Vec::new());
                // The last inner node takes one more rather than leave it alone.
                while inner.children.len() < fill || nodes.len() == 1 {
                    let Some((separator, node)) = nodes.next() else { break };
                    inner.separators.push(separator);
                    inner.children.push(node);
                }
                inner.sum_up();
                above.push((first, Self::Inner(Arc::new(inner))));
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

    /// Moves everything of `right` into `left`, and takes the right half back out if that is too much for one node.
    fn rebalance(left: &mut Self, separator: T::Separator, right: &Self) -> Option<(T::Separator, Self)> {
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
    pub(super) fn new(items: Vec<T>) -> Self {
        let weight = items.iter().map(Item::weight).sum();
        Self { items, weight, derived: T::Derived::default() }
    }

    /// The items in key order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// What was derived from exactly these items.
    pub const fn derived(&self) -> &T::Derived {
        &self.derived
    }

    /// The number and the weight of the items.
    pub const fn sums(&self) -> Sums {
        Sums { count: self.items.len(), weight: self.weight }
    }

    /// The leaf for a change: itself if nobody else has it, a copy otherwise. Empties what was derived.
    fn unshared(this: &mut Arc<Self>) -> &mut Self {
        if Arc::get_mut(this).is_none() {
            let mut items = Vec::with_capacity(this.items.len() + 1);
            items.extend_from_slice(&this.items);
            *this = Arc::new(Self { items, weight: this.weight, derived: T::Derived::default() });
        }
        let leaf = Arc::get_mut(this).expect("it was unshared or has just been made");
        leaf.derived = T::Derived::default();
        leaf
    }

    fn search(&self, key: &T::Key) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.key().cmp(key))
    }

    fn insert(&mut self, item: T, rightmost: bool) -> Grown<T> {
        let weight = item.weight();
        match self.search(item.key()) {
            Ok(at) => {
                let replaced = std::mem::replace(&mut self.items[at], item);
                self.weight = self.weight + weight - replaced.weight();
                Grown { replaced: Some(replaced), sibling: None }
            }
            Err(at) if self.items.len() < LEAF_MAX => {
                self.items.insert(at, item);
                self.weight += weight;
                Grown { replaced: None, sibling: None }
            }
            Err(at) => Grown { replaced: None, sibling: Some(self.split(at, item, rightmost)) },
        }
    }

    /// Splits a full leaf around a new item that belongs at `at`.
    fn split(&mut self, at: usize, item: T, rightmost: bool) -> (T::Separator, Node<T>) {
        let len = self.items.len();
        // Keys often arrive in order: then the left half gets no more inserts and should stay well filled.
        let cut = match (at == len, rightmost) {
            (true, true) => len,
            (true, false) => len - len / UNDERFULL,
            (false, _) => len / 2,
        };
        let mut right = self.items.split_off(cut);
        if at <= cut && cut < len {
            self.items.insert(at, item);
        } else {
            right.insert(at - cut, item);
        }
        self.weight = self.items.iter().map(Item::weight).sum();
        (right[0].separator(), Node::Leaf(Arc::new(Self::new(right))))
    }

    fn remove(&mut self, key: &T::Key) -> Option<T> {
        let at = self.search(key).ok()?;
        let removed = self.items.remove(at);
        self.weight -= removed.weight();
        Some(removed)
    }

    fn absorb(&mut self, right: &Self) -> Option<(T::Separator, Node<T>)> {
        self.items.extend_from_slice(&right.items);
        let over = (self.items.len() > LEAF_MAX).then(|| self.items.split_off(self.items.len() / 2));
        self.weight = self.items.iter().map(Item::weight).sum();
        over.map(|items| (items[0].separator(), Node::Leaf(Arc::new(Self::new(items)))))
    }
}

impl<T: Item> Inner<T> {
    fn new(children: Vec<Node<T>>, separators: Vec<T::Separator>) -> Self {
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

    fn child_of(&self, key: &T::Key) -> usize {
        self.separators.partition_point(|separator| separator.borrow() <= key)
    }

    /// The child below which the item of this rank is, and the item's rank there.
    fn child_at(&self, rank: usize) -> Option<(&Node<T>, usize)> {
        self.child_index_at(rank).map(|(at, rest)| (&self.children[at], rest))
    }

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

    fn insert(&mut self, item: T, rightmost: bool) -> Grown<T> {
        let weight = item.weight();
        let at = self.child_of(item.key());
        let last = at + 1 == self.children.len();
        let Grown { replaced, sibling } = self.children[at].insert(item, rightmost && last);
        self.sums.weight += weight;
        match &replaced {
            Some(old) => self.sums.weight -= old.weight(),
            None => self.sums.count += 1,
        }
        if let Some((separator, node)) = sibling {
            self.children.insert(at + 1, node);
            self.separators.insert(at, separator);
        }
        let sibling = (self.children.len() > INNER_MAX).then(|| {
            let len = self.children.len();
            self.split_at(if last { len - INNER_MAX / UNDERFULL } else { len / 2 })
        });
        Grown { replaced, sibling }
    }

    /// Takes the children from `cut` on out into a new node.
    fn split_at(&mut self, cut: usize) -> (T::Separator, Node<T>) {
        let children = self.children.split_off(cut);
        let separators = self.separators.split_off(cut);
        let between = self.separators.pop().expect("a cut leaves at least one child, hence one separator, on its left");
        self.sum_up();
        (between, Node::Inner(Arc::new(Self::new(children, separators))))
    }

    fn remove(&mut self, key: &T::Key) -> Option<T> {
        let at = self.child_of(key);
        let removed = self.children[at].remove(key)?;
        self.sums.count -= 1;
        self.sums.weight -= removed.weight();
        if self.children[at].is_underfull() && self.children.len() > 1 {
            self.mend(at);
        }
        Some(removed)
    }

    /// Joins an underfull child with a neighbour, or shares the neighbour's items with it.
    fn mend(&mut self, at: usize) {
        let left = at.saturating_sub(1);
        let right = self.children.remove(left + 1);
        let separator = self.separators.remove(left);
        if let Some((separator, right)) = Node::rebalance(&mut self.children[left], separator, &right) {
            self.children.insert(left + 1, right);
            self.separators.insert(left, separator);
        }
    }

    fn absorb(&mut self, separator: T::Separator, right: &Self) -> Option<(T::Separator, Node<T>)> {
        self.separators.push(separator);
        self.separators.extend_from_slice(&right.separators);
        self.children.extend_from_slice(&right.children);
        self.sums.add(right.sums);
        let len = self.children.len();
        (len > INNER_MAX).then(|| self.split_at(len / 2))
    }
}

#[cfg(test)]
impl<T: Item> Node<T> {
    /// Checks the invariants of this node and everything below it; returns its depth.
    pub(super) fn check(&self, root: bool) -> usize {
        match self {
            Self::Leaf(leaf) => {
                assert!(leaf.items.len() <= LEAF_MAX);
                assert!(leaf.items.windows(2).all(|pair| pair[0].key() < pair[1].key()));
                assert_eq!(leaf.weight, leaf.items.iter().map(Item::weight).sum::<u64>());
                1
            }
            Self::Inner(inner) => {
                assert!(inner.children.len() <= INNER_MAX && (inner.children.len() > 1 || !root));
                assert_eq!(inner.children.len(), inner.separators.len() + 1);
                let mut sums = Sums::default();
                inner.children.iter().for_each(|child| sums.add(child.sums()));
                assert_eq!(sums, inner.sums);
                for (at, separator) in inner.separators.iter().enumerate() {
                    let (left, right) = (&inner.children[at], &inner.children[at + 1]);
                    let last = left.nth(left.sums().count - 1).expect("no child is empty");
                    let first = right.nth(0).expect("no child is empty");
                    assert!(last.key() < separator.borrow() && separator.borrow() <= first.key());
                }
                let depths: Vec<usize> = inner.children.iter().map(|child| child.check(false)).collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]));
                depths[0] + 1
            }
        }
    }
}
