//! The ordered map of the in-memory engine: a B-tree whose clones share nodes until one of them writes.
//!
//! A clone increments one reference count. A later write copies the nodes on the path to its key. So a fork of a store
//! costs nothing until its contents differ. The map splits full nodes and never joins nodes; it drops empty ones.

use std::sync::Arc;

use crate::key::StoreKey;

/// The most entries of a node.
const FULL: usize = 64;

/// An ordered map from keys to values.
#[derive(Clone)]
pub(super) struct Tree<V>(Arc<Node<V>>);

#[derive(Clone)]
enum Node<V> {
    Leaf(Vec<(StoreKey, V)>),
    /// The children, each with a lower limit of its keys. The map ignores the limit of the first child.
    Inner(Vec<(StoreKey, Arc<Node<V>>)>),
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        Self(Arc::new(Node::Leaf(Vec::new())))
    }
}

impl<V> Tree<V> {
    /// The value of a key.
    pub(super) fn get(&self, key: &StoreKey) -> Option<&V> {
        let mut node = &*self.0;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_of(children, key)].1,
                Node::Leaf(entries) => {
                    return entries.binary_search_by(|(at, _)| at.cmp(key)).ok().map(|place| &entries[place].1);
                }
            }
        }
    }

    /// Returns the entries from a key on, in order.
    pub(super) fn from(&self, key: &StoreKey) -> Iter<'_, V> {
        let mut iter = Iter { inner: Vec::new(), leaf: [].iter() };
        let mut node = &*self.0;
        loop {
            match node {
                Node::Inner(children) => {
                    let place = child_of(children, key);
                    iter.inner.push(children[place + 1..].iter());
                    node = &children[place].1;
                }
                Node::Leaf(entries) => {
                    iter.leaf = entries[entries.partition_point(|(at, _)| at < key)..].iter();
                    return iter;
                }
            }
        }
    }

    /// Returns all entries, in order.
    pub(super) fn iter(&self) -> Iter<'_, V> {
        let mut iter = Iter { inner: Vec::new(), leaf: [].iter() };
        iter.descend(&self.0);
        iter
    }
}

impl<V: Clone + Default> Tree<V> {
    /// Changes the value of a key. An absent key starts with the default value.
    pub(super) fn update(&mut self, key: StoreKey, change: impl FnOnce(&mut V)) {
        if let Some((first, behind)) = update(&mut self.0, key, change) {
            let before = std::mem::replace(&mut self.0, Arc::new(Node::Leaf(Vec::new())));
            // The map ignores the key of the first child.
            self.0 = Arc::new(Node::Inner(vec![(StoreKey::new(""), before), (first, behind)]));
        }
    }

    /// Calls `change` for the values for which `concerns` returns true, and removes those for which `change` returns
    /// false. Nodes without such values are not copied.
    pub(super) fn retain(&mut self, concerns: impl Fn(&V) -> bool, mut change: impl FnMut(&mut V) -> bool) {
        if retain(&mut self.0, &concerns, &mut change) == RemainingNode::Nothing {
            *self = Self::default();
        }
    }
}

/// Returns the index of the child that has the key or would have it.
fn child_of<V>(children: &[(StoreKey, Arc<Node<V>>)], key: &StoreKey) -> usize {
    children.partition_point(|(first, _)| first <= key).saturating_sub(1)
}

/// Changes a value below a node. If the node was split, returns the second half with its first key.
fn update<V: Clone + Default>(
    node: &mut Arc<Node<V>>,
    key: StoreKey,
    change: impl FnOnce(&mut V),
) -> Option<(StoreKey, Arc<Node<V>>)> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let place = match entries.binary_search_by(|(at, _)| at.cmp(&key)) {
                Ok(place) => place,
                Err(place) => {
                    entries.insert(place, (key, V::default()));
                    place
                }
            };
            change(&mut entries[place].1);
            let behind = second_half(entries)?;
            Some((behind[0].0.clone(), Arc::new(Node::Leaf(behind))))
        }
        Node::Inner(children) => {
            let place = child_of(children, &key);
            let split = update(&mut children[place].1, key, change)?;
            children.insert(place + 1, split);
            let behind = second_half(children)?;
            Some((behind[0].0.clone(), Arc::new(Node::Inner(behind))))
        }
    }
}

