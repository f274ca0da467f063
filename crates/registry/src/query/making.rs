//! Builds the view of a query from an earlier view and the changes since, or by a scan of all candidates.
//!
//! Concurrent requests for the same view share one build. A scan uses all cores and yields about every millisecond. It
//! is dropped with its request. The memory of unfinished views counts against one limit for all of them.

use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::{
    Collection, Entry, GatheredPositions, LookupResult, MemoryReservation, Places, PositionSource, Snapshot, Turn,
    View, ViewUpdate,
};
use keelson_meta::ApiError;
use keelson_supervision::{outcome, turns};
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;

use super::searching::Answer;
use super::turns::{TURN_BYTES, Turns, look_elsewhere};
use super::wanted::QueryEvaluator;
use super::{KeyRange, QuerySource, SelectedSnapshot, indexes, searching};
use crate::registry::Registry;

/// The number of places that are sorted at once.
const SORTED_AT_ONCE: usize = 4096;
/// The number of objects whose bytes are fetched together.
const FETCHED_AT_ONCE: usize = 16;
/// Memory is reserved in steps of this many bytes.
pub(super) const OWED_BYTES: u64 = 16 << 10;
/// A view with more places than this is built on another thread.
const BUILT_AT_ONCE: usize = 8192;
/// A scan of more objects than this is shared between the cores.
pub(super) const SHARED_FROM: usize = 8192;
/// One change costs as much as a scan of this many objects.
const CHANGE_LOOKS: usize = 4;
/// A view always catches up with this many changes, however few objects there are.
const FEW_CHANGES: usize = 64;

/// The source of a query's objects, and the number of scanned objects.
///
/// # Errors
/// As [`view_of`].
pub(super) async fn shown(sought: &SelectedSnapshot) -> Result<(QuerySource, usize), ApiError> {
    if sought.wanted.is_range() {
        return Ok((QuerySource::Range(sought.wanted.range.clone()), 0));
    }
    let (view, looked_at) = view_of(sought).await?;
    Ok((QuerySource::View(view), looked_at))
}

/// The view of a query, and the number of objects scanned to build it.
///
/// # Errors
/// 400 if some objects have no defined order, or if the view needs too much memory. 429 if there is not enough memory
/// now.
pub(super) fn view_of(sought: &SelectedSnapshot) -> BoxFuture<'_, Result<(View, usize), ApiError>> {
    Box::pin(kept_or_made(sought))
}

async fn kept_or_made(sought: &SelectedSnapshot) -> Result<(View, usize), ApiError> {
    let SelectedSnapshot { collection, snapshot, wanted, owner } = sought;
    if let LookupResult::Exact(view) = collection.find_view(&wanted.name, snapshot) {
        return Ok((view, 0));
    }
    let turn = collection.view_turn(&wanted.name);
    let _turn = turn.lock().await;
    let (view, looked_at) = match collection.find_view(&wanted.name, snapshot) {
        LookupResult::Exact(view) => return Ok((view, 0)),
        LookupResult::Near { snapshot: from, view } => match caught_up(view, &from, sought).await? {
            (Some(view), looked_at) => (view, looked_at),
            (None, looked_at) => {
                let (view, more) = build_view(sought).await?;
                (view, looked_at + more)
            }
        },
        LookupResult::Nothing => build_view(sought).await?,
    };
    wanted.check_known()?;
    collection.keep_view(*owner, &wanted.name, snapshot, &view);
    Ok((view, looked_at))
}

impl Registry {
    /// The largest number of objects scanned for a view of the newest snapshot.
    pub(crate) fn estimate_looks(
        &self,
        wanted: &QueryEvaluator,
        collection: &Collection,
        snapshot: &Snapshot,
    ) -> usize {
        if wanted.is_range() {
            return 0;
        }
        let weight = usize::try_from(wanted.weight_of_byte()).unwrap_or(1);
        let looks = match collection.find_view(&wanted.name, snapshot) {
            LookupResult::Exact(_) => 0,
            LookupResult::Near { snapshot: from, .. } => {
                // The number of changed objects is at most the number of writes to all collections.
                let writes = snapshot.revision.get().abs_diff(from.revision.get());
                candidates(snapshot, wanted).min(usize::try_from(writes).unwrap_or(usize::MAX))
            }
            LookupResult::Nothing => {
                let by_index = || searching::about(collection, snapshot, wanted);
                let looks = indexes::about(collection, snapshot, wanted).or_else(by_index);
                looks.unwrap_or_else(|| candidates(snapshot, wanted))
            }
        };
        looks * weight
    }
}

