//! The search index: the searched texts of all objects of a resource, without the objects.
//!
//! The first search that would scan many objects builds it. Each later search updates it by the changes, so writes do
//! nothing for it. It shares the memory limit of all views, and is evicted with them. If there is no index, because it
//! would be too large or is of another revision, a search scans the objects.
//!
//! Invariant: the index finds the objects that a scan finds, in the same order.

use std::sync::Arc;

use keelson_cache::{
    CachedIndex, Collection, Entry, GatheredPositions, MemoryReservation, ReservationError, Snapshot, ViewOwner,
};
use keelson_meta::ApiError;
use keelson_query::{GatheredTexts, RankedResults, Search, SearchIndex, SearchedTexts};
use keelson_supervision::{outcome, turns};
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;

use super::making::{OWED_BYTES, SHARED_FROM, candidates, parts_of};
use super::turns::{TURN_BYTES, look_elsewhere};
use super::wanted::HEAVY_BYTES;
use super::{KeyRange, QueryEvaluator, SelectedSnapshot};

/// The largest index in bytes, however much memory there is: it counts bytes in 32 bits.
const MOST_BYTES: u64 = 1 << 30;
/// A search among at least one in this many of all objects builds an index at once. Other searches build it when it
/// would have helped [`MISSED`] times.
const MANY: usize = 4;
const MISSED: usize = 3;
/// An index is rebuilt if more than one in this many objects have changed.
const CHANGED: usize = 4;
/// A search of the index costs as much as a scan of one in this many objects.
const OBJECTS_A_LOOK: usize = 256;
/// The cost of a change besides reading its objects, in bytes of objects.
const CHANGE_BYTES: u64 = 4096;
/// The memory that a search of the index needs for each object, in bytes.
const FOUND_BYTES: u64 = 16;

/// The result of a search of the index.
pub(super) enum Answer {
    /// The complete result: the places of the objects.
    Places(Vec<GatheredPositions>),
    /// The objects that contain the words. They must still be filtered and sorted.
    Entries(Vec<Arc<Entry>>),
}

/// Marks an index that would be too large. The mark is evicted as an index is.
struct TooLarge;

/// The result of a search, and the number of objects read for it. `None` if all objects must be scanned.
///
/// # Errors
/// The memory limit is reached.
pub(super) async fn find(
    sought: &SelectedSnapshot,
    room: &Arc<MemoryReservation>,
) -> Result<Option<(Answer, usize)>, ApiError> {
    let SelectedSnapshot { snapshot, wanted, .. } = sought;
    let Some(search) = wanted.query.search.clone() else { return Ok(None) };
    if candidates(snapshot, wanted) < wanted.search_from {
        return Ok(None);
    }
    let Some((index, looked_at)) = index_of(sought).await else { return Ok(None) };
    let (snapshot, seeking, room) = (snapshot.clone(), wanted.clone(), room.clone());
    let answering = move || answer((&index, &search), &snapshot, &seeking, &room);
    let answer = turns::blocking(answering).await.map_err(|why| wanted.no_room(why))?;
    Ok(answer.map(|answer| (answer, looked_at)))
}

/// The remaining cost of a search with the index, in objects, approximately. `None` without an index.
pub(super) fn about(collection: &Collection, snapshot: &Snapshot, wanted: &QueryEvaluator) -> Option<usize> {
    if !wanted.query.is_search_alone() || candidates(snapshot, wanted) < wanted.search_from {
        return None;
    }
    let (from, index) = collection.find_index(&wanted.search_name())?;
    index.index.downcast::<SearchIndex>().ok()?;
    // The number of changed objects is at most the number of writes to all collections.
    let writes = usize::try_from(snapshot.revision.get().abs_diff(from.revision.get())).unwrap_or(usize::MAX);
    Some(writes.min(snapshot.len()) + snapshot.len() / OBJECTS_A_LOOK)
}

