//! What happened to a collection: a ring of events, and states kept on the way.
//!
//! A position counts events since the collection was loaded; the state at a position is the one after all events before
//! it. A state is kept every [`ROOT_SPACING`] events, so any state the ring still covers is at most half as many events
//! from a kept one. The ring is bounded by time (through compaction) and, over all collections, by bytes.
//!
//! Invariant: the state at every revision from `floor` on can be rebuilt, and every event after `floor` is in the ring.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keelson_meta::Revision;

use crate::event::Event;
use crate::trees::Trees;
use crate::watch::Dispatch;

/// After how many events a state is kept.
pub(crate) const ROOT_SPACING: u64 = 256;
/// How many states of old revisions are remembered because they were asked for or pinned.
const MAX_REMEMBERED: usize = 32;
/// How many events a collection keeps however large they are, so that a watcher has a moment to follow.
const MIN_EVENTS: usize = 64;
/// What an event costs beside the bytes of the object it replaced, in bytes.
const EVENT_OVERHEAD: u64 = 256;
/// What a write costs a kept state, in bytes: the nodes that were copied.
const COPIED_NODES_BYTES: u64 = 1024;
/// How many bytes of newest events keep their encoded frames, for each collection.
const HOT_BYTES: u64 = 16 << 20;

/// The bytes that the histories of all collections hold beyond the collections themselves.
pub(crate) struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn is_exceeded(&self) -> bool {
        self.used() > self.limit
    }

    fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A state that is kept.
struct Kept {
    position: u64,
    trees: Trees,
    bytes: u64,
}

/// How to get from a kept state to another one.
pub(crate) enum Steps {
    /// These events, in order, happen.
    Redo(Vec<Arc<Event>>),
    /// These events, newest first, are taken back.
    Undo(Vec<Arc<Event>>),
}

impl Steps {
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
    roots: VecDeque<Kept>,
    /// Least recently used first.
    remembered: VecDeque<Kept>,
    /// Events from this position on keep their frames; `hot_bytes` is their size.
    hot_from: u64,
    hot_bytes: u64,
    budget: Arc<Budget>,
    pub(crate) dispatch: Dispatch,
}

impl History {
    /// The history of a collection that was loaded at `floor`.
    pub(crate) fn new(floor: Revision, loaded: Trees, dispatch: Dispatch, budget: Arc<Budget>) -> Self {
        let mut history = Self {
            events: VecDeque::new(),
            first: 0,
            floor,
            roots: VecDeque::new(),
            remembered: VecDeque::new(),
            hot_from: 0,
            hot_bytes: 0,
            budget,
            dispatch,
        };
        history.keep_root(loaded);
        history
    }

    /// The oldest revision whose state can be rebuilt, and after which every event is known.
    pub(crate) const fn floor(&self) -> Revision {
        self.floor
    }

    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The position behind the newest event.
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

    /// The position of the first event after a revision, which is also that of the state at the revision.
    pub(crate) fn position_after(&self, revision: Revision) -> u64 {
        self.first + self.events.partition_point(|event| event.revision <= revision) as u64
    }

    /// Appends an event. `after` is the state that it led to.
    pub(crate) fn push(&mut self, event: Arc<Event>, after: &Trees) {
        self.budget.add(event_bytes(&event));
        self.hot_bytes += frame_bytes(&event);
        self.events.push_back(event);
        if self.end().is_multiple_of(ROOT_SPACING) {
            self.keep_root(after.clone());
        }
        self.cool();
        while self.budget.is_exceeded() && self.events.len() > MIN_EVENTS {
            self.drop_oldest();
        }
    }

    /// Drops events up to `oldest`, at most `limit` of them. Returns whether there may be more.
    pub(crate) fn trim(&mut self, oldest: Revision, limit: usize) -> bool {
        for _ in 0..limit {
            match self.events.front() {
                Some(event) if event.revision <= oldest => self.drop_oldest(),
                _ => return false,
            }
        }
        true
    }

    /// Forgets everything: the collection was loaded anew at `floor`, and what happened before is not known.
    pub(crate) fn restart(&mut self, floor: Revision, loaded: Trees) {
        let end = self.end();
        while !self.events.is_empty() {
            self.drop_oldest();
        }
        // Every position handed out before lies below the new first one, so every cursor finds that it missed something.
        self.first = end + 1;
        self.hot_from = self.first;
        self.forget_below_first();
        self.floor = floor;
        self.dispatch.lose_before(self.first);
        self.keep_root(loaded);
    }

    /// The kept state nearest to a position, and the steps from there. `live` is the newest state.
    pub(crate) fn nearest(&mut self, position: u64, live: &Trees) -> (Trees, Steps) {
        if let Some(at) = self.remembered.iter().position(|kept| kept.position == position)
            && let Some(kept) = self.remembered.remove(at)
        {
            let trees = kept.trees.clone();
            self.remembered.push_back(kept);
            return (trees, Steps::Redo(Vec::new()));
        }
        let kept = self.roots.iter().chain(&self.remembered).map(|kept| (kept.position, &kept.trees));
        let (from, trees) = kept.fold((self.end(), live), |best, candidate| {
            if candidate.0.abs_diff(position) < best.0.abs_diff(position) { candidate } else { best }
        });
        let between = |from: u64, to: u64| (from..to).filter_map(|at| self.event(at).cloned());
        let steps = if from <= position {
            Steps::Redo(between(from, position).collect())
        } else {
            Steps::Undo(between(position, from).rev().collect())
        };
        (trees.clone(), steps)
    }

    /// Keeps the state at a position for as long as the ring covers it, unless others are used more.
    pub(crate) fn remember(&mut self, position: u64, trees: Trees) {
        if position < self.first || self.remembered.iter().any(|kept| kept.position == position) {
            return;
        }
        if self.remembered.len() == MAX_REMEMBERED
            && let Some(unused) = self.remembered.pop_front()
        {
            self.budget.give_back(unused.bytes);
        }
        let kept = self.kept(position, trees);
        self.remembered.push_back(kept);
    }

    /// How many states of old revisions are remembered.
    pub(crate) fn remembered(&self) -> usize {
        self.remembered.len()
    }

    fn keep_root(&mut self, trees: Trees) {
        let kept = self.kept(self.end(), trees);
        self.roots.push_back(kept);
    }

    /// Charges the budget with what the state may hold alone in the end.
    fn kept(&self, position: u64, trees: Trees) -> Kept {
        let bytes = ROOT_SPACING.min(trees.entries.len() as u64 + 1) * COPIED_NODES_BYTES;
        self.budget.add(bytes);
        Kept { position, trees, bytes }
    }

    fn drop_oldest(&mut self) {
        let Some(event) = self.events.pop_front() else { return };
        self.budget.give_back(event_bytes(&event));
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

    /// Takes the frames of events that are no longer among the newest.
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

/// What an event holds alone: the object it replaced. The object it made belongs to the collection.
fn event_bytes(event: &Event) -> u64 {
    EVENT_OVERHEAD + event.previous.as_ref().map_or(0, |entry| entry.object.bytes().len() as u64)
}

/// About what a frame of the event takes.
fn frame_bytes(event: &Event) -> u64 {
    event.current.as_ref().or(event.previous.as_ref()).map_or(0, |entry| entry.list_bytes())
}
