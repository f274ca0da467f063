//! Selections of snapshots compared with a scan, while terms become common and rare again.
//!
//! Random steps change objects. After each step, selections are compared with a scan. So the tests detect a wrong
//! result after a term leaves the index or returns to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use keelson_codec::FieldPath;
use keelson_meta::Revision;
use proptest::prelude::*;

use super::*;
use crate::entry::Decoder;
use crate::packing::{Packer, Pool};
use crate::snapshot::Snapshot;

const APPS: u8 = 4;
const NODES: u8 = 3;
const NODE: &str = "spec.nodeName";

/// The indexed terms of an object.
type Body = (Option<u8>, Option<u8>);
type Model = BTreeMap<String, Body>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Body),
    Remove(u8),
    /// Gives each object of a range the same terms.
    PutStretch(u8, u8, Body),
    RemoveStretch(u8, u8),
    Clone,
    /// Rebuilds the trees from the entries.
    Load,
}

fn step() -> impl Strategy<Value = Step> {
    let body = || (prop::option::of(0..APPS), prop::option::of(0..NODES));
    prop_oneof![
        6 => (any::<u8>(), body()).prop_map(|(key, body)| Step::Put(key, body)),
        3 => any::<u8>().prop_map(Step::Remove),
        4 => (any::<u8>(), any::<u8>(), body()).prop_map(|(from, len, body)| Step::PutStretch(from, len, body)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, len)| Step::RemoveStretch(from, len)),
        1 => Just(Step::Clone),
        1 => Just(Step::Load),
    ]
}

fn key(number: u8) -> String {
    format!("n{}/p{number:03}", number % 3)
}

fn layout() -> Arc<Layout> {
    static LAYOUT: OnceLock<Arc<Layout>> = OnceLock::new();
    LAYOUT.get_or_init(|| Arc::new(Layout::new(vec![FieldPath::parse(NODE)], Some(0)))).clone()
}

fn decoder() -> Decoder {
    Decoder::new(layout(), None, Arc::new(Pool::new(Packer::off())))
}

fn label(app: u8) -> String {
    format!("a{app}")
}

