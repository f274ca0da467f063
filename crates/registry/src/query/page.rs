//! Pages of the result of a query, with a token for the next page, and with counts.
//!
//! A page costs O(log n) and its objects, wherever it begins.

use std::sync::Arc;

use keelson_cache::{Entry, Position, Snapshot, View};
use keelson_meta::{ApiError, Revision};
use keelson_query::{QueryToken, TokenRevision};
use keelson_storage::behind;
use tokio::task::yield_now;

use super::plan::{QueryPlan, Start};
use super::{FailedEvaluations, KeyRange, PlannedQuery, QuerySource, SelectedSnapshot};
use crate::list::ListItems;

/// The number of objects that are found before the task yields.
const FOUND_AT_ONCE: usize = 1024;

/// A page of the result of a query.
pub struct QueryPage {
    /// The revision of the snapshot that the whole walk is read from.
    pub revision: Revision,
    /// The token of the next page; `None` when this one completes the result.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if any.
    pub remaining: Option<u64>,
    /// The objects.
    pub items: ListItems,
    /// The number of objects in the whole result.
    pub total: usize,
    /// The number of objects scanned to build the view; 0 if it existed.
    pub looked_at: usize,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

pub(super) fn none() -> ListItems {
    ListItems::Chosen(Vec::new())
}

/// Cuts the planned page.
pub(super) async fn cut(asked: &PlannedQuery, shown: QuerySource, looked_at: usize) -> Result<QueryPage, ApiError> {
    let PlannedQuery { plan, sought: SelectedSnapshot { snapshot, wanted, .. } } = asked;
    let failures = match &shown {
        QuerySource::Range(_) => FailedEvaluations::default(),
        QuerySource::View(view) => wanted.failures(view),
    };
    let (total, begin) = match &shown {
        QuerySource::Range(range) => {
            (snapshot.count(&range.from, range.to.as_deref()), begin_in_range(snapshot, range, plan))
        }
        QuerySource::View(view) => (view.len(), begin_in_view(view, plan)),
    };
    let begin = begin.min(total);
    let end = plan.limit.map_or(total, |limit| begin.saturating_add(limit).min(total));
    let (items, last) = match &shown {
        QuerySource::Range(range) => part_of_range(snapshot, range, begin, end),
        QuerySource::View(view) => part_of_view(snapshot, view, begin, end).await?,
    };
    let continue_token = last.filter(|_| end < total).map(|(place, key)| {
        let revision = TokenRevision::At(snapshot.revision);
        plan.form.give(QueryToken { revision, query: plan.fingerprint, place, key }.encode())
    });
    Ok(QueryPage {
        revision: snapshot.revision,
        remaining: continue_token.is_some().then_some((total - end) as u64),
        continue_token,
        items,
        total,
        looked_at,
        failures,
    })
}

/// The place in the view and the key of an object.
type Last = Option<(Vec<u8>, String)>;

fn begin_in_range(snapshot: &Snapshot, range: &KeyRange, plan: &QueryPlan) -> usize {
    match &plan.start {
        Start::Rank(rank) => *rank,
        Start::Behind(token) => snapshot.rank(&behind(&token.key)).saturating_sub(snapshot.rank(&range.from)),
    }
}

fn begin_in_view(view: &View, plan: &QueryPlan) -> usize {
    match &plan.start {
        Start::Rank(rank) => *rank,
        Start::Behind(token) => view.rank_behind(&token.place, &token.key),
    }
}

fn part_of_range(snapshot: &Snapshot, range: &KeyRange, begin: usize, end: usize) -> (ListItems, Last) {
    let first = snapshot.rank(&range.from);
    let key = |rank: usize| snapshot.nth(first + rank).map(|entry| entry.key.to_string());
    let (Some(from), Some(last)) = (key(begin), end.checked_sub(1).and_then(key).filter(|_| begin < end)) else {
        return (none(), None);
    };
    let to = behind(&last);
    let items = ListItems::Range { cursor: snapshot.cursor(&from, Some(&to)), bytes: snapshot.bytes(&from, Some(&to)) };
    (items, Some((Vec::new(), last)))
}

async fn part_of_view(
    snapshot: &Snapshot,
    view: &View,
    begin: usize,
    end: usize,
) -> Result<(ListItems, Last), ApiError> {
    let mut positions = view.positions(begin, end);
    let mut chosen: Vec<Arc<Entry>> = Vec::with_capacity(end.saturating_sub(begin));
    let mut last = None;
    while let Some(Position { place, key }) = positions.next_position() {
        // The view and the entries are of one snapshot.
        let missing = || ApiError::Internal(format!("{key:?} stands in a view of a snapshot that it is not in"));
        chosen.push(snapshot.get(key).ok_or_else(missing)?.clone());
        if begin + chosen.len() == end {
            last = Some((place.to_vec(), key.to_owned()));
        }
        if chosen.len().is_multiple_of(FOUND_AT_ONCE) {
            yield_now().await;
        }
    }
    Ok((ListItems::Chosen(chosen), last))
}