fn second_half<T>(of: &mut Vec<T>) -> Option<Vec<T>> {
    (of.len() > FULL).then(|| of.split_off(FULL / 2))
}

/// The content of a node after entries were removed.
#[derive(PartialEq, Eq)]
enum RemainingNode {
    Something,
    Nothing,
}

fn retain<V: Clone>(
    node: &mut Arc<Node<V>>,
    concerns: &impl Fn(&V) -> bool,
    change: &mut impl FnMut(&mut V) -> bool,
) -> RemainingNode {
    if !is_concerned(node, concerns) {
        return RemainingNode::Something;
    }
    let is_empty = match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            entries.retain_mut(|(_, value)| !concerns(value) || change(value));
            entries.is_empty()
        }
        Node::Inner(children) => {
            children.retain_mut(|(_, child)| retain(child, concerns, change) == RemainingNode::Something);
            children.is_empty()
        }
    };
    if is_empty { RemainingNode::Nothing } else { RemainingNode::Something }
}

fn is_concerned<V>(node: &Node<V>, concerns: &impl Fn(&V) -> bool) -> bool {
    match node {
        Node::Leaf(entries) => entries.iter().any(|(_, value)| concerns(value)),
        Node::Inner(children) => children.iter().any(|(_, child)| is_concerned(child, concerns)),
    }
}

/// Entries in order.
pub(super) struct Iter<'t, V> {
    /// For each inner node on the path to the leaf, the children that are not yet visited.
    inner: Vec<std::slice::Iter<'t, (StoreKey, Arc<Node<V>>)>>,
    leaf: std::slice::Iter<'t, (StoreKey, V)>,
}

impl<'t, V> Iter<'t, V> {
    /// Moves to the first leaf below a node.
    fn descend(&mut self, mut node: &'t Node<V>) {
        loop {
            match node {
                Node::Inner(children) => {
                    let mut rest = children.iter();
                    let Some((_, first)) = rest.next() else { return };
                    self.inner.push(rest);
                    node = first;
                }
                Node::Leaf(entries) => return self.leaf = entries.iter(),
            }
        }
    }
}

impl<'t, V> Iterator for Iter<'t, V> {
    type Item = (&'t StoreKey, &'t V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            match self.inner.last_mut()?.next() {
                Some((_, child)) => self.descend(child),
                None => drop(self.inner.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> StoreKey {
        StoreKey::new(format!("/{number:05}"))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u16, u32),
        /// Makes the values below a number odd, and removes the multiples of three among them.
        Retain(u32),
        Fork,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            40 => (0u16..600, any::<u32>()).prop_map(|(key, value)| Step::Put(key, value)),
            1 => any::<u32>().prop_map(Step::Retain),
            1 => Just(Step::Fork),
        ]
    }

    fn check(tree: &Tree<u32>, model: &BTreeMap<StoreKey, u32>) {
        assert!(tree.iter().eq(model.iter()));
        for from in [0, 1, 299, 300, 599, 700].map(key) {
            assert!(tree.from(&from).eq(model.range(&from..)));
            assert_eq!(tree.get(&from), model.get(&from));
        }
    }

    proptest! {
        #[test]
        fn a_tree_is_a_map_and_its_clones_do_not_change(steps in prop::collection::vec(step(), 0..900)) {
            let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
            let mut forks = Vec::new();
            for step in steps {
                match step {
                    Step::Put(number, value) => {
                        tree.update(key(number), |old| *old = value);
                        model.insert(key(number), value);
                    }
                    Step::Retain(below) => {
                        let kept = |value: &mut u32| {
                            *value |= 1;
                            !value.is_multiple_of(3)
                        };
                        tree.retain(|value| *value < below, kept);
                        model.retain(|_, value| *value >= below || kept(value));
                    }
                    Step::Fork => forks.push((tree.clone(), model.clone())),
                }
            }
            forks.push((tree, model));
            for (tree, model) in &forks {
                check(tree, model);
            }
        }
    }
}