fn entry(key: &str, (app, node): Body, decoder: &Decoder) -> Arc<Entry> {
    let label = app.map(|app| format!(r#""app":"{}","#, label(app))).unwrap_or_default();
    let node = node.map(|node| format!("n{node}")).unwrap_or_default();
    let value = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p","labels":{{{label}"all":"x"}}}},"spec":{{"nodeName":"{node}"}}}}"#
    );
    Arc::new(decoder.decode(key.into(), &Bytes::from(value), (Revision::new(1), keelson_storage::Seal::PLAIN)).unwrap())
}

/// Trees and their expected contents.
#[derive(Clone)]
struct TreesModel {
    trees: Trees,
    model: Model,
}

impl TreesModel {
    fn empty() -> Self {
        Self { trees: Trees::empty(layout()), model: Model::new() }
    }

    fn put(&mut self, number: u8, body: Body, decoder: &Decoder) {
        let key = key(number);
        self.trees.put(&entry(&key, body, decoder));
        self.model.insert(key, body);
    }

    fn remove(&mut self, number: u8) {
        let key = key(number);
        assert_eq!(self.trees.remove(&key).is_some(), self.model.remove(&key).is_some());
    }

    fn take(&mut self, step: &Step, decoder: &Decoder, clones: &mut Vec<Self>) {
        match *step {
            Step::Put(key, body) => self.put(key, body, decoder),
            Step::Remove(key) => self.remove(key),
            Step::PutStretch(from, len, body) => {
                (from..=from.saturating_add(len)).for_each(|key| self.put(key, body, decoder));
            }
            Step::RemoveStretch(from, len) => (from..=from.saturating_add(len)).for_each(|key| self.remove(key)),
            Step::Clone => clones.push(self.clone()),
            Step::Load => {
                self.trees = Trees::from_sorted(&self.trees.entries.iter().cloned().collect::<Vec<_>>(), layout());
            }
        }
    }

    fn check(&self) {
        let snapshot = Snapshot { revision: Revision::new(1), trees: self.trees.clone() };
        let all = IndexTerm::Label { key: "all", value: "x" };
        for (from, to) in [("", None), ("n1/", Some("n10")), ("n0/p1", Some("n2/p1")), ("n2/", None)] {
            let check = |terms: &[IndexTerm<'_>], wanted: &dyn Fn(&Body) -> bool| {
                let has_all = |entry: &&Arc<Entry>| {
                    terms.iter().filter_map(|term| term.term(&layout())).all(|term| has(entry, term.text(), Some(0)))
                };
                let found: Vec<&str> =
                    snapshot.select(terms, from, to).filter(has_all).map(|entry| &*entry.key).collect();
                let within =
                    self.model.iter().filter(|(key, _)| key.as_str() >= from && to.is_none_or(|to| key.as_str() < to));
                let expected: Vec<&str> =
                    within.filter(|(_, body)| wanted(body)).map(|(key, _)| key.as_str()).collect();
                assert_eq!(found, expected, "{terms:?} from {from} to {to:?}");
            };
            check(&[], &|_| true);
            check(&[all], &|_| true);
            check(&[IndexTerm::Label { key: "app", value: "b" }], &|_| false);
            for app in 0..APPS {
                check(&[IndexTerm::Label { key: "app", value: &label(app) }], &|body| body.0 == Some(app));
            }
            for node in 0..NODES {
                check(&[IndexTerm::Field { path: NODE, value: &format!("n{node}") }], &|body| body.1 == Some(node));
            }
        }
        self.check_terms();
    }

    /// Checks that every term is either indexed for each object that has it, or counted. No rare term may be counted.
    fn check_terms(&self) {
        let mut terms: BTreeMap<String, usize> = BTreeMap::new();
        for (app, node) in self.model.values() {
            let app = app.map(|app| format!("app={}", label(app)));
            let node = node.map(|node| format!("{DISPATCH_MARK}n{node}"));
            for term in [Some("all=x".to_owned()), app, node].into_iter().flatten() {
                *terms.entry(term).or_default() += 1;
            }
        }
        for (text, count) in self.trees.common.counts() {
            assert_eq!(terms.remove(text).unwrap_or_default(), count, "{text}");
            assert!(count * 4 >= self.model.len(), "{text}: {count} of {}", self.model.len());
        }
        assert_eq!(self.trees.index.len(), terms.values().sum::<usize>());
    }

    fn common(&self) -> Vec<&str> {
        self.trees.common.counts().map(|(text, _)| text).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_selection_finds_what_a_look_at_all_finds(steps in prop::collection::vec(step(), 1..40)) {
        let (mut world, decoder, mut clones) = (TreesModel::empty(), decoder(), Vec::new());
        for step in &steps {
            world.take(step, &decoder, &mut clones);
        }
        clones.push(world);
        clones.iter().for_each(TreesModel::check);
    }
}

#[test]
fn a_term_is_counted_as_long_as_many_have_it() {
    let (mut world, decoder) = (TreesModel::empty(), decoder());
    (0..200).for_each(|number| world.put(number, (Some(number % 4), Some(0)), &decoder));
    assert_eq!(world.common(), ["\u{1}n0", "all=x"]);
    let before = world.clone();
    (0..160).for_each(|number| world.put(number, (Some(number % 4), Some(1)), &decoder));
    assert_eq!(world.common(), ["\u{1}n1", "all=x"]);
    (0..160).for_each(|number| world.remove(number));
    assert_eq!(world.common(), ["all=x"]);
    (0..160).for_each(|number| world.put(number, (Some(number % 4), Some(0)), &decoder));
    assert_eq!(world.common(), ["\u{1}n0", "all=x"]);
    world.check();
    before.check();
}

#[test]
fn terms_that_become_rare_at_once_are_all_found() {
    let (mut world, decoder) = (TreesModel::empty(), decoder());
    (0..40).for_each(|number| world.put(number, (Some(0), Some(0)), &decoder));
    (40..80).for_each(|number| world.put(number, (None, None), &decoder));
    world.take(&Step::Load, &decoder, &mut Vec::new());
    assert_eq!(world.common(), ["\u{1}n0", "all=x", "app=a0"]);
    (0..27).for_each(|number| world.remove(number));
    assert_eq!(world.common(), ["all=x"]);
    world.check();
}

#[test]
fn common_terms_of_a_load_are_counted_at_once() {
    let (mut world, decoder) = (TreesModel::empty(), decoder());
    (0..15).for_each(|number| world.put(number, (Some(0), None), &decoder));
    world.take(&Step::Load, &decoder, &mut Vec::new());
    assert!(world.common().is_empty(), "few objects have nothing in common");
    world.put(15, (Some(1), None), &decoder);
    world.take(&Step::Load, &decoder, &mut Vec::new());
    assert_eq!(world.common(), ["all=x", "app=a0"]);
    world.check();
}
