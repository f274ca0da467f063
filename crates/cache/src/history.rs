//! The history of a collection: a ring of events, and kept states along it.
//!
//! A position is the number of an event. The state at a position is the state after all events before it. Older events
//! may be prepended after the load, so the first position is not 0. A state is kept every [`ROOT_SPACING`] events. The
//! distance between kept states grows with age. From each state that the history covers, the nearest kept state is at
//! most half a spacing, or a quarter of the state's age, away.
//!
//! The ring has two limits: a time (by compaction), and the bytes of the histories of all collections.
//!
//! Invariant: every state from revision `floor` on can be rebuilt, and every event after `floor` is in the ring.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keelson_meta::Revision;

use crate::dispatch::Dispatch;
use crate::event::Event;
use crate::trees::Trees;

/// The number of events between kept states.
pub(crate) const ROOT_SPACING: u64 = 512;
/// The position of the first event of a collection. It leaves positions for prepended events.
const FIRST_POSITION: u64 = 1 << 48;
/// The maximum number of old states that are kept after a request or a pin.
const MAX_REMEMBERED: usize = 32;
/// The minimum number of events that are kept whatever their size, so that watches can follow.
const MIN_EVENTS: usize = 64;
/// The divisor of the limit for the part that is guaranteed to each collection. So the writes of busier collections do
/// not drop pending events of its watches. Other collections drop their excess events at their own next event.
const OWN_SHARE: u64 = 128;
/// The size of an event in bytes, in addition to the replaced object.
const EVENT_OVERHEAD: u64 = 256;
/// The maximum memory that a write adds to a kept state, in bytes: the copied nodes of entries and index.
const COPIED_BYTES: u64 = 4096;
/// The memory of an item in a state without shared nodes, in bytes.
const ITEM_BYTES: u64 = 24;
/// The size of the newest events that keep their encoded frames, in bytes for each collection.
const HOT_BYTES: u64 = 16 << 20;

/// The bytes that the histories of all collections hold in addition to the newest states. They exceed the limit by at
/// most the guaranteed parts.
pub(crate) struct Budget {
    used: AtomicU64,
    /// The total size of all events since the start.
    replaced: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), replaced: AtomicU64::new(0), limit }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    fn is_exceeded(&self) -> bool {
        self.used() > self.limit
    }

    /// The size that is guaranteed to a collection, in bytes.
    const fn share(&self) -> u64 {
        self.limit / OWN_SHARE
    }

    fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A kept state.
struct RetainedState {
    position: u64,
    trees: Trees,
    bytes: u64,
}

/// Events before the beginning of a history.
pub(crate) struct HistoryStartError {
    /// The revision after which the events begin.
    floor: Revision,
    /// The events in order.
    events: Vec<Arc<Event>>,
    /// States along the events, newest first, each with the number of events before it.
    states: Vec<(usize, Trees)>,
}

impl HistoryStartError {
    /// The result of a window without events after `floor`.
    pub(crate) const fn nothing(floor: Revision) -> Self {
        Self { floor, events: Vec::new(), states: Vec::new() }
    }

    /// Events after `floor` that led to the state `after`.
    ///
    /// Cost: a tree write for each event.
    pub(crate) fn new(floor: Revision, events: Vec<Arc<Event>>, after: Trees) -> Self {
        let (mut states, mut trees) = (Vec::new(), after);
        let spacing = usize::try_from(ROOT_SPACING).unwrap_or(usize::MAX);
        for (place, event) in events.iter().enumerate().rev() {
            trees.undo(event);
            if place.is_multiple_of(spacing) {
                states.push((place, trees.clone()));
            }
        }
        Self { floor, events, states }
    }
}

/// The steps from a kept state to another one.
pub(crate) enum Replay {
    /// Applies these events, in order.
    Redo(Vec<Arc<Event>>),
    /// Reverts these events, newest first.
    Undo(Vec<Arc<Event>>),
}

impl Replay {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Redo(events) | Self::Undo(events) => events.is_empty(),
        }
    }

    pub(crate) fn walk(&self, trees: &mut Trees) {
        match self {
            Self::Redo(events) => events.iter().for_each(|event| trees.redo(event)),
            Self::Undo(events) => events.iter().for_each(|event| trees.undo(event)),
        }
    }
}

pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    /// The position of the oldest event.
    first: u64,
    floor: Revision,
    roots: VecDeque<RetainedState>,
    /// The states that are kept after a request or a pin. The least recently used is first.
    remembered: VecDeque<RetainedState>,
    /// Events from this position on keep their frames. `hot_bytes` is their size.
    hot_from: u64,
    hot_bytes: u64,
    /// The size of the events in bytes.
    bytes: u64,
    budget: Arc<Budget>,
    /// True if no events will be added.
    closed: bool,
    pub(crate) dispatch: Dispatch,
}

impl History {
    /// The history of a collection loaded at `floor`.
    pub(crate) fn new(floor: Revision, loaded: Trees, dispatch: Dispatch, budget: Arc<Budget>) -> Self {
        let mut history = Self {
            events: VecDeque::new(),
            first: FIRST_POSITION,
            floor,
            roots: VecDeque::new(),
            remembered: VecDeque::new(),
            hot_from: FIRST_POSITION,
            hot_bytes: 0,
            bytes: 0,
            budget,
            closed: false,
            dispatch,
        };
        history.keep_root(loaded);
        history
    }

    /// The oldest revision whose state can be rebuilt, and after which all events are known.
    pub(crate) const fn floor(&self) -> Revision {
        self.floor
    }

    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The position after the newest event.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The revision of the newest event, or the floor.
    pub(crate) fn newest(&self) -> Revision {
        self.events.back().map_or(self.floor, |event| event.revision)
    }

