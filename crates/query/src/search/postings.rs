//! Distinct texts in ascending order, in one piece of memory. Each text has the numbers of its owners.
//!
//! Postings are immutable. Several are merged in one pass without hashing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// The number of a removed owner.
pub(super) const GONE: u32 = u32::MAX;

/// Concatenated texts.
#[derive(Default)]
pub(super) struct Texts {
    all: String,
    /// The end of each text.
    ends: Vec<u32>,
}

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.ends.push(number(self.all.len()));
    }

    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// The concatenation.
    pub(super) fn all(&self) -> &str {
        &self.all
    }

    pub(super) fn get(&self, at: usize) -> &str {
        &self.all[self.start(at)..self.end(at)]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(super) fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.end(before))
    }

    pub(super) fn end(&self, at: usize) -> usize {
        self.ends[at] as usize
    }

    /// The first text from index `from` on that ends after a byte. The search is fast if this text is near.
    pub(super) fn holding(&self, byte: usize, from: usize) -> usize {
        let mut step = 1;
        while from + step < self.len() && self.end(from + step - 1) <= byte {
            step *= 2;
        }
        let (begin, end) = (from + step / 2, (from + step).min(self.len()));
        begin + self.ends[begin.min(end)..end].partition_point(|end| *end as usize <= byte)
    }

    /// The number of texts before `text`. The texts must be sorted.
    pub(super) fn before(&self, text: &str) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle) < text { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    fn shrink(&mut self) {
        self.all.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// Converts a number that is far below four billion.
///
/// # Panics
/// For a larger number.
pub(super) fn number(of: usize) -> u32 {
    u32::try_from(of).expect("an index is given up long before it has 4 GiB of anything")
}

/// Distinct sorted texts, and the owners of each.
#[derive(Default)]
pub(super) struct Postings {
    pub(super) texts: Texts,
    /// The end of each text's owners.
    ends: Vec<u32>,
    of: Vec<u32>,
}

impl Postings {
    /// The owners of a text.
    pub(super) fn list(&self, at: usize) -> &[u32] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.of[start as usize..self.ends[at] as usize]
    }

    pub(super) const fn len(&self) -> usize {
        self.texts.len()
    }

    /// The memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.texts.bytes() + (self.ends.capacity() + self.of.capacity()) * size_of::<u32>()
    }

    /// Merges several postings, with new numbers for the owners of each. Also returns the new index of each text of
    /// each part.
    pub(super) fn merged(parts: &[(&Self, &[u32])]) -> (Self, Vec<Vec<u32>>) {
        let mut moved: Vec<Vec<u32>> = parts.iter().map(|(part, _)| vec![GONE; part.len()]).collect();
        let mut merged = Self::default();
        merged.texts.all.reserve(parts.iter().map(|(part, _)| part.texts.all.len()).sum());
        merged.of.reserve(parts.iter().map(|(part, _)| part.of.len()).sum());
        let texts: Vec<&Texts> = parts.iter().map(|(part, _)| &part.texts).collect();
        in_order(&texts, |part, at, text| {
            let (postings, now) = parts[part];
            let before = merged.of.len();
            merged.of.extend(postings.list(at).iter().map(|one| now[*one as usize]).filter(|one| *one != GONE));
            if merged.of.len() == before {
                return;
            }
            let last = merged.len().checked_sub(1);
            match last.filter(|last| merged.texts.get(*last) == text) {
                Some(last) => merged.ends[last] = number(merged.of.len()),
                None => {
                    merged.texts.push(text);
                    merged.ends.push(number(merged.of.len()));
                }
            }
            moved[part][at] = number(merged.len() - 1);
        });
        merged.shrink();
        (merged, moved)
    }

    fn shrink(&mut self) {
        self.texts.shrink();
        self.ends.shrink_to_fit();
        self.of.shrink_to_fit();
    }
}

/// Calls `next` with all texts of several sorted lists in ascending order, each with the number of its list and its
/// index there.
pub(super) fn in_order<'t>(parts: &[&'t Texts], mut next: impl FnMut(usize, usize, &'t str)) {
    let first = parts.iter().enumerate().filter(|(_, texts)| texts.len() > 0);
    let mut heads: BinaryHeap<Reverse<(&str, usize, usize)>> =
        first.map(|(part, texts)| Reverse((texts.get(0), part, 0))).collect();
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((text, part, at)) = *head;
        if at + 1 < parts[part].len() {
            *head = Reverse((parts[part].get(at + 1), part, at + 1));
        } else {
            PeekMut::pop(head);
        }
        next(part, at, text);
    }
}

/// Collects texts in any order.
#[derive(Default)]
pub(super) struct TextCollector {
    texts: Texts,
    /// The indexes of the texts by hash.
    known: HashTable<u32>,
    /// Seeded randomly against collision attacks.
    hasher: RandomState,
    /// The last owner of each text.
    last: Vec<u32>,
    /// Pairs of a text and an owner.
    pairs: Vec<(u32, u32)>,
}