/// The objects that a search finds. `None` if so many are left to scan that all cores should do it.
fn answer(
    (index, search): (&SearchIndex, &Search),
    snapshot: &Snapshot,
    wanted: &QueryEvaluator,
    room: &MemoryReservation,
) -> Result<Option<Answer>, ReservationError> {
    room.take(index.len() as u64 * FOUND_BYTES)?;
    let KeyRange { from, to } = &wanted.range;
    let ranked = index.find(search, from, to.as_deref());
    if wanted.query.is_search_alone() {
        let places: Result<Vec<_>, _> = ranked.iter().map(|ranked| places(ranked, snapshot, wanted, room)).collect();
        return Ok(Some(Answer::Places(places?)));
    }
    if ranked.iter().map(RankedResults::len).sum::<usize>() > SHARED_FROM {
        return Ok(None);
    }
    let keys = ranked.iter().flat_map(|ranked| ranked.iter().map(|(_, key)| key));
    Ok(Some(Answer::Entries(keys.filter_map(|key| snapshot.get(key).cloned()).collect())))
}

/// The places of the objects that the selectors select.
fn places(
    ranked: &RankedResults<'_>,
    snapshot: &Snapshot,
    wanted: &QueryEvaluator,
    room: &MemoryReservation,
) -> Result<GatheredPositions, ReservationError> {
    let mut places = GatheredPositions::default();
    let mut taken = 0;
    for (score, key) in ranked.iter() {
        if wanted.selects_all() || snapshot.get(key).is_some_and(|entry| wanted.is_selected(entry)) {
            places.push(&Search::place(score), key);
        }
        if places.bytes() - taken >= OWED_BYTES {
            room.take(places.bytes() - taken)?;
            taken = places.bytes();
        }
    }
    room.take(places.bytes() - taken)?;
    Ok(places)
}

/// The largest index of the collection, in bytes.
fn most_bytes(collection: &Collection) -> u64 {
    collection.index_bytes().min(MOST_BYTES)
}

/// The index of the snapshot, and the number of objects scanned for it.
async fn index_of(sought: &SelectedSnapshot) -> Option<(Arc<SearchIndex>, usize)> {
    let SelectedSnapshot { collection, snapshot, wanted, owner } = sought;
    let name = wanted.search_name();
    let turn = collection.view_turn(&name);
    let _turn = turn.lock().await;
    let all = Arc::new(wanted.of_all());
    let found = match collection.find_index(&name) {
        Some((from, kept)) => {
            let index = kept.index.downcast::<SearchIndex>().ok()?;
            let is_past = snapshot.revision < from.revision;
            match caught_up(&index, &from, sought, &all).await {
                (Some(index), looked_at) if is_past => {
                    // No other search can use the index of a past revision.
                    all.check_known().ok()?;
                    return Some((index, looked_at));
                }
                (Some(index), looked_at) => Ok((index, looked_at)),
                (None, _) if is_past => return None,
                (None, looked_at) => build_index(collection, snapshot, &all, *owner)
                    .await
                    .map(|index| (index, looked_at + snapshot.len())),
            }
        }
        None if is_worth_it(sought, &name) => {
            build_index(collection, snapshot, &all, *owner).await.map(|index| (index, snapshot.len()))
        }
        None => return None,
    };
    // If some objects cannot be read, the search reports that itself.
    all.check_known().ok()?;
    let is_small = |(index, _): &(Arc<SearchIndex>, usize)| index.bytes() <= most_bytes(collection);
    let (kept, found) = match found {
        Ok(found) if is_small(&found) => (CachedIndex { index: found.0.clone(), bytes: found.0.bytes() }, Some(found)),
        Err(ReservationError::Now) => return None,
        Ok(_) | Err(ReservationError::Ever) => (CachedIndex { index: Arc::new(TooLarge), bytes: 0 }, None),
    };
    collection.keep_index(*owner, &name, snapshot, kept);
    found
}

/// Returns true if a search should build an index.
fn is_worth_it(sought: &SelectedSnapshot, name: &str) -> bool {
    let SelectedSnapshot { collection, snapshot, wanted, .. } = sought;
    candidates(snapshot, wanted) >= snapshot.len() / MANY || collection.miss_view(name) >= MISSED
}

/// The searched texts of an object.
async fn texts_of(all: &Arc<QueryEvaluator>, entry: &Arc<Entry>) -> SearchedTexts {
    if Search::cost_of_texts(entry.list_bytes()) > HEAVY_BYTES {
        return look_elsewhere(all, entry, texts).await;
    }
    texts(all, entry)
}

fn texts(all: &QueryEvaluator, entry: &Entry) -> SearchedTexts {
    all.look(entry, |subject| Search::texts(subject, entry.fields()))
}

