//! Builds the view of a query, from an earlier view and what has changed since, or by a scan of all objects that may be selected.
//!
//! Concurrent requests for the same view share one build. A scan uses all cores and yields about every millisecond; it is dropped with the
//! request that asked for it.

use std::sync::Arc;

use keelson_cache::{CatchingUp, Collection, Entry, Found, Gathered, Snapshot, View};
use keelson_meta::ApiError;
use keelson_supervision::outcome;
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;

use super::wanted::Wanted;
use super::{Asked, KeyRange, Shown, indexes};
use crate::registry::Registry;

/// After a look at objects of so many bytes others have their turn: about a millisecond.
const TURN_BYTES: u64 = 256 << 10;
/// So many objects are put in order at once.
const SORTED_AT_ONCE: usize = 4096;
/// A look at more objects is shared between the cores.
const SHARED_FROM: usize = 8192;
/// Catching up with one change costs as much as a look at so many objects.
const CHANGE_LOOKS: usize = 4;
/// So many changes are caught up with, however few objects there are.
const FEW_CHANGES: usize = 64;

/// Where the objects of a query are, and how many were looked at to find that out.
///
/// # Errors
/// As [`view_of`].
pub(super) async fn shown(asked: &Asked) -> Result<(Shown, usize), ApiError> {
    if asked.wanted.is_range() {
        return Ok((Shown::Range(asked.wanted.range.clone()), 0));
    }
    let (view, looked_at) = view_of(asked).await?;
    Ok((Shown::View(view), looked_at))
}

/// The view of a query, and how many objects were looked at to make it.
///
/// # Errors
/// 400 when it can't be told where some of the objects stand.
pub(super) async fn view_of(asked: &Asked) -> Result<(View, usize), ApiError> {
    let Asked { collection, snapshot, wanted, .. } = asked;
    if let Found::Exact(view) = collection.find_view(&wanted.name, snapshot) {
        return Ok((view, 0));
    }
    let turn = collection.view_turn(&wanted.name);
    let _turn = turn.lock().await;
    let (view, looked_at) = match collection.find_view(&wanted.name, snapshot) {
        Found::Exact(view) => return Ok((view, 0)),
        Found::Near { snapshot: from, view } => match caught_up(view, &from, snapshot, wanted).await {
            (Some(view), looked_at) => (view, looked_at),
            (None, looked_at) => {
                let (view, more) = made(asked).await?;
                (view, looked_at + more)
            }
        },
        Found::Nothing => made(asked).await?,
    };
    wanted.check_known()?;
    collection.keep_view(&wanted.name, snapshot, &view);
    Ok((view, looked_at))
}

impl Registry {
    /// How many objects would be looked at to make a view of the newest snapshot, at the most.
    pub(crate) fn estimate_looks(&self, wanted: &Wanted, collection: &Collection, snapshot: &Snapshot) -> usize {
        if wanted.is_range() {
            return 0;
        }
        let weight = usize::try_from(wanted.weight_of_byte()).unwrap_or(1);
        let looks = match collection.find_view(&wanted.name, snapshot) {
            Found::Exact(_) => 0,
            Found::Near { snapshot: from, .. } => {
                // No more can have changed than was written, to whatever collection.
                let writes = snapshot.revision.get().abs_diff(from.revision.get());
                candidates(snapshot, wanted).min(usize::try_from(writes).unwrap_or(usize::MAX))
            }
            Found::Nothing => {
                indexes::about(collection, snapshot, wanted).unwrap_or_else(|| candidates(snapshot, wanted))
            }
        };
        looks * weight
    }
}

/// How many objects a look would be at.
pub(super) fn candidates(snapshot: &Snapshot, wanted: &Wanted) -> usize {
    let KeyRange { from, to } = &wanted.range;
    let selected = snapshot.select(&wanted.index_terms(), from, to.as_deref());
    selected.size_hint().1.unwrap_or_else(|| snapshot.len())
}

/// The view led on to another moment, and how many changes there were; no view where there are so many that a look at all costs less.
async fn caught_up(view: View, from: &Snapshot, to: &Snapshot, wanted: &Arc<Wanted>) -> (Option<View>, usize) {
    let most = candidates(to, wanted) / CHANGE_LOOKS + FEW_CHANGES;
    let mut catching_up = CatchingUp::new(view, from, to, &**wanted);
    while catching_up.go_on(wanted.turn_of_changes(TURN_BYTES)) {
        if catching_up.looked_at() > most {
            return (None, catching_up.looked_at());
        }
        yield_now().await;
    }
    let looked_at = catching_up.looked_at();
    (Some(catching_up.into_view()), looked_at)
}

/// The view by a look at the objects that an index finds, or at all that may be wanted, and how many these were.
async fn made(asked: &Asked) -> Result<(View, usize), ApiError> {
    let Asked { snapshot, wanted, .. } = asked;
    let Some((entries, looked_at)) = indexes::find(asked).await? else {
        return Ok(gathered(snapshot, wanted).await);
    };
    let mut parts = looked_at_each(entries.iter(), wanted).await;
    Ok((View::of(&mut parts), looked_at + entries.len()))
}

/// The view by a look at all objects that may be wanted, and how many these were.
async fn gathered(snapshot: &Snapshot, wanted: &Arc<Wanted>) -> (View, usize) {
    let looked_at = candidates(snapshot, wanted);
    if looked_at <= SHARED_FROM {
        let mut parts = looked_through(snapshot, wanted, &wanted.range, true).await;
        return (View::of(&mut parts), looked_at);
    }
    let mut parts = Vec::new();
    for part in parts_of(snapshot, wanted) {
        let (snapshot, wanted) = (snapshot.clone(), wanted.clone());
        let is_whole = part == wanted.range;
        let looking = async move { looked_through(&snapshot, &wanted, &part, is_whole).await };
        parts.push(AbortOnDropHandle::new(tokio::spawn(looking)));
    }
    let mut gathered = Vec::new();
    for part in parts {
        gathered.extend(outcome(part).await);
    }
    let making = tokio::task::spawn_blocking(move || View::of(&mut gathered));
    (outcome(making).await, looked_at)
}

/// The range in as many parts as there are cores; all of it where the index knows the objects.
fn parts_of(snapshot: &Snapshot, wanted: &Wanted) -> Vec<KeyRange> {
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

/// What a look at the objects of a range gathers, in pieces that are put in order.
async fn looked_through(snapshot: &Snapshot, wanted: &Arc<Wanted>, range: &KeyRange, indexed: bool) -> Vec<Gathered> {
    let terms = if indexed { wanted.index_terms() } else { Vec::new() };
    looked_at_each(snapshot.select(&terms, &range.from, range.to.as_deref()), wanted).await
}

/// What a look at some objects gathers.
async fn looked_at_each<'e>(
    entries: impl Iterator<Item = &'e Arc<Entry>> + Send,
    wanted: &Arc<Wanted>,
) -> Vec<Gathered> {
    let mut parts = vec![Gathered::default()];
    let (mut bytes, mut in_part) = (0, 0);
    for entry in entries {
        if let Some(part) = parts.last_mut() {
            part.add(&**wanted, entry);
        }
        in_part += 1;
        bytes += wanted.weight(entry);
        if in_part == SORTED_AT_ONCE {
            parts.last_mut().into_iter().for_each(Gathered::sort);
            parts.push(Gathered::default());
            in_part = 0;
        }
        if bytes >= TURN_BYTES {
            bytes = 0;
            yield_now().await;
        }
    }
    parts.last_mut().into_iter().for_each(Gathered::sort);
    parts
}