/// The number of objects that a scan would read.
pub(super) fn candidates(snapshot: &Snapshot, wanted: &QueryEvaluator) -> usize {
    let KeyRange { from, to } = &wanted.range;
    let selected = snapshot.select(&wanted.index_terms(), from, to.as_deref());
    selected.size_hint().1.unwrap_or_else(|| snapshot.len())
}

/// Updates the view to another snapshot, and returns the number of changes. No view if a scan costs less than the
/// changes.
async fn caught_up(view: View, from: &Snapshot, sought: &SelectedSnapshot) -> Result<(Option<View>, usize), ApiError> {
    let SelectedSnapshot { collection, snapshot: to, wanted, owner } = sought;
    // The search index follows the changes in any case, and finds the rest without a scan.
    let is_known = searching::about(collection, to, wanted).is_some();
    let most = if is_known { FEW_CHANGES } else { candidates(to, wanted) / CHANGE_LOOKS + FEW_CHANGES };
    let (room, mut bytes) = (collection.view_room(*owner), view.bytes());
    let mut catching_up = ViewUpdate::new(view, from, to, &**wanted);
    loop {
        match catching_up.go_on(TURN_BYTES) {
            Turn::Over => break,
            Turn::More => {}
            Turn::Heavy(mut change) => {
                let wanted = wanted.clone();
                let looking = move || {
                    change.look(&*wanted);
                    change
                };
                catching_up.take_over(&turns::blocking(looking).await);
            }
        }
        if catching_up.looked_at() > most {
            return Ok((None, catching_up.looked_at()));
        }
        let grown = catching_up.view().bytes().saturating_sub(bytes);
        room.take(grown).map_err(|why| wanted.no_room(why))?;
        bytes += grown;
        yield_now().await;
    }
    let looked_at = catching_up.looked_at();
    Ok((Some(catching_up.into_view()), looked_at))
}

/// Builds the view from the objects that an index finds, or from all candidates. Also returns their number.
async fn build_view(sought: &SelectedSnapshot) -> Result<(View, usize), ApiError> {
    let SelectedSnapshot { collection, snapshot, wanted, owner } = sought;
    let found = indexes::find(sought).await?;
    let room = Arc::new(collection.view_room(*owner));
    let found = match found {
        Some((entries, looked_at)) => Some((Answer::Entries(entries), looked_at)),
        None => searching::find(sought, &room).await?,
    };
    let (parts, looked_at) = match found {
        Some((Answer::Places(parts), looked_at)) => (parts, looked_at),
        Some((Answer::Entries(entries), looked_at)) => {
            (looked_at_each(entries.iter(), wanted, &room).await?, looked_at + entries.len())
        }
        None => (gathered(snapshot, wanted, &room).await?, candidates(snapshot, wanted)),
    };
    Ok((built(parts, wanted, &room).await?, looked_at))
}

/// Builds the view of the gathered objects.
async fn built(
    mut parts: Vec<GatheredPositions>,
    wanted: &QueryEvaluator,
    room: &MemoryReservation,
) -> Result<View, ApiError> {
    room.take(parts.iter().map(GatheredPositions::bytes).sum()).map_err(|why| wanted.no_room(why))?;
    if parts.iter().map(GatheredPositions::len).sum::<usize>() <= BUILT_AT_ONCE {
        return Ok(View::new(&mut parts));
    }
    Ok(turns::blocking(move || View::new(&mut parts)).await)
}

