//! The tree compared with `BTreeMap`. Clones must never change.
//!
//! Random steps insert, remove and clone. After each step, the sums, ranks and order are compared with those of the
//! map.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use proptest::prelude::*;

use super::{CowTree, Diff, Item, LEAF_MAX, Sums};

/// A key and a weight.
#[derive(Clone, Debug, PartialEq)]
struct Pair(u16, u64);

impl Pair {
    /// The key and the item for the tree.
    fn new(key: u16, weight: u64) -> (Vec<u8>, Self) {
        (bytes(key), Self(key, weight))
    }
}

/// Keys of several lengths with common prefixes, in the order of the numbers.
fn bytes(key: u16) -> Vec<u8> {
    let text = format!("{:05}", key / 4);
    [text.as_bytes(), &b"aaa"[..usize::from(key % 4)]].concat()
}

fn insert(tree: &mut CowTree<Pair>, key: u16, weight: u64) -> Option<u64> {
    tree.insert(bytes(key), Pair(key, weight)).map(|pair| pair.1)
}

impl Item for Pair {
    type Derived = OnceLock<usize>;

    fn weight(&self) -> u64 {
        self.1
    }
}

type Model = BTreeMap<u16, u64>;

fn check(tree: &CowTree<Pair>, model: &Model) {
    tree.root.check(true);
    assert_eq!(tree.len(), model.len());
    assert_eq!(tree.weight(), model.values().sum::<u64>());
    assert!(tree.iter().map(|pair| (pair.0, pair.1)).eq(model.iter().map(|(key, weight)| (*key, *weight))));
}

fn check_range(tree: &CowTree<Pair>, model: &Model, from: u16, to: u16) {
    let below = |key: u16| {
        let below = model.range(..key);
        Sums { count: below.clone().count(), weight: below.map(|(_, weight)| weight).sum() }
    };
    assert_eq!(tree.before(bytes(from)), below(from));
    assert_eq!(tree.get(bytes(from)).map(|pair| pair.1), model.get(&from).copied());
    let (first, last) = (tree.before(bytes(from)).count, tree.before(bytes(to)).count);
    let expected: Vec<u16> = model.range(from..to.max(from)).map(|(key, _)| *key).collect();
    let items: Vec<u16> = tree.iter_ranks(first, last).map(|pair| pair.0).collect();
    assert_eq!(items, expected);
    let mut leaves = Vec::new();
    for slice in tree.leaves(first, last) {
        assert_eq!(slice.is_whole(), slice.items().len() == slice.leaf().items().len());
        leaves.extend(slice.items().iter().map(|pair| pair.0));
    }
    assert_eq!(leaves, expected);
    assert_eq!(tree.nth(first).map(|pair| pair.0), model.range(from..).next().map(|(key, _)| *key));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u64),
    Remove(u16),
    /// Removes a range of keys, which makes neighbours underfull.
    RemoveStretch(u16, u16),
    /// Inserts a range in order.
    InsertStretch(u16, u16),
    /// Replaces all keys of a range by every third of them, or by none.
    Splice(u16, u16, bool),
    Clone,
    Look(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..3000u16;
    prop_oneof![
        6 => (key.clone(), 0..1000u64).prop_map(|(key, weight)| Step::Insert(key, weight)),
        4 => key.clone().prop_map(Step::Remove),
        1 => (key.clone(), 0..400u16).prop_map(|(key, len)| Step::RemoveStretch(key, len)),
        2 => (key.clone(), 0..400u16).prop_map(|(key, len)| Step::InsertStretch(key, len)),
        1 => (key.clone(), 0..400u16, any::<bool>()).prop_map(|(key, len, bare)| Step::Splice(key, len, bare)),
        1 => Just(Step::Clone),
        2 => (key.clone(), key).prop_map(|(from, to)| Step::Look(from, to)),
    ]
}

fn apply(step: &Step, tree: &mut CowTree<Pair>, model: &mut Model, clones: &mut Vec<(CowTree<Pair>, Model)>) {
    match *step {
        Step::Insert(key, weight) => {
            assert_eq!(insert(tree, key, weight), model.insert(key, weight));
        }
        Step::Remove(key) => assert_eq!(tree.remove(bytes(key)).map(|pair| pair.1), model.remove(&key)),
        Step::RemoveStretch(from, len) => {
            for key in from..from + len {
                assert_eq!(tree.remove(bytes(key)).map(|pair| pair.1), model.remove(&key));
            }
        }
        Step::InsertStretch(from, len) => {
            for key in from..from + len {
                insert(tree, key, 7);
                model.insert(key, 7);
            }
        }
        Step::Splice(from, len, bare) => {
            let items: Vec<u16> = (from..from + len).filter(|key| !bare && key % 3 == 0).collect();
            let (first, last) = (tree.before(bytes(from)).count, tree.before(bytes(from + len)).count);
            tree.splice(first, last, items.iter().map(|key| Pair::new(*key, 5)));
            model.retain(|key, _| !(from..from + len).contains(key));
            model.extend(items.into_iter().map(|key| (key, 5)));
        }
        Step::Clone => clones.push((tree.clone(), model.clone())),
        Step::Look(from, to) => check_range(tree, model, from, to),
    }
}

