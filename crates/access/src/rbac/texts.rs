//! Maps strings to the rules that have them in a field, and has sets of rules as bits.
//!
//! A lookup over many rules scans lists of numbers, and compares no strings.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A subset of a list of rules, with one bit for each rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleSet(Vec<u64>);

impl RuleSet {
    /// The empty subset of a list of this length.
    pub(super) fn none(rules: usize) -> Self {
        Self(vec![0; rules.div_ceil(64)])
    }

    /// The whole list, for a list of this length.
    pub(super) fn all(rules: usize) -> Self {
        let mut all = Self::none(rules);
        (0..rules).for_each(|rule| all.add(rule));
        all
    }

    pub(super) fn add(&mut self, rule: usize) {
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= other);
    }

    /// Intersects the set with another one.
    pub(super) fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one &= other);
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one & other).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Returns true if some rule is in all three sets.
    pub(super) fn meets(&self, second: &Self, third: &Self) -> bool {
        self.0.iter().zip(&second.0).zip(&third.0).any(|((one, two), three)| one & two & three != 0)
    }

    /// The numbers of the rules, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        let of_bits = |(place, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| place * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(of_bits)
    }
}

/// For each string, the numbers of the rules that have it in one field.
#[derive(Debug)]
pub(super) struct Texts<K>(HashMap<K, Vec<u32>>);

impl<K: Borrow<str> + Hash + Eq> Texts<K> {
    /// Indexes the strings of each rule, in the order of the rules.
    pub(super) fn new(texts: impl Iterator<Item = impl Iterator<Item = K>>) -> Self {
        let mut rules: HashMap<K, Vec<u32>> = HashMap::new();
        for (number, texts) in (0u32..).zip(texts) {
            for text in texts {
                let having = rules.entry(text).or_default();
                // A rule may have a string more than once.
                if having.last() != Some(&number) {
                    having.push(number);
                }
            }
        }
        Self(rules)
    }

    /// The rules, out of `rules`, that have one of these strings.
    pub(super) fn having(&self, rules: usize, texts: &[&str]) -> RuleSet {
        let mut having = RuleSet::none(rules);
        texts.iter().filter_map(|text| self.0.get(*text)).flatten().for_each(|rule| having.add(*rule as usize));
        having
    }
}