/// The objects that a scan of all candidates finds.
async fn gathered(
    snapshot: &Snapshot,
    wanted: &Arc<QueryEvaluator>,
    room: &Arc<MemoryReservation>,
) -> Result<Vec<GatheredPositions>, ApiError> {
    if candidates(snapshot, wanted) <= SHARED_FROM {
        return looked_through(snapshot, wanted, &wanted.range, (true, room)).await;
    }
    let mut parts = Vec::new();
    for part in parts_of(snapshot, wanted) {
        let (snapshot, wanted, room) = (snapshot.clone(), wanted.clone(), room.clone());
        let is_whole = part == wanted.range;
        let looking = async move { looked_through(&snapshot, &wanted, &part, (is_whole, &room)).await };
        parts.push(AbortOnDropHandle::new(turns::spawn(looking)));
    }
    let mut gathered = Vec::new();
    for part in parts {
        gathered.extend(outcome(part).await?);
    }
    Ok(gathered)
}

/// The range in as many parts as there are cores. One part if an index has the objects.
pub(super) fn parts_of(snapshot: &Snapshot, wanted: &QueryEvaluator) -> Vec<KeyRange> {
    let KeyRange { from, to } = &wanted.range;
    let (first, count) = (snapshot.rank(from), snapshot.count(from, to.as_deref()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 || candidates(snapshot, wanted) < count {
        return vec![wanted.range.clone()];
    }
    let cuts = (1..cores).filter_map(|part| snapshot.nth(first + count * part / cores));
    let mut starts: Vec<String> =
        std::iter::once(from.clone()).chain(cuts.map(|entry| entry.key.to_string())).collect();
    starts.dedup();
    let ends = starts.iter().skip(1).cloned().map(Some).chain([to.clone()]);
    starts.iter().cloned().zip(ends).map(|(from, to)| KeyRange { from, to }).collect()
}

/// Scans a range, by an index or not, in parts that are sorted.
async fn looked_through(
    snapshot: &Snapshot,
    wanted: &Arc<QueryEvaluator>,
    range: &KeyRange,
    (indexed, room): (bool, &MemoryReservation),
) -> Result<Vec<GatheredPositions>, ApiError> {
    let terms = if indexed { wanted.index_terms() } else { Vec::new() };
    looked_at_each(snapshot.select(&terms, &range.from, range.to.as_deref()), wanted, room).await
}

/// Scans some objects.
async fn looked_at_each<'e>(
    entries: impl Iterator<Item = &'e Arc<Entry>> + Send,
    wanted: &Arc<QueryEvaluator>,
    room: &MemoryReservation,
) -> Result<Vec<GatheredPositions>, ApiError> {
    let mut parts = Vec::new();
    let mut part = GatheredPositions::default();
    let mut turns = Turns::new(wanted);
    // The memory of found objects that is not reserved yet. All threads share one reservation.
    let mut owed = 0;
    let (mut entries, mut ahead) = (entries.fuse(), Vec::with_capacity(FETCHED_AT_ONCE));
    loop {
        let Some(entry) = ahead.pop() else {
            ahead.extend(entries.by_ref().take(FETCHED_AT_ONCE));
            if ahead.is_empty() {
                break;
            }
            wanted.fetch(&ahead);
            ahead.reverse();
            continue;
        };
        let before = part.bytes();
        if wanted.is_heavy(entry) {
            part.add_places(&look_elsewhere(wanted, entry, places_of).await, entry);
        } else {
            part.add(&**wanted, entry);
            turns.count(entry).await;
        }
        owed += part.bytes() - before;
        if owed >= OWED_BYTES {
            room.take(std::mem::take(&mut owed)).map_err(|why| wanted.no_room(why))?;
        }
        if part.len() >= SORTED_AT_ONCE {
            part.sort();
            parts.push(std::mem::take(&mut part));
        }
    }
    room.take(owed).map_err(|why| wanted.no_room(why))?;
    part.sort();
    parts.push(part);
    Ok(parts)
}

fn places_of(wanted: &QueryEvaluator, entry: &Entry) -> Places {
    let mut places = Places::default();
    wanted.places(entry, &mut places);
    places
}
