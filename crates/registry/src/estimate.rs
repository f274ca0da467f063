//! An estimate of a request before it is answered: the number of objects scanned, and their bytes.
//!
//! The trees of the cache count their contents, so an estimate costs O(log n) and never waits. It is about the present
//! state of the cache, whatever revision is requested. Limits on the total work use it.

use keelson_meta::options::ListOptions;
use keelson_query::Query;

use crate::config::PartialRights;
use crate::list::{KeyRange, ListPlan};
use crate::query::QueryEvaluator;
use crate::registry::Registry;
use crate::selection::Selection;
use crate::target::Target;

/// The estimated work of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The size of the objects as JSON in bytes, approximately.
    pub bytes: u64,
    /// The largest number of objects scanned.
    pub looked_at: u64,
    /// True if a selector filters the scanned objects.
    pub is_selected: bool,
    /// The number of times that each byte of a written object may be read, beyond an ordinary write. `u64::MAX` if even
    /// a small object may take long, also in a query.
    pub effort: u64,
}

/// More than this many walks through one large object take longer than a request may hold a thread.
const MANY_WALKS: usize = 4;
/// The assumed size of an unknown object in JSON: the largest that is stored by default.
const ANY_OBJECT_BYTES: u64 = 3 << 19;

impl Estimate {
    const NOTHING: Self = Self { bytes: 0, looked_at: 0, is_selected: false, effort: 0 };

    /// One object whose bytes are copied. The cost is negligible for any number of bytes.
    pub const fn copied_object() -> Self {
        Self { looked_at: 1, ..Self::NOTHING }
    }

    /// One object of unknown size.
    pub const fn any_object() -> Self {
        Self { bytes: ANY_OBJECT_BYTES, looked_at: 1, ..Self::NOTHING }
    }
}

impl Registry {
    /// The objects that a list scans. Nothing if its options are invalid.
    pub fn estimate_list(&self, target: &Target, options: &ListOptions) -> Estimate {
        let planned = Selection::new(target, options).and_then(|selection| {
            Ok((selection, ListPlan::new(target, options, &self.config, None, PartialRights::AsOthers)?))
        });
        let (Ok((selection, plan)), Ok(collection)) = (planned, self.collection(target)) else {
            return Estimate::default();
        };
        let snapshot = collection.snapshot();
        let range = KeyRange::below(&target.key_prefix(), &plan.start).narrowed(target, &selection);
        let (from, to) = (range.from.as_str(), range.to.as_deref());
        let (objects, bytes) = (snapshot.count(from, to), snapshot.bytes(from, to));
        let is_selected = !selection.is_everything();
        let looked_at = if is_selected {
            let candidates = snapshot.select(&selection.index_terms(target), from, to);
            let found = candidates.size_hint().1.unwrap_or(objects);
            // A chunk with a selector ends when it is full, or when this many entries were scanned.
            if plan.limit.is_some() { found.min(self.config.bounds.scan) } else { found }
        } else {
            plan.limit.map_or(objects, |limit| objects.min(limit))
        };
        let bytes = part_of(bytes, looked_at, objects);
        Estimate { bytes, looked_at: looked_at as u64, is_selected, ..Estimate::default() }
    }

    /// The objects that a query scans and returns. It scans next to nothing if its sorted index exists already.
    pub fn estimate_query(&self, target: &Target, options: &ListOptions, query: &Query) -> Estimate {
        let (Ok(selection), Ok(collection)) = (Selection::new(target, options), self.collection(target)) else {
            return Estimate::default();
        };
        let snapshot = collection.snapshot();
        let (objects, bytes) = (snapshot.len(), snapshot.bytes("", None));
        let wanted = QueryEvaluator::new(target, options, query.clone(), selection).indexed(&self.config);
        let looks = self.estimate_looks(&wanted, &collection, &snapshot);
        let shown =
            if query.group_by.is_some() { 0 } else { options.limit.map_or(objects, |limit| limit.get().min(objects)) };
        let looked_at = (looks + shown) as u64;
        // Even a few objects count, if each of them may take long.
        let is_long = looks > 0 && (query.is_slow() || query.walks() > MANY_WALKS);
        let effort = if is_long { u64::MAX } else { 0 };
        Estimate { bytes: part_of(bytes, shown, objects), looked_at, is_selected: true, effort }
    }

    /// The initial events of a watch. Nothing if the watch does not request them.
    pub fn estimate_watch(&self, target: &Target, options: &ListOptions) -> Estimate {
        if !options.send_initial_events {
            return Estimate::default();
        }
        // With its resourceVersionMatch, a list would apply its limit, and the estimate would be too small.
        let listed = ListOptions { resource_version_match: None, ..options.clone() };
        Estimate { is_selected: false, ..self.estimate_list(target, &listed) }
    }

    /// The initial objects of a watch with a query, which it evaluates.
    pub fn estimate_query_watch(&self, target: &Target, options: &ListOptions, query: &Query) -> Estimate {
        if query.is_live_page() {
            return Estimate { is_selected: false, ..self.estimate_query(target, options, query) };
        }
        let begun = self.estimate_watch(target, options);
        Estimate { looked_at: begun.looked_at.saturating_mul(query.walks() as u64), ..begun }
    }

    /// The objects of a list whose selectors are not parsed yet, with or without a limit.
    pub fn estimate_unread(&self, target: &Target, limited: bool) -> Estimate {
        let Ok(collection) = self.collection(target) else { return Estimate::default() };
        let (snapshot, range) = (collection.snapshot(), KeyRange::below(&target.key_prefix(), ""));
        let (from, to) = (range.from.as_str(), range.to.as_deref());
        let (objects, bytes) = (snapshot.count(from, to), snapshot.bytes(from, to));
        let looked_at = if limited { objects.min(self.config.bounds.scan) } else { objects };
        let bytes = part_of(bytes, looked_at, objects);
        Estimate { bytes, looked_at: looked_at as u64, is_selected: true, ..Estimate::default() }
    }

    /// The object that a request names.
    pub fn estimate_object(&self, target: &Target) -> Estimate {
        let (Some(name), Ok(collection)) = (&target.name, self.collection(target)) else {
            return Estimate::default();
        };
        let bytes = collection.get(&target.relative_key(name)).map_or(0, |entry| entry.list_bytes());
        Estimate { bytes, looked_at: 1, ..Estimate::default() }
    }
}

/// The size of `some` of `all` objects in bytes, by their average.
fn part_of(bytes: u64, some: usize, all: usize) -> u64 {
    u64::try_from(u128::from(bytes) * some as u128 / all.max(1) as u128).unwrap_or(u64::MAX)
}
