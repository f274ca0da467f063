//! A set of fields: a tree of path elements in which some nodes are members.
//!
//! Nodes are sorted, and each is a member or has members below it. Equal sets are therefore equal values.

use super::element::{Path, PathElement};
use super::element_ref::PathElementRef;

/// A set of fields. The root is never a member, since a whole object has no owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// A path element, whether the field is a member, and the members below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

impl FieldSet {
    /// The set without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if there are no members.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.below.len()).sum()
    }

    /// Adds a field. Its parents do not become members.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.node_mut(first);
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Returns true if the field is a member.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.below(first).is_some_and(|below| below.contains(rest)),
        }
    }

    /// The members below a path element, if there are any.
    pub fn below(&self, element: &PathElement) -> Option<&Self> {
        self.node(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// The fields that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| left || right)
    }

    /// Adds the fields of the other set.
    pub fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            *self = self.union(&other);
        }
    }

    /// Returns true if the other set has all fields of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|node| match other.node(&node.element) {
            Some(theirs) => theirs.member >= node.member && node.below.is_subset(&theirs.below),
            None => false,
        })
    }

    /// The fields that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|left, right| left && right)
    }

    /// The fields of this set that are not in the other one. A removed field keeps the fields below it.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// The fields of this set that are neither in the other one nor below a field of it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract_with_below(other);
        left
    }

    /// As [`difference`](Self::difference), in place. Cost: proportional to the other set.
    pub fn subtract(&mut self, other: &Self) {
        for theirs in &other.nodes {
            self.lessen(&theirs.element, |node| {
                node.member &= !theirs.member;
                node.below.subtract(&theirs.below);
            });
        }
    }

    /// As [`recursive_difference`](Self::recursive_difference), in place. Cost: proportional to the other set.
    pub fn subtract_with_below(&mut self, other: &Self) {
        for theirs in &other.nodes {
            self.lessen(&theirs.element, |node| {
                if theirs.member {
                    node.member = false;
                    node.below = Self::new();
                } else {
                    node.below.subtract_with_below(&theirs.below);
                }
            });
        }
    }

    /// Changes the node of an element, if there is one, and drops it if it becomes empty.
    fn lessen(&mut self, element: &PathElement, lessen: impl FnOnce(&mut Node)) {
        let Ok(place) = self.search(element) else { return };
        let node = &mut self.nodes[place];
        lessen(node);
        if !node.member && node.below.is_empty() {
            self.nodes.remove(place);
        }
    }

    /// The members that have no members below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.below.is_empty(),
            below: node.below.leaves(),
        });
        Self { nodes: nodes.collect() }
    }

    /// The paths of all members: first those of a level, then those below.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::with_capacity(self.len());
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Path>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            paths.push(prefix.iter().chain([&node.element]).cloned().collect());
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.below.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// Walks the sorted nodes of both sets in parallel. `member` returns the new membership from the membership in each
    /// set.
    fn combine(&self, other: &Self, member: &impl Fn(bool, bool) -> bool) -> Self {
        let (takes_left, takes_right) = (member(true, false), member(false, true));
        let mut nodes = Vec::with_capacity(if takes_right { self.nodes.len().max(other.nodes.len()) } else { 0 });
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(left), Some(right)) => left.element.cmp(&right.element),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            // A node that is in only one set is copied or dropped as a whole.
            match order {
                std::cmp::Ordering::Less => nodes.extend(left.next().filter(|_| takes_left).cloned()),
                std::cmp::Ordering::Greater => nodes.extend(right.next().filter(|_| takes_right).cloned()),
                std::cmp::Ordering::Equal => {
                    let (Some(left), Some(right)) = (left.next(), right.next()) else {
                        return Self { nodes };
                    };
                    let node = Node {
                        element: left.element.clone(),
                        member: member(left.member, right.member),
                        below: left.below.combine(&right.below, member),
                    };
                    nodes.extend(node.kept());
                }
            }
        }
    }

    fn search(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        self.search(element).ok().and_then(|place| self.nodes.get(place))
    }

    /// The node at a step.
    pub(super) fn at(&self, step: PathElementRef<'_>) -> Option<&Node> {
        match step {
            PathElementRef::Field(name) => {
                let place = self.nodes.binary_search_by(|node| node.element.cmp_field(name)).ok()?;
                self.nodes.get(place)
            }
            // Most sets have no list items at this level, so the step need not be converted.
            step if self.nodes.last().is_some_and(|last| !last.element.is_field()) => self.node(&step.to_element()),
            _ => None,
        }
    }

    fn node_mut(&mut self, element: &PathElement) -> &mut Node {
        let place = self.search(element).unwrap_or_else(|place| {
            self.nodes.insert(place, Node { element: element.clone(), member: false, below: Self::new() });
            place
        });
        &mut self.nodes[place]
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// Creates the set of these nodes, which may have any order. Of nodes with the same element the first one is kept.
    pub(super) fn from_nodes(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut nodes: Vec<_> = nodes.into_iter().filter_map(Node::kept).collect();
        if !nodes.is_sorted_by(|left, right| left.element < right.element) {
            nodes.sort_by(|left, right| left.element.cmp(&right.element));
            nodes.dedup_by(|next, first| next.element == first.element);
        }
        Self { nodes }
    }
}

impl Node {
    /// Returns the node unless it is empty.
    pub(super) fn kept(self) -> Option<Self> {
        (self.member || !self.below.is_empty()).then_some(self)
    }
}

impl<'p> FromIterator<&'p Path> for FieldSet {
    fn from_iter<T: IntoIterator<Item = &'p Path>>(paths: T) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path.elements());
        }
        set
    }
}
