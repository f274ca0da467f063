//! Builds the index of many entries.
//!
//! A pair of a term and an entry is recorded as two numbers, in the order of entries. At the end, the terms are sorted.
//! So texts are compared once for each term and not for each entry, and a term of a single entry needs no allocation.

use std::collections::HashMap;
use std::sync::Arc;

use super::{DISPATCH_MARK, dispatched};
use crate::common::{CommonTerms, is_common};
use crate::cores::order;
use crate::entry::Entry;
use crate::postings::{Postings, Term};

/// A term of at least one entry.
struct TermEntries<'a> {
    /// The prefix of the text.
    mark: &'static str,
    text: &'a str,
    /// The number of entries with the term.
    count: usize,
}

impl TermEntries<'_> {
    const fn text(&self) -> [&str; 2] {
        [self.mark, self.text]
    }
}

/// The terms of some entries.
#[derive(Default)]
struct Pairs<'a> {
    terms: Vec<TermEntries<'a>>,
    /// The indexes in `terms` by the address of the text. Labels are interned, so one text has one address.
    labels: HashMap<*const u8, u32>,
    /// Indexes in `terms` by text.
    values: HashMap<&'a str, u32>,
    /// The indexes of a term and of an entry with it, in the order of entries.
    pairs: Vec<(u32, u32)>,
}

impl<'a> Pairs<'a> {
    fn new(entries: &'a [Arc<Entry>], dispatch: Option<usize>) -> Self {
        let mut found = Self::default();
        for (place, entry) in (0..).zip(entries) {
            for label in entry.labels.terms() {
                let term = *found.labels.entry(Arc::as_ptr(label).cast()).or_insert_with(|| {
                    found.terms.push(TermEntries { mark: "", text: label, count: 0 });
                    place_of_last(&found.terms)
                });
                found.note(term, place);
            }
            if let Some(value) = dispatched(entry, dispatch) {
                let term = *found.values.entry(value).or_insert_with(|| {
                    found.terms.push(TermEntries { mark: DISPATCH_MARK, text: value, count: 0 });
                    place_of_last(&found.terms)
                });
                found.note(term, place);
            }
        }
        found
    }

    fn note(&mut self, term: u32, entry: u32) {
        self.terms[term as usize].count += 1;
        self.pairs.push((term, entry));
    }
}

fn place_of_last<T>(all: &[T]) -> u32 {
    u32::try_from(all.len() - 1).expect("memory has no room for so many labels")
}

/// A term to be indexed.
struct IndexedTerm {
    /// Its index among the terms found.
    term: u32,
    /// The position of its next entry. At the end, the start of the next term's entries.
    next: usize,
}

/// Builds the index of these entries, which are sorted by key. Also returns their common terms.
pub(super) fn index(entries: &[Arc<Entry>], dispatch: Option<usize>) -> (Postings, CommonTerms) {
    let Pairs { terms, pairs, .. } = Pairs::new(entries, dispatch);
    let (mut posted, of_term, common) = rank(&terms, entries.len());
    let mut having = vec![0_u32; pairs.len()];
    for (term, entry) in pairs {
        let Some(rank) = of_term[term as usize] else { continue };
        let IndexedTerm { next, .. } = &mut posted[rank as usize];
        having[*next] = entry;
        *next += 1;
    }
    let mut begin = 0;
    let postings = posted.iter().filter_map(|IndexedTerm { term, next: end }| {
        let having = &having[std::mem::replace(&mut begin, *end)..*end];
        Some((Term::new(&terms[*term as usize].text())?, having.iter().map(|entry| &*entries[*entry as usize].key)))
    });
    (Postings::from_sorted(postings), common)
}

/// Returns the indexed terms in ascending order, each with the start of its entries. Also returns their position by
/// term number, and the terms that are common among this number of objects.
fn rank(terms: &[TermEntries<'_>], objects: usize) -> (Vec<IndexedTerm>, Vec<Option<u32>>, CommonTerms) {
    let ascending = order(terms, TermEntries::text);
    let (mut posted, mut of_term, mut common) = (Vec::new(), vec![None; terms.len()], CommonTerms::default());
    let mut next = 0;
    // Equal texts at two addresses are one term.
    for same in ascending.chunk_by(|a, b| terms[*a as usize].text() == terms[*b as usize].text()) {
        let Some(term) = Term::new(&terms[same[0] as usize].text()) else { continue };
        let count = same.iter().map(|term| terms[*term as usize].count).sum();
        if is_common(count, objects) {
            common.add(term.text(), count);
            continue;
        }
        posted.push(IndexedTerm { term: same[0], next });
        next += count;
        same.iter().for_each(|term| of_term[*term as usize] = Some(place_of_last(&posted)));
    }
    (posted, of_term, common)
}