    /// The event at a position of the ring.
    pub(crate) fn event(&self, position: u64) -> Option<&Arc<Event>> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.events.get(index)
    }

    /// The position of the first event after a revision, which is the position of the state at the revision.
    pub(crate) fn position_after(&self, revision: Revision) -> u64 {
        self.first + self.events.partition_point(|event| event.revision <= revision) as u64
    }

    /// Appends an event. `after` is the state after the event.
    pub(crate) fn push(&mut self, event: Arc<Event>, after: &Trees) {
        self.budget.add(event_bytes(&event));
        self.budget.replaced.fetch_add(event_bytes(&event), Ordering::Relaxed);
        self.bytes += event_bytes(&event);
        self.hot_bytes += frame_bytes(&event);
        self.events.push_back(event);
        if self.end().is_multiple_of(ROOT_SPACING) {
            self.keep_root(after.clone());
        }
        self.cool();
        while self.budget.is_exceeded() && self.events.len() > MIN_EVENTS && self.bytes > self.budget.share() {
            self.drop_oldest();
        }
    }

    /// Returns true if older events may be prepended before `floor`.
    pub(crate) fn wants_past(&self, floor: Revision) -> bool {
        !self.closed && self.floor == floor && self.has_room()
    }

    /// Prepends events before `floor`, as far as there is space. Does nothing if the history no longer begins at
    /// `floor`.
    pub(crate) fn prepend(&mut self, floor: Revision, past: HistoryStartError) {
        if !self.wants_past(floor) {
            return;
        }
        let HistoryStartError { floor, events, states } = past;
        let mut states = states.into_iter().peekable();
        for (place, event) in events.into_iter().enumerate().rev() {
            if !self.has_room() {
                // The history now begins after this event.
                self.floor = event.revision;
                return;
            }
            self.first -= 1;
            self.budget.add(event_bytes(&event));
            self.bytes += event_bytes(&event);
            let frame = frame_bytes(&event);
            if self.hot_from == self.first + 1 && self.hot_bytes + frame <= HOT_BYTES {
                self.hot_from = self.first;
                self.hot_bytes += frame;
            } else {
                event.close_frames();
            }
            self.events.push_front(event);
            if let Some((_, trees)) = states.next_if(|(at, _)| *at == place) {
                let since = self.roots.front().map_or(0, |next| next.position - self.first);
                let kept = self.kept(self.first, trees, since);
                self.roots.push_front(kept);
            }
        }
        self.floor = floor;
        self.thin_roots();
    }

    /// Returns true if there is space for another event.
    fn has_room(&self) -> bool {
        !self.budget.is_exceeded() || self.events.len() < MIN_EVENTS || self.bytes < self.budget.share()
    }

    /// The oldest state that can be rebuilt, as a kept state and the steps from it.
    pub(crate) fn state_at_floor(&mut self, live: &Trees) -> (Trees, Replay) {
        self.nearest(self.first, live)
    }

    /// Drops at most `limit` events up to `oldest`. Returns true if there may be more.
    pub(crate) fn trim(&mut self, oldest: Revision, limit: usize) -> bool {
        for _ in 0..limit {
            match self.events.front() {
                Some(event) if event.revision <= oldest => self.drop_oldest(),
                _ => return false,
            }
        }
        true
    }

    /// Clears the history after a reload at `floor`.
    pub(crate) fn restart(&mut self, floor: Revision, loaded: Trees) {
        let end = self.end();
        while !self.events.is_empty() {
            self.drop_oldest();
        }
        // Every earlier position is below the new first one, so all cursors detect the gap.
        self.first = end + 1;
        self.hot_from = self.first;
        self.forget_below_first();
        self.floor = floor;
        self.dispatch.lose_before(self.first);
        self.keep_root(loaded);
    }

    /// Closes the history after its last revision.
    pub(crate) fn close(&mut self, last: Revision, state: Trees) {
        self.restart(last, state);
        self.closed = true;
    }

    /// Returns true if no events will be added.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The kept state nearest to a position, and the steps from there. `live` is the newest state.
    pub(crate) fn nearest(&mut self, position: u64, live: &Trees) -> (Trees, Replay) {
        if let Some(at) = self.remembered.iter().position(|kept| kept.position == position)
            && let Some(kept) = self.remembered.remove(at)
        {
            let trees = kept.trees.clone();
            self.remembered.push_back(kept);
            return (trees, Replay::Redo(Vec::new()));
        }
        let kept = self.roots.iter().chain(&self.remembered).map(|kept| (kept.position, &kept.trees));
        let (from, trees) = kept.fold((self.end(), live), |best, candidate| {
            if candidate.0.abs_diff(position) < best.0.abs_diff(position) { candidate } else { best }
        });
        let between = |from: u64, to: u64| (from..to).filter_map(|at| self.event(at).cloned());
        let steps = if from <= position {
            Replay::Redo(between(from, position).collect())
        } else {
            Replay::Undo(between(position, from).rev().collect())
        };
        (trees.clone(), steps)
    }

    /// Keeps the state at a position while the ring covers it and it is among the most recently used ones.
    pub(crate) fn remember(&mut self, position: u64, trees: Trees) {
        if position < self.first || self.remembered.iter().any(|kept| kept.position == position) {
            return;
        }
        if self.remembered.len() == MAX_REMEMBERED
            && let Some(unused) = self.remembered.pop_front()
        {
            self.budget.give_back(unused.bytes);
        }
        let kept = self.kept(position, trees, ROOT_SPACING);
        self.remembered.push_back(kept);
    }

    /// The number of states that are kept after a request or a pin.
    pub(crate) fn remembered(&self) -> usize {
        self.remembered.len()
    }

    fn keep_root(&mut self, trees: Trees) {
        let since = self.roots.back().map_or(0, |last| self.end() - last.position);
        let kept = self.kept(self.end(), trees, since);
        self.roots.push_back(kept);
        self.thin_roots();
    }

    /// Drops kept states whose neighbours are near enough for their age.
    fn thin_roots(&mut self) {
        let end = self.end();
        let mut at = 1;
        while at + 1 < self.roots.len() {
            let (before, after) = (self.roots[at - 1].position, self.roots[at + 1].position);
            let age = end - self.roots[at].position;
            if after - before > ROOT_SPACING.max(age / 2) {
                at += 1;
            } else if let Some(gone) = self.roots.remove(at)
                && let Some(next) = self.roots.get_mut(at)
            {
                // The next state now differs from the one before by the writes of both.
                let bytes = (next.bytes + gone.bytes).min(next.trees.items() as u64 * ITEM_BYTES).max(next.bytes);
                self.budget.give_back(next.bytes + gone.bytes - bytes);
                next.bytes = bytes;
            }
        }
    }

    /// Adds the memory that only this state uses to the budget. The state is `writes` writes after the one before it.
    fn kept(&self, position: u64, trees: Trees, writes: u64) -> RetainedState {
        let bytes = (writes * COPIED_BYTES).min(trees.items() as u64 * ITEM_BYTES);
        self.budget.add(bytes);
        RetainedState { position, trees, bytes }
    }

    fn drop_oldest(&mut self) {
        let Some(event) = self.events.pop_front() else { return };
        self.budget.give_back(event_bytes(&event));
        self.bytes -= event_bytes(&event);
        if self.hot_from == self.first {
            self.hot_from += 1;
            self.hot_bytes -= frame_bytes(&event);
        }
        self.first += 1;
        self.floor = event.revision;
        self.forget_below_first();
    }

    fn forget_below_first(&mut self) {
        while self.roots.front().is_some_and(|kept| kept.position < self.first) {
            self.budget.give_back(self.roots.pop_front().map_or(0, |kept| kept.bytes));
        }
        let (first, budget) = (self.first, &self.budget);
        self.remembered.retain(|kept| {
            let covered = kept.position >= first;
            if !covered {
                budget.give_back(kept.bytes);
            }
            covered
        });
    }

    /// Drops the frames of events that are no longer among the newest.
    fn cool(&mut self) {
        while self.hot_bytes > HOT_BYTES && self.hot_from + 1 < self.end() {
            let Some(event) = self.event(self.hot_from).cloned() else { return };
            event.close_frames();
            self.hot_bytes -= frame_bytes(&event);
            self.hot_from += 1;
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let kept: u64 = self.roots.iter().chain(&self.remembered).map(|kept| kept.bytes).sum();
        let events: u64 = self.events.iter().map(|event| event_bytes(event)).sum();
        self.budget.give_back(kept + events);
    }
}

