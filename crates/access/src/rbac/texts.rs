//! The rules that have a text in one of their fields, and sets of rules as bits.
//!
//! A lookup over many rules walks lists of numbers, and compares no texts.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Some of the rules of a list: a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleSet(Vec<u64>);

impl RuleSet {
    /// No rule of so many.
    pub(super) fn none(rules: usize) -> Self {
        Self(vec![0; rules.div_ceil(64)])
    }

    /// All rules of so many.
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

    /// Keeps the rules that are in another set too.
    pub(super) fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one &= other);
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one & other).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Returns true if a rule is in all three.
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

/// The numbers of the rules that have a text in one of their fields.
#[derive(Debug)]
pub(super) struct Texts<K>(HashMap<K, Vec<u32>>);

impl<K: Borrow<str> + Hash + Eq> Texts<K> {
    /// Reads the texts of each rule, in the order of the rules.
    pub(super) fn of(texts: impl Iterator<Item = impl Iterator<Item = K>>) -> Self {
        let mut rules: HashMap<K, Vec<u32>> = HashMap::new();
        for (number, texts) in (0u32..).zip(texts) {
            for text in texts {
                let having = rules.entry(text).or_default();
                // A rule may state a text more than once.
                if having.last() != Some(&number) {
                    having.push(number);
                }
            }
        }
        Self(rules)
    }

    /// The rules, of so many, that have one of these texts.
    pub(super) fn having(&self, rules: usize, texts: &[&str]) -> RuleSet {
        let mut having = RuleSet::none(rules);
        texts.iter().filter_map(|text| self.0.get(*text)).flatten().for_each(|rule| having.add(*rule as usize));
        having
    }
}