/// The cost of reading the searched texts of an object, in bytes.
fn weight(entry: &Entry) -> u64 {
    CHANGE_BYTES + Search::cost_of_texts(entry.list_bytes())
}

/// Updates the index to another snapshot, and returns the number of changes. No index if there are too many changes, or
/// not enough memory for them.
async fn caught_up(
    index: &Arc<SearchIndex>,
    from: &Snapshot,
    sought: &SelectedSnapshot,
    all: &Arc<QueryEvaluator>,
) -> (Option<Arc<SearchIndex>>, usize) {
    let SelectedSnapshot { collection, snapshot: to, wanted, owner } = sought;
    let most = to.len() / CHANGED + wanted.search_from;
    let room = collection.view_room(*owner).at_most(most_bytes(collection));
    let (mut gone, mut come) = (Vec::new(), GatheredTexts::default());
    let (mut looked_at, mut work, mut taken) = (0, 0, 0);
    for (old, new) in from.changes_to(to) {
        looked_at += 1;
        if looked_at > most {
            return (None, looked_at);
        }
        work += [old, new].into_iter().flatten().map(|entry| weight(entry)).sum::<u64>();
        let before = texts_where(all, old).await;
        let after = texts_where(all, new).await;
        if before != after {
            gone.extend(old.map(|old| old.key.clone()));
            if let (Some(new), Some(after)) = (new, after) {
                come.add(&new.key, &after);
            }
        }
        if work >= TURN_BYTES {
            work = 0;
            if room.take(come.bytes() - taken).is_err() {
                return (None, looked_at);
            }
            taken = come.bytes();
            yield_now().await;
        }
    }
    if gone.is_empty() && come.is_empty() {
        return (Some(index.clone()), looked_at);
    }
    // The update may rewrite the whole index.
    let building = collection.view_room(*owner);
    if room.take(come.bytes() - taken).is_err() || building.take(index.bytes() + come.bytes()).is_err() {
        return (None, looked_at);
    }
    let index = index.clone();
    let changed = turns::blocking(move || index.changed(gone.iter().map(|key| &**key), come)).await;
    (Some(Arc::new(changed)), looked_at)
}

async fn texts_where(all: &Arc<QueryEvaluator>, entry: Option<&Arc<Entry>>) -> Option<SearchedTexts> {
    Some(texts_of(all, entry?).await)
}

/// Builds the index by a scan of all objects on all cores.
///
/// # Errors
/// The index would be too large, or there is not enough memory to build it.
async fn build_index(
    collection: &Collection,
    snapshot: &Snapshot,
    all: &Arc<QueryEvaluator>,
    owner: ViewOwner,
) -> Result<Arc<SearchIndex>, ReservationError> {
    let room = Arc::new(collection.view_room(owner).at_most(most_bytes(collection)));
    let mut parts = Vec::new();
    for range in parts_of(snapshot, all) {
        let (snapshot, all, room) = (snapshot.clone(), all.clone(), room.clone());
        let gathering = async move { gathered(&snapshot, &all, &range, &room).await };
        parts.push(AbortOnDropHandle::new(turns::spawn(gathering)));
    }
    let mut gathered = Vec::new();
    for part in parts {
        gathered.push(outcome(part).await?);
    }
    // The collected texts are freed once they are sorted.
    let building = collection.view_room(owner);
    building.take(gathered.iter().map(GatheredTexts::bytes).sum())?;
    Ok(turns::blocking(move || Arc::new(SearchIndex::new(gathered))).await)
}

async fn gathered(
    snapshot: &Snapshot,
    all: &Arc<QueryEvaluator>,
    range: &KeyRange,
    room: &MemoryReservation,
) -> Result<GatheredTexts, ReservationError> {
    let mut gathered = GatheredTexts::default();
    let (mut work, mut taken) = (0, 0);
    for entry in snapshot.range(&range.from, range.to.as_deref()) {
        gathered.add(&entry.key, &texts_of(all, entry).await);
        work += weight(entry);
        if work >= TURN_BYTES {
            work = 0;
            room.take(gathered.bytes() - taken)?;
            taken = gathered.bytes();
            yield_now().await;
        }
    }
    room.take(gathered.bytes() - taken)?;
    Ok(gathered)
}