/// The memory that only the event uses: the replaced object. The new object belongs to the state of the collection.
fn event_bytes(event: &Event) -> u64 {
    EVENT_OVERHEAD + event.previous.as_ref().map_or(0, |entry| entry.skeleton_len() as u64)
}

/// The approximate size of a frame of the event.
fn frame_bytes(event: &Event) -> u64 {
    event.current.as_ref().or(event.previous.as_ref()).map_or(0, |entry| entry.list_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(budget: &Arc<Budget>) -> History {
        History::new(Revision::ZERO, Trees::default(), Dispatch::new(Arc::default()), budget.clone())
    }

    fn push(history: &mut History, count: u64) {
        for _ in 0..count {
            let revision = Revision::new(history.newest().get() + 1);
            history.push(Arc::new(Event::new(revision, None, None)), &Trees::default());
        }
    }

    #[test]
    fn kept_states_are_dense_where_young_and_near_enough_everywhere() {
        let budget = Arc::new(Budget::new(u64::MAX));
        let mut history = history(&budget);
        for _ in 0..400 {
            push(&mut history, ROOT_SPACING);
            let positions: Vec<u64> = history.roots.iter().map(|kept| kept.position).collect();
            for pair in positions.windows(2) {
                let age = history.end() - pair[0];
                assert!(pair[1] - pair[0] <= ROOT_SPACING.max(age / 2), "{positions:?}");
            }
            assert!(positions.len() <= 32, "{positions:?}");
            assert_eq!((positions[0], positions[positions.len() - 1]), (FIRST_POSITION, history.end()));
        }
    }

    #[test]
    fn a_collection_that_takes_all_leaves_others_their_share() {
        const OWN: u64 = 2 * MIN_EVENTS as u64;
        let budget = Arc::new(Budget::new(OWN_SHARE * OWN * EVENT_OVERHEAD));
        let (mut busy, mut calm) = (history(&budget), history(&budget));
        push(&mut busy, 2 * OWN_SHARE * OWN);
        push(&mut calm, 2 * OWN);
        assert_eq!(calm.len() as u64, OWN);
        // The collection with more than its guaranteed part frees the bytes beyond the limit.
        push(&mut busy, 1);
        assert!(budget.used() <= OWN_SHARE * OWN * EVENT_OVERHEAD);
        assert_eq!(calm.len() as u64, OWN);
    }

    #[test]
    fn the_budget_is_kept_and_all_of_it_given_back() {
        let budget = Arc::new(Budget::new(100 * EVENT_OVERHEAD));
        let mut history = history(&budget);
        push(&mut history, 5000);
        assert!(budget.used() <= 100 * EVENT_OVERHEAD);
        assert_eq!(history.floor().get() + history.len() as u64, 5000);
        for back in 0..50 {
            history.remember(history.end() - back, Trees::default());
        }
        assert_eq!(history.remembered(), MAX_REMEMBERED);
        history.restart(Revision::new(6000), Trees::default());
        assert_eq!((history.len(), history.remembered(), history.floor()), (0, 0, Revision::new(6000)));
        push(&mut history, 10);
        drop(history);
        assert_eq!(budget.used(), 0);
    }
}
