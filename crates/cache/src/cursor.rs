//! A watcher's place in the history.
//!
//! A cursor holds a position and nothing else: no queue, no copy of events. It first looks through the part of the ring
//! that lies before its scope was known to the dispatch index, then follows the scope's postings.
//!
//! Invariants: no event of the scope is skipped or delivered twice, in the order of the ring; whoever may have missed
//! one is told [`TooOld`]. A wake-up can't be lost: a cursor finds nothing and registers its waker under one lock.

use std::sync::Arc;
use std::task::{Context, Poll};

use keelson_meta::Revision;

use crate::dispatch::WatcherId;
use crate::event::Event;
use crate::feed::Feed;
use crate::history::History;
use crate::scope::Scope;

/// How many events a cursor looks at before it lets others have the lock.
const LOOK_EVENTS: u64 = 4096;

/// A watcher's place in the history of a collection. Dropping it ends the watch.
pub struct WatchCursor {
    feed: Arc<Feed>,
    id: WatcherId,
    place: CursorPosition,
}

/// What a watcher is to be told next.
#[derive(Clone)]
pub struct CursorBatch {
    /// Events of the scope, in order of revision.
    pub events: Vec<Arc<Event>>,
    /// With these events delivered, no event of the scope at or below this revision is left to come.
    pub watermark: Revision,
    /// How many cursors follow the same scope, this one among them.
    pub watchers: usize,
}

/// The history no longer has everything after the revision that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct TooOld {
    /// The revision that was asked for, or up to which the watcher has seen everything.
    pub requested: Revision,
    /// The oldest revision that still works.
    pub oldest: Revision,
}

struct CursorPosition {
    scope: Scope,
    /// Events at or below this revision are not delivered.
    after: Revision,
    /// Events below this position have been delivered, or are not in the scope.
    position: u64,
    /// The watermark of the last step.
    seen: Revision,
}

struct Progress {
    batch: CursorBatch,
    /// Whether there was nothing left to look at.
    at_end: bool,
}

impl WatchCursor {
    pub(crate) fn new(feed: Arc<Feed>, after: Revision, scope: Scope) -> Result<Self, TooOld> {
        let mut history = feed.history();
        if after < history.floor() {
            return Err(TooOld { requested: after, oldest: history.floor() });
        }
        if history.is_closed() {
            // Nothing that will happen is told here, from wherever the watch begins.
            return Err(TooOld { requested: after, oldest: history.floor().max(after).next() });
        }
        let position = history.position_after(after);
        let end = history.end();
        let id = history.dispatch.register(&scope, end);
        drop(history);
        Ok(Self { feed, id, place: CursorPosition { scope, after, position, seen: after } })
    }

    /// Waits for events and takes as many as there are, up to `max`. Never returns an empty batch.
    ///
    /// Dropping the future loses nothing: events are taken in the same step that returns them.
    ///
    /// # Errors
    /// [`TooOld`] when events that this watcher has not seen have left the history; then the watch is over.
    pub async fn next(&mut self, max: usize) -> Result<CursorBatch, TooOld> {
        std::future::poll_fn(|context| self.poll_next(context, max)).await
    }

    /// As [`next`](Self::next), for use in hand-written futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>, max: usize) -> Poll<Result<CursorBatch, TooOld>> {
        loop {
            // ORDER: the watermark is read before the ring, so that the ring holds everything up to it.
            let reached = self.feed.reached();
            let mut history = self.feed.history();
            let step = self.place.step(&history, reached, max)?;
            if !step.batch.events.is_empty() {
                return Poll::Ready(Ok(step.batch));
            }
            if step.at_end {
                // ORDER: still under the lock of the step that found nothing, so no event can come in between.
                history.dispatch.wait(&self.place.scope, self.id, context.waker());
                return Poll::Pending;
            }
        }
    }

    /// Takes the events there are, up to `max`, without waiting. An empty batch still has a watermark.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&mut self, max: usize) -> Result<CursorBatch, TooOld> {
        loop {
            let reached = self.feed.reached();
            let step = self.place.step(&self.feed.history(), reached, max)?;
            if step.at_end || !step.batch.events.is_empty() {
                return Ok(step.batch);
            }
        }
    }

    /// The revision up to which everything has been delivered, when nothing is left to deliver now. It grows with the
    /// whole server's watermark, also while the scope is at rest: what a bookmark may say.
    pub fn delivered_up_to(&self) -> Option<Revision> {
        let reached = self.feed.reached();
        let history = self.feed.history();
        let CursorPosition { scope, after, position, .. } = &self.place;
        let state = history.dispatch.state(scope);
        let at_rest = *position >= state.since.max(state.lost) && state.postings_from(*position).next().is_none();
        (at_rest || *position == history.end()).then(|| reached.max(history.newest()).max(*after))
    }
}

impl Drop for WatchCursor {
    fn drop(&mut self) {
        self.feed.history().dispatch.unregister(&self.place.scope, self.id);
    }
}

impl CursorPosition {
    /// Looks on from where the watcher stands, at most [`LOOK_EVENTS`] events or `max` of the scope.
    fn step(&mut self, history: &History, reached: Revision, max: usize) -> Result<Progress, TooOld> {
        let state = history.dispatch.state(&self.scope);
        let mut events = Vec::new();
        self.position = if self.position < state.since {
            self.check(self.position, history.first(), history)?;
            let stop = history.end().min(state.since).min(self.position + LOOK_EVENTS);
            let layout = history.dispatch.layout();
            let wanted = |event: &Event| event.revision > self.after && self.scope.holds(event, layout);
            take(self.position..stop, history, max, wanted, &mut events).unwrap_or(stop)
        } else {
            self.check(self.position, state.lost, history)?;
            if let Some(next) = state.postings_from(self.position).next() {
                self.check(next, history.first(), history)?;
            }
            let wanted = |event: &Event| event.revision > self.after;
            take(state.postings_from(self.position), history, max, wanted, &mut events).unwrap_or(history.end())
        };
        let watermark = match history.event(self.position) {
            // The next event may have the revision of one that is delivered: only what is below it is complete.
            Some(next) => Revision::new(next.revision.get().saturating_sub(1)),
            None => reached.max(history.newest()),
        };
        self.seen = watermark.max(self.after);
        let at_end = self.position == history.end();
        let batch = CursorBatch { events, watermark: self.seen, watchers: state.watchers() };
        Ok(Progress { batch, at_end })
    }

    /// Whether everything at `needed` is still there, when the history has it from `available` on.
    fn check(&self, needed: u64, available: u64, history: &History) -> Result<(), TooOld> {
        if needed < available { Err(TooOld { requested: self.seen, oldest: history.floor() }) } else { Ok(()) }
    }
}

/// Collects up to `max` (at least one) wanted events. Returns the position of the first one there was no room for.
fn take(
    positions: impl Iterator<Item = u64>,
    history: &History,
    max: usize,
    wanted: impl Fn(&Event) -> bool,
    events: &mut Vec<Arc<Event>>,
) -> Option<u64> {
    for position in positions {
        let Some(event) = history.event(position).filter(|event| wanted(event)) else { continue };
        if events.len() == max.max(1) {
            return Some(position);
        }
        events.push(event.clone());
    }
    None
}