/// Compares the difference of two trees with that of the maps.
fn check_difference(old: &(CowTree<Pair>, Model), new: &(CowTree<Pair>, Model)) {
    let shown = |pair: Option<&Pair>| pair.map(|pair| (pair.0, pair.1));
    let found: Vec<_> = Diff::new(&old.0, &new.0, Pair::eq).map(|(old, new)| (shown(old), shown(new))).collect();
    let keys: std::collections::BTreeSet<u16> = old.1.keys().chain(new.1.keys()).copied().collect();
    let of = |model: &Model, key: u16| model.get(&key).map(|weight| (key, *weight));
    let differ = keys.into_iter().map(|key| (of(&old.1, key), of(&new.1, key))).filter(|(old, new)| old != new);
    assert_eq!(found, differ.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_tree_behaves_as_a_sorted_map_and_clones_never_change(steps in prop::collection::vec(step(), 1..200)) {
        let (mut tree, mut model, mut clones) = (CowTree::default(), Model::new(), Vec::new());
        for step in &steps {
            apply(step, &mut tree, &mut model, &mut clones);
        }
        check(&tree, &model);
        for (tree, model) in &clones {
            check(tree, model);
        }
        clones.push((tree, model));
        for pair in clones.windows(2) {
            check_difference(&pair[0], &pair[1]);
            check_difference(&pair[1], &pair[0]);
        }
        check_difference(&clones[0], &clones[clones.len() - 1]);
    }

    #[test]
    fn a_tree_from_sorted_items_takes_writes(
        keys in prop::collection::btree_set(0..3000u16, 0..2000),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut model: Model = keys.iter().map(|key| (*key, u64::from(*key))).collect();
        let mut tree = CowTree::from_sorted(model.iter().map(|(key, weight)| Pair::new(*key, *weight)));
        check(&tree, &model);
        for step in &steps {
            apply(step, &mut tree, &mut model, &mut Vec::new());
        }
        check(&tree, &model);
    }
}

#[test]
fn large_trees_of_every_shape_keep_their_sums() {
    for stride in [1u32, 7919, 65_535] {
        let (mut tree, mut model) = (CowTree::default(), Model::new());
        for n in 0..60_000u32 {
            let key = (n.wrapping_mul(stride) % 65_521) as u16;
            insert(&mut tree, key, 3);
            model.insert(key, 3);
        }
        check(&tree, &model);
        for key in (0..65_521u32).filter(|key| key % 97 != 0) {
            assert_eq!(tree.remove(bytes(key as u16)).is_some(), model.remove(&(key as u16)).is_some());
        }
        check(&tree, &model);
    }
}

#[test]
fn ascending_inserts_leave_full_leaves() {
    let mut tree = CowTree::default();
    (0..6400u16).for_each(|key| {
        insert(&mut tree, key, 1);
    });
    assert_eq!(tree.leaves(0, tree.len()).count(), 6400 / LEAF_MAX);
}

#[test]
fn derived_data_lives_until_its_leaf_changes() {
    let mut tree = CowTree::from_sorted((0..640u16).map(|key| Pair::new(key, 1)));
    let old = tree.clone();
    for slice in tree.leaves(0, 640) {
        slice.leaf().derived().get_or_init(|| slice.items().len());
    }
    let known = |tree: &CowTree<Pair>| {
        tree.leaves(0, tree.len()).filter(|slice| slice.leaf().derived().get().is_some()).count()
    };
    let leaves = tree.leaves(0, 640).count();
    assert_eq!(known(&old), leaves, "clones share what was derived");
    insert(&mut tree, 100, 2);
    assert_eq!((known(&tree), known(&old)), (leaves - 1, leaves), "a copied leaf starts without");
    drop(old);
    insert(&mut tree, 101, 2);
    assert_eq!(known(&tree), leaves - 1, "the leaf of 101 was emptied already");
    insert(&mut tree, 639, 2);
    assert_eq!(known(&tree), leaves - 2, "a leaf changed in place is emptied");
}

#[test]
fn removing_an_absent_key_copies_nothing() {
    let mut tree = CowTree::from_sorted((0..640u16).map(|key| Pair::new(key, 1)));
    let old = tree.clone();
    assert_eq!(tree.remove(bytes(9999)), None);
    let shared = tree.leaves(0, 640).zip(old.leaves(0, 640)).all(|(a, b)| std::sync::Arc::ptr_eq(a.leaf(), b.leaf()));
    assert!(shared);
}
