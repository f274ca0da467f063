//! Indexes of fields for queries: the objects by their value at a path, kept as a view.
//!
//! A filter or selector that requires a value at a path then reads only the objects with that value. An index is built
//! after a few queries that could have used it, or at once if the operator configured the path. It shares the memory
//! limit of all views, and is evicted with them.

use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::{Collection, Entry, LookupResult as Kept, Position, Snapshot, View};
use keelson_meta::ApiError;
use keelson_query::Query;
use tokio::task::yield_now;

use super::making::{candidates, view_of};
use super::{QueryEvaluator, SelectedSnapshot};

/// A scan of at most this many objects needs no index.
const FEW: usize = 256;
/// An index is built after this many queries that it would have helped.
const MISSED: usize = 3;
/// Skipping this many objects costs as much as finding one by key.
const STEPPED_OVER: usize = 8;
/// A selector finds at most this many objects by key.
const MANY: usize = 4096;
/// The number of objects that are found before the task yields.
const FOUND_AT_ONCE: usize = 1024;

/// Objects, and the number of objects scanned to find them.
type IndexMatches = Option<(Vec<Arc<Entry>>, usize)>;

/// The candidates from the index that has the fewest, and the number of objects scanned to update the indexes. `None`
/// if no index helps.
pub(super) fn find(sought: &SelectedSnapshot) -> BoxFuture<'_, Result<IndexMatches, ApiError>> {
    // Boxed, since an index is a view, and building a view may use an index.
    Box::pin(find_in_indexes(sought))
}

async fn find_in_indexes(sought: &SelectedSnapshot) -> Result<IndexMatches, ApiError> {
    let SelectedSnapshot { collection, snapshot, wanted, owner } = sought;
    let most = candidates(snapshot, wanted);
    let mut shortest: Option<(View, Ranks)> = None;
    let mut looked_at = 0;
    for (index, value, is_fixed) in wanted.indexes() {
        let is_kept = || !matches!(collection.find_view(&index.name, snapshot), Kept::Nothing);
        if !is_fixed && (most <= FEW || (!is_kept() && collection.miss_view(&index.name) < MISSED)) {
            continue;
        }
        let (collection, snapshot) = (collection.clone(), snapshot.clone());
        let index = SelectedSnapshot { collection, snapshot, wanted: Arc::new(index), owner: *owner };
        // An object may have too many values for an index, or a stored version that is unknown here. The query then
        // reports the error itself.
        let Ok((view, looks)) = view_of(&index).await else { continue };
        looked_at += looks;
        let ranks = Ranks::new(&view, value);
        if shortest.as_ref().is_none_or(|(_, shortest)| ranks.count() < shortest.count()) {
            shortest = Some((view, ranks));
        }
    }
    // Without conditions inside of objects, skipping some costs less than looking many up by key.
    let most = if wanted.query.is_plain() { (most / STEPPED_OVER).min(MANY) } else { most };
    let Some((view, ranks)) = shortest.filter(|(_, ranks)| ranks.count() < most) else { return Ok(None) };
    let mut entries = Vec::with_capacity(ranks.count());
    for (from, to) in ranks.0 {
        let mut positions = view.positions(from, to);
        while let Some(Position { key, .. }) = positions.next_position() {
            // The index and the entries are of one snapshot.
            entries.extend(snapshot.get(key).cloned());
            if entries.len().is_multiple_of(FOUND_AT_ONCE) {
                yield_now().await;
            }
        }
    }
    Ok(Some((entries, looked_at)))
}

/// The number of objects that an existing index would find, approximately. `None` without an index.
pub(super) fn about(collection: &Collection, snapshot: &Snapshot, wanted: &QueryEvaluator) -> Option<usize> {
    let found = wanted.indexes().filter_map(|(index, value, _)| match collection.find_view(&index.name, snapshot) {
        Kept::Exact(view) | Kept::Near { view, .. } => Some(Ranks::new(&view, value).count()),
        Kept::Nothing => None,
    });
    found.min()
}

/// The ranges of objects with a value, or with one of the same spelling.
struct Ranks(Vec<(usize, usize)>);

impl Ranks {
    fn new(view: &View, value: &str) -> Self {
        let of_place = |place: Vec<u8>| (view.rank_before_place(&place), view.rank_behind_place(&place));
        Self(Query::places_in_index(value).map(of_place).collect())
    }

    fn count(&self) -> usize {
        self.0.iter().map(|(from, to)| to - from).sum()
    }
}