impl TextCollector {
    /// Adds an owner of a text.
    pub(super) fn note(&mut self, text: &str, one: u32) {
        let Self { texts, known, hasher, last, pairs } = self;
        let hash = hasher.hash_one(text);
        let place = match known.find(hash, |place| texts.get(*place as usize) == text) {
            Some(place) => *place,
            None => {
                let place = number(texts.len());
                texts.push(text);
                last.push(GONE);
                known.insert_unique(hash, place, |place| hasher.hash_one(texts.get(*place as usize)));
                place
            }
        };
        if std::mem::replace(&mut last[place as usize], one) != one {
            pairs.push((place, one));
        }
    }

    /// The approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let a_text = size_of::<u32>() * 2 + size_of::<u64>();
        self.texts.bytes() + self.texts.len() * a_text + self.pairs.capacity() * size_of::<(u32, u32)>()
    }

    /// Sorts the texts and owners.
    pub(super) fn finish(self) -> Postings {
        let Self { texts, pairs, .. } = self;
        let mut order: Vec<u32> = (0..number(texts.len())).collect();
        order.sort_unstable_by(|one, other| texts.get(*one as usize).cmp(texts.get(*other as usize)));
        let mut places = vec![0; texts.len()];
        let mut ascending = Texts::default();
        for (place, text) in order.iter().enumerate() {
            places[*text as usize] = place;
            ascending.push(texts.get(*text as usize));
        }
        // `ends` first has the number of owners of each text, then their start, and after insertion their end.
        let mut ends = vec![0; texts.len()];
        pairs.iter().for_each(|(text, _)| ends[places[*text as usize]] += 1);
        let mut begin = 0;
        for end in &mut ends {
            begin += std::mem::replace(end, begin);
        }
        let mut of = vec![0; pairs.len()];
        for (text, one) in pairs {
            let next = &mut ends[places[text as usize]];
            of[*next as usize] = one;
            *next += 1;
        }
        ascending.shrink();
        Postings { texts: ascending, ends, of }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<String, BTreeSet<u32>>;

    fn postings_of(pairs: &[(String, u32)]) -> Postings {
        let mut noted = TextCollector::default();
        pairs.iter().for_each(|(text, one)| noted.note(text, *one));
        noted.finish()
    }

    fn check(postings: &Postings, model: &Model) {
        let found: Vec<(&str, BTreeSet<u32>)> = (0..postings.len())
            .map(|at| (postings.texts.get(at), postings.list(at).iter().copied().collect()))
            .collect();
        let expected: Vec<(&str, BTreeSet<u32>)> = model.iter().map(|(text, of)| (&**text, of.clone())).collect();
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn texts_are_noted_merged_and_found(
            parts in vec(vec(("[a-c]{0,3}", 0..20u32), 0..40), 1..4),
            gone in btree_set(0..20u32, 0..12),
        ) {
            // The merge gives the owners of each part new numbers and removes some owners.
            let mut whole = Model::new();
            let (mut made, mut now) = (Vec::new(), Vec::new());
            for (part, pairs) in (0..).zip(&parts) {
                let mut model = Model::new();
                pairs.iter().for_each(|(text, one)| {
                    model.entry(text.clone()).or_default().insert(*one);
                    if !gone.contains(one) {
                        whole.entry(text.clone()).or_default().insert(part * 100 + *one);
                    }
                });
                let mut sorted = pairs.clone();
                sorted.sort_by_key(|(_, one)| *one);
                let postings = postings_of(&sorted);
                check(&postings, &model);
                made.push(postings);
                now.push((0..20).map(|one| if gone.contains(&one) { GONE } else { part * 100 + one }).collect::<Vec<u32>>());
            }
            let all: Vec<(&Postings, &[u32])> = made.iter().zip(&now).map(|(made, now)| (made, &**now)).collect();
            let (merged, moved) = Postings::merged(&all);
            check(&merged, &whole);
            for (part, moved) in made.iter().zip(&moved) {
                for (at, to) in moved.iter().enumerate().filter(|(_, to)| **to != GONE) {
                    prop_assert_eq!(part.texts.get(at), merged.texts.get(*to as usize));
                }
            }
        }

        #[test]
        fn the_text_that_holds_a_byte_is_found_from_anywhere_before(texts in btree_map("[a-c]{1,4}", Just(()), 1..40)) {
            let mut all = Texts::default();
            texts.keys().for_each(|text| all.push(text));
            for (place, text) in texts.keys().enumerate() {
                prop_assert_eq!(all.before(text), place);
                for from in 0..=place {
                    prop_assert_eq!(all.holding(all.start(place), from), place);
                    prop_assert_eq!(all.holding(all.end(place) - 1, from), place);
                }
            }
        }
    }
}
