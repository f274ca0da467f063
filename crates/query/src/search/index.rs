//! The index of a search: the searched texts of all objects in a snapshot, without the objects.
//!
//! The index is a stack of immutable layers, each at most about a quarter of the one below it. Changed objects form a
//! new layer on top, and their old versions are marked dead in the layer that has them. Layers that have grown too
//! large are merged into the one below, so the cost of a change does not depend on the number of objects. A clone
//! shares all layers, so the index of the next snapshot is derived without changing this one.
//!
//! Invariant: an index finds exactly the objects for which [`Search::score`] returns a score, with the same scores.

use std::sync::Arc;

use super::Search;
use super::part::{GatheredTexts, Part};

/// The ratio of sizes at which upper layers are merged into the one below.
const GROWN: usize = 4;

/// The searched texts of objects. Clones share the layers.
#[derive(Clone, Default)]
pub struct SearchIndex {
    /// The layers, the largest first.
    layers: Vec<Layer>,
}

#[derive(Clone)]
struct Layer {
    part: Arc<Part>,
    dead: Arc<Dead>,
}

/// The dead objects of a layer.
#[derive(Clone, Default)]
struct Dead {
    /// A bit for each object, set if the object is dead. Empty if none is.
    bits: Vec<u64>,
    count: usize,
}

impl Dead {
    fn holds(&self, object: usize) -> bool {
        self.bits.get(object / 64).is_some_and(|bits| bits >> (object % 64) & 1 == 1)
    }

    fn add(&mut self, object: usize, of: usize) {
        self.bits.resize(of.div_ceil(64), 0);
        self.bits[object / 64] |= 1 << (object % 64);
        self.count += 1;
    }
}

impl Layer {
    fn left(&self) -> usize {
        self.part.len() - self.dead.count
    }

    /// Returns true if the layers above, or the dead objects, have about the size of this layer.
    fn is_outgrown(&self, above: usize) -> bool {
        above * GROWN >= self.left() || self.dead.count > self.left()
    }
}

/// The results of a search in one part of an index, by descending score and ascending key.
pub struct RankedResults<'i> {
    part: &'i Part,
    found: Vec<(u16, u32)>,
}

impl<'i> RankedResults<'i> {
    /// The number of objects.
    pub const fn len(&self) -> usize {
        self.found.len()
    }

    /// Returns true if there are no objects.
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The scores and the keys of the objects.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'i str)> {
        self.found.iter().map(|(score, object)| (*score, self.part.key(*object as usize)))
    }
}

impl SearchIndex {
    /// The index of several gathered sets with distinct objects.
    pub fn new(gathered: Vec<GatheredTexts>) -> Self {
        let mut parts: Vec<Part> =
            gathered.into_iter().map(GatheredTexts::finish).filter(|part| part.len() > 0).collect();
        if parts.len() > 1 {
            parts = vec![Part::merged(&parts.iter().collect::<Vec<_>>(), |_, _| true)];
        }
        let layer = |part| Layer { part: Arc::new(part), dead: Arc::default() };
        Self { layers: parts.into_iter().map(layer).collect() }
    }

