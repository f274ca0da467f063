//! One immutable part of a search index, which finds words without reading the objects.
//!
//! A part holds the distinct texts of its objects in one piece of memory, which is short compared with the objects.
//! Searching for a part of a text is one pass over it. For typing errors, a part holds distinct words, each with a bit
//! set of its letters. So the search compares few words letter by letter.

use std::cmp::Reverse;
use std::ops::Range;

use memchr::memmem::Finder;

use super::postings::{GONE, Postings, TextCollector, Texts, in_order, number};
use super::texts::{SearchedTexts, weight_of};
use super::{MatchKind, Word, found_in, is_near, words_of};

/// The lengths of words that may match with typing errors, in bytes.
const COMPARED: Range<usize> = super::ONE_ERROR_FROM - 1..super::MAX_NEAR * 4 + 1;

/// Objects by ascending keys. Immutable.
#[derive(Default)]
pub(super) struct Part {
    keys: Texts,
    /// The texts, each with its objects.
    texts: Postings,
    /// The words, each with its texts.
    words: Postings,
    /// The letters of each word.
    letters: Vec<u64>,
}

/// Objects to index, by ascending keys.
#[derive(Default)]
pub struct GatheredTexts {
    keys: Texts,
    texts: TextCollector,
}

impl GatheredTexts {
    /// Adds an object. Its key must be greater than all earlier ones.
    pub fn add(&mut self, key: &str, texts: &SearchedTexts) {
        let object = number(self.keys.len());
        self.keys.push(key);
        texts.marked().for_each(|text| self.texts.note(text, object));
    }

    /// Returns true if there are no objects.
    pub const fn is_empty(&self) -> bool {
        self.keys.len() == 0
    }

    /// The approximate memory in bytes.
    pub fn bytes(&self) -> u64 {
        (self.keys.bytes() + self.texts.bytes()) as u64
    }

    pub(super) fn finish(self) -> Part {
        let texts = self.texts.finish();
        let mut words = TextCollector::default();
        for (place, text) in texts.texts.iter().enumerate() {
            let compared = words_of(&text[1..]).filter(|word| COMPARED.contains(&word.len()));
            compared.for_each(|word| words.note(word, number(place)));
        }
        Part::with(self.keys, texts, words.finish())
    }
}

impl Part {
    fn with(keys: Texts, texts: Postings, words: Postings) -> Self {
        let letters = words.texts.iter().map(letters).collect();
        Self { keys, texts, words, letters }
    }

    /// Merges parts with distinct keys, keeping the objects for which `is_left` returns true.
    pub(super) fn merged(parts: &[&Self], is_left: impl Fn(usize, usize) -> bool) -> Self {
        let mut keys = Texts::default();
        let mut objects: Vec<Vec<u32>> = parts.iter().map(|part| vec![GONE; part.len()]).collect();
        in_order(&parts.iter().map(|part| &part.keys).collect::<Vec<_>>(), |part, at, key| {
            if is_left(part, at) {
                objects[part][at] = number(keys.len());
                keys.push(key);
            }
        });
        let of = |part: fn(&Self) -> &Postings, now: &[Vec<u32>]| {
            let parts: Vec<(&Postings, &[u32])> =
                parts.iter().zip(now).map(|(one, now)| (part(one), now.as_slice())).collect();
            Postings::merged(&parts)
        };
        let (texts, places) = of(|part| &part.texts, &objects);
        let (words, _) = of(|part| &part.words, &places);
        Self::with(keys, texts, words)
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, object: usize) -> &str {
        self.keys.get(object)
    }

    /// The object with a key.
    pub(super) fn find_key(&self, key: &str) -> Option<usize> {
        let place = self.keys.before(key);
        (place < self.len() && self.key(place) == key).then_some(place)
    }

    /// The objects in a range of keys.
    pub(super) fn range(&self, from: &str, to: Option<&str>) -> Range<usize> {
        self.keys.before(from)..to.map_or(self.len(), |to| self.keys.before(to))
    }

    /// The approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.keys.bytes() + self.texts.bytes() + self.words.bytes() + self.letters.capacity() * size_of::<u64>()
    }

    /// The scores and indexes of the live objects of a range that contain all words, by descending score and ascending
    /// key.
    pub(super) fn find(&self, words: &[Word], range: Range<usize>, is_left: impl Fn(usize) -> bool) -> Vec<(u16, u32)> {
        let Some((first, others)) = words.split_first() else { return Vec::new() };
        let mut scores = vec![0; self.len()];
        self.points(first, &mut scores);
        let mut points = vec![0; if others.is_empty() { 0 } else { self.len() }];
        for word in others {
            points.fill(0);
            self.points(word, &mut points);
            let both = |score: u16, points: u16| if score == 0 || points == 0 { 0 } else { score + points };
            scores.iter_mut().zip(&points).for_each(|(score, points)| *score = both(*score, *points));
        }
        let found = range.filter(|object| scores[*object] > 0 && is_left(*object));
        let mut found: Vec<(u16, u32)> = found.map(|object| (scores[object], number(object))).collect();
        // The sort is stable and keeps the order of keys. There are few distinct scores.
        found.sort_by_key(|(score, _)| Reverse(*score));
        found
    }

    /// Raises the score of each object that contains the word.
    fn points(&self, word: &Word, best: &mut [u16]) {
        let mut note = |text: usize, manner: MatchKind| {
            let points = manner.points() * weight_of(self.texts.texts.get(text));
            for object in self.texts.list(text) {
                let best = &mut best[*object as usize];
                *best = points.max(*best);
            }
        };
        let mut is_part = vec![false; if word.errors > 0 { self.texts.len() } else { 0 }];
        let (finder, all) = (Finder::new(&word.text), self.texts.texts.all().as_bytes());
        let (mut at, mut text) = (0, 0);
        while let Some(found) = finder.find(&all[at..]) {
            text = self.texts.texts.holding(at + found, text);
            if let Some(manner) = found_in(word, &self.texts.texts.get(text)[1..]) {
                note(text, manner);
            }
            if let Some(is_part) = is_part.get_mut(text) {
                *is_part = true;
            }
            at = self.texts.texts.end(text);
        }
        if word.errors > 0 {
            self.near(word, |text| {
                if !is_part[text] {
                    note(text, MatchKind::Error);
                }
            });
        }
    }

    /// Calls `found` with the texts that contain the word with typing errors.
    fn near(&self, word: &Word, mut found: impl FnMut(usize)) {
        let wanted = letters(&word.text);
        for (place, letters) in self.letters.iter().enumerate() {
            // An error removes at most one letter and adds at most one.
            let differ = (wanted & !letters).count_ones().max((letters & !wanted).count_ones());
            if differ as usize <= word.errors && is_near(&word.letters, self.words.texts.get(place), word.errors) {
                self.words.list(place).iter().for_each(|text| found(*text as usize));
            }
        }
    }
}

/// The letters of a word as bits. Several letters may share a bit, so the comparison of bits never excludes a match.
fn letters(word: &str) -> u64 {
    const DIGITS: u32 = 10;
    const LETTERS: u32 = 26;
    word.chars().fold(0, |letters, letter| {
        let bit = match letter {
            '0'..='9' => u32::from(letter) - u32::from('0'),
            'a'..='z' => DIGITS + u32::from(letter) - u32::from('a'),
            _ => DIGITS + LETTERS + u32::from(letter) % (u64::BITS - DIGITS - LETTERS),
        };
        letters | 1 << bit
    })
}