    /// Returns an index without the objects whose keys are in `gone`, and with the objects in `come`.
    pub fn changed<'k>(&self, gone: impl Iterator<Item = &'k str>, come: GatheredTexts) -> Self {
        let mut layers = self.layers.clone();
        for key in gone {
            for Layer { part, dead } in layers.iter_mut().rev() {
                if let Some(object) = part.find_key(key).filter(|object| !dead.holds(*object)) {
                    Arc::make_mut(dead).add(object, part.len());
                    break;
                }
            }
        }
        if !come.is_empty() {
            layers.push(Layer { part: Arc::new(come.finish()), dead: Arc::default() });
        }
        let mut changed = Self { layers };
        changed.settle();
        changed
    }

    /// Merges layers that have grown.
    fn settle(&mut self) {
        let mut above: usize = self.layers.iter().map(Layer::left).sum();
        let outgrown = self.layers.iter().position(|layer| {
            above -= layer.left();
            // The top layer is only rebuilt if much of it is dead.
            layer.is_outgrown(above) && (above > 0 || layer.dead.count > layer.left())
        });
        let Some(first) = outgrown else { return };
        let merged: Vec<Layer> = self.layers.drain(first..).collect();
        let parts: Vec<&Part> = merged.iter().map(|layer| &*layer.part).collect();
        let part = Part::merged(&parts, |part, object| !merged[part].dead.holds(object));
        if part.len() > 0 {
            self.layers.push(Layer { part: Arc::new(part), dead: Arc::default() });
        }
    }

    /// The objects in a range of keys in which all words occur, for each part.
    ///
    /// Cost: a pass over the distinct texts, and the objects found.
    pub fn find(&self, search: &Search, from: &str, to: Option<&str>) -> Vec<RankedResults<'_>> {
        let ranked = self.layers.iter().map(|Layer { part, dead }| {
            let found = part.find(&search.words, part.range(from, to), |object| !dead.holds(object));
            RankedResults { part, found }
        });
        ranked.filter(|ranked| !ranked.is_empty()).collect()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.layers.iter().map(Layer::left).sum()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The approximate memory in bytes, including shared parts.
    pub fn bytes(&self) -> u64 {
        let bytes = |layer: &Layer| layer.part.bytes() + layer.dead.bits.capacity() * size_of::<u64>();
        self.layers.iter().map(bytes).sum::<usize>() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use keelson_meta::Revision;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::value::Subject;

    /// An object by its key: its label, image and selectable field.
    type Model = BTreeMap<String, (String, String, String)>;

    fn object(key: &str, (label, image, _): &(String, String, String)) -> String {
        format!(
            concat!(
                r#"{{"metadata":{{"name":"{}","labels":{{"a":"{}"}}}},"#,
                r#""spec":{{"containers":[{{"image":"{}"}},{{"image":"{}"}}]}}}}"#
            ),
            key, label, image, key
        )
    }

    fn score(search: &Search, key: &str, of: &(String, String, String)) -> Option<u16> {
        let json = object(key, of);
        search.score(&Subject::new(json.as_bytes(), Revision::new(1)), [&*of.2].into_iter())
    }

    fn add(gathered: &mut GatheredTexts, key: &str, of: &(String, String, String)) {
        let json = object(key, of);
        let subject = Subject::new(json.as_bytes(), Revision::new(1));
        gathered.add(key, &Search::texts(&subject, [&*of.2].into_iter()));
    }

    fn gathered(model: &Model) -> GatheredTexts {
        let mut gathered = GatheredTexts::default();
        model.iter().for_each(|(key, of)| add(&mut gathered, key, of));
        gathered
    }

    #[track_caller]
    fn check(index: &SearchIndex, model: &Model, words: &str, from: &str, to: Option<&str>) {
        let search = Search::parse("search", words).unwrap();
        let mut expected: Vec<(u16, &str)> = model
            .iter()
            .filter(|(key, _)| &***key >= from && to.is_none_or(|to| &***key < to))
            .filter_map(|(key, of)| Some((score(&search, key, of)?, &**key)))
            .collect();
        expected.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let ranked = index.find(&search, from, to);
        let mut found: Vec<(u16, &str)> = ranked.iter().flat_map(RankedResults::iter).collect();
        for part in &ranked {
            let part: Vec<_> = part.iter().collect();
            assert!(part.is_sorted_by_key(|(score, key)| (std::cmp::Reverse(*score), *key)), "{part:?}");
        }
        found.sort_by_key(|(score, key)| (std::cmp::Reverse(*score), *key));
        assert_eq!(found, expected, "{words:?}");
        assert_eq!(index.len(), model.len());
    }

    /// Similar words, in texts of several.
    fn text() -> impl Strategy<Value = String> {
        let word = prop::sample::select(
            &[
                "web",
                "website",
                "webs",
                "Checkout",
                "chekcout",
                "checkuot1",
                "ckout",
                "ÄTHER",
                "äthre",
                "a",
                "1234567",
                "123456789",
                "Σας",
            ][..],
        );
        let between = prop::sample::select(&["-", ".", "/", "", ":", " ", "\u{b}"][..]);
        vec((word, between), 0..3)
            .prop_map(|all| all.iter().map(|(word, between)| format!("{word}{between}")).collect())
    }

    fn parts() -> impl Strategy<Value = (String, String, String)> {
        (text(), text(), text())
    }

    fn words() -> impl Strategy<Value = String> {
        prop_oneof![
            3 => text().prop_filter("a search has a word", |text| !text.trim().is_empty()),
            1 => "[a-ck1-3]{1,3}",
            1 => Just("CHECKUOT äthr".to_owned()),
            1 => Just("chckout 12345678".to_owned()),
        ]
    }

    fn key() -> impl Strategy<Value = String> {
        (0..60u32, text()).prop_map(|(number, text)| format!("k{number:02}{}", text.replace(['\u{b}', ' '], "")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_search_index_agrees_with_a_scan_of_all_objects(
            first in btree_map(key(), parts(), 0..60),
            cut in 0..60usize,
            changes in vec(btree_map((0..60usize, key()), prop::option::weighted(0.8, parts()), 0..20), 0..12),
            asked in vec((words(), prop::option::of((key(), key()))), 1..8),
        ) {
            let ask = |index: &SearchIndex, model: &Model| {
                for (words, range) in &asked {
                    match range {
                        Some((from, to)) => check(index, model, words, from, Some(to)),
                        None => check(index, model, words, "", None),
                    }
                }
            };
            let mut model = first.clone();
            let mut later = model.clone();
            let parts = {
                let sooner: Model = std::iter::from_fn(|| (later.len() > cut).then(|| later.pop_first())?).collect();
                vec![gathered(&sooner), GatheredTexts::default(), gathered(&later)]
            };
            let mut index = SearchIndex::new(parts);
            let first_index = index.clone();
            ask(&index, &model);
            for change in changes {
                let (mut gone, mut come) = (Vec::new(), Model::new());
                for ((place, key), of) in change {
                    // An existing key, or a new one.
                    let key = model.keys().nth(place).cloned().unwrap_or(key);
                    if model.remove(&key).is_some() {
                        gone.push(key.clone());
                    }
                    come.remove(&key);
                    if let Some(of) = of {
                        come.insert(key, of);
                    }
                }
                model.extend(come.clone());
                index = index.changed(gone.iter().map(|key| &**key), gathered(&come));
                ask(&index, &model);
            }
            prop_assert!(index.layers.len() < 8);
            ask(&first_index, &first);
        }
    }

    #[test]
    fn the_search_index_truncates_long_texts_as_a_scan_does() {
        let long =
            |bytes: usize| (format!("{} beginning", "x".repeat(bytes)), "image".repeat(bytes), "node".to_owned());
        let model: Model = (2000..2100).step_by(3).map(|bytes| (format!("n{bytes}"), long(bytes))).collect();
        let index = SearchIndex::new(vec![gathered(&model)]);
        for words in ["beginning", "beginnnig", "begin", "node", "image", "n20"] {
            check(&index, &model, words, "", None);
        }
        let object = |count: usize| {
            let images: Vec<String> = (0..count).map(|image| format!(r#"{{"image":"{image:01024}"}}"#)).collect();
            format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"containers":[{}]}}}}"#, images.join(","))
        };
        for count in 28..36 {
            let json = object(count);
            let subject = Subject::new(json.as_bytes(), Revision::new(1));
            let mut gathered = GatheredTexts::default();
            gathered.add("a", &Search::texts(&subject, ["found"].into_iter()));
            let index = SearchIndex::new(vec![gathered]);
            let search = Search::parse("search", "found").unwrap();
            let score = search.score(&subject, ["found"].into_iter());
            let found: Vec<u16> =
                index.find(&search, "", None).iter().flat_map(RankedResults::iter).map(|one| one.0).collect();
            assert_eq!(found.first().copied(), score, "{count}");
        }
    }

    #[test]
    fn dead_entries_are_freed_and_layers_stay_few() {
        let of = |number: usize| (format!("label-{number}"), "image".to_owned(), format!("node-{}", number % 7));
        let mut model: Model = (0..2000).map(|number| (format!("n{number:04}"), of(number))).collect();
        let mut index = SearchIndex::new(vec![gathered(&model)]);
        let bytes = index.bytes();
        for round in 0..200 {
            let key = |number: usize| format!("n{:04}", (round * 37 + number * 11) % 2000);
            let gone: Vec<String> = (0..10).map(key).collect();
            let come: Model = gone.iter().map(|key| (key.clone(), of(round + 5000))).collect();
            model.extend(come.clone());
            index = index.changed(gone.iter().map(|key| &**key), gathered(&come));
            assert!(index.layers.len() < 8, "{}", index.layers.len());
        }
        check(&index, &model, "label-51", "", None);
        assert!(index.bytes() < bytes * 2, "{} of {bytes}", index.bytes());
        let all: Vec<String> = model.keys().cloned().collect();
        index = index.changed(all.iter().map(|key| &**key), GatheredTexts::default());
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}
