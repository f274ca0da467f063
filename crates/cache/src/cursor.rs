//! The position of a watch in the history.
//!
//! A cursor is only a position: it has no queue and no copy of events. It first scans the events of the ring from
//! before its scope was registered. Then it follows the postings of the scope.
//!
//! Invariants:
//! - A cursor delivers each event of the scope once, in the order of the ring.
//! - A cursor that may have missed an event returns [`TooOld`].
//! - No wake-up is lost, because a cursor searches for events and registers its waker under one lock.

use std::sync::Arc;
use std::task::{Context, Poll};

use keelson_meta::Revision;

use crate::dispatch::WatcherId;
use crate::event::Event;
use crate::feed::Feed;
use crate::history::History;
use crate::scope::Scope;

/// The number of events examined under one lock.
const LOOK_EVENTS: u64 = 4096;

/// The position of a watch in the history of a collection. Dropping it ends the watch.
pub struct WatchCursor {
    feed: Arc<Feed>,
    id: WatcherId,
    place: CursorPosition,
}

/// The next events of a watch.
#[derive(Clone)]
pub struct CursorBatch {
    /// Events of the scope, in order of revision.
    pub events: Vec<Arc<Event>>,
    /// After these events, no event of the scope at or below this revision will follow.
    pub watermark: Revision,
    /// The number of cursors on the same scope, including this one.
    pub watchers: usize,
}

/// The history no longer has all events after the requested revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct TooOld {
    /// The requested revision, or the newest revision that the watch has delivered completely.
    pub requested: Revision,
    /// The oldest revision from which a watch can start.
    pub oldest: Revision,
}

struct CursorPosition {
    scope: Scope,
    /// Events at or below this revision are not delivered.
    after: Revision,
    /// Events below this position were delivered, or are outside of the scope.
    position: u64,
    /// The watermark of the last step.
    seen: Revision,
}

struct Progress {
    batch: CursorBatch,
    /// True if no events were left to examine.
    at_end: bool,
}

impl WatchCursor {
    pub(crate) fn new(feed: Arc<Feed>, after: Revision, scope: Scope) -> Result<Self, TooOld> {
        let mut history = feed.history();
        if after < history.floor() {
            return Err(TooOld { requested: after, oldest: history.floor() });
        }
        if history.is_closed() {
            // A closed history gets no further events, so a watch from any revision fails.
            return Err(TooOld { requested: after, oldest: history.floor().max(after).next() });
        }
        let position = history.position_after(after);
        let end = history.end();
        let id = history.dispatch.register(&scope, end);
        drop(history);
        Ok(Self { feed, id, place: CursorPosition { scope, after, position, seen: after } })
    }

    /// Waits for events and returns the available ones, at most `max`. Never returns an empty batch.
    ///
    /// Dropping the future loses no event, since the poll that returns events also moves the position.
    ///
    /// # Errors
    /// [`TooOld`] if the history has dropped events that this watch has not delivered. The watch must not be used after
    /// that.
    pub async fn next(&mut self, max: usize) -> Result<CursorBatch, TooOld> {
        std::future::poll_fn(|context| self.poll_next(context, max)).await
    }

    /// [`next`](Self::next) as a poll function.
    pub fn poll_next(&mut self, context: &mut Context<'_>, max: usize) -> Poll<Result<CursorBatch, TooOld>> {
        loop {
            // ORDER: the watermark is read before the ring, so that the ring has all events up to it.
            let reached = self.feed.reached();
            let mut history = self.feed.history();
            let step = self.place.step(&history, reached, max)?;
            if !step.batch.events.is_empty() {
                return Poll::Ready(Ok(step.batch));
            }
            if step.at_end {
                // ORDER: the lock of the step that found no events is still held, so no event can be added in between.
                history.dispatch.wait(&self.place.scope, self.id, context.waker());
                return Poll::Pending;
            }
        }
    }

    /// Returns the available events, at most `max`, without waiting. An empty batch still has a watermark.
    ///
    /// # Errors
    /// Errors of [`next`](Self::next).
    pub fn try_next(&mut self, max: usize) -> Result<CursorBatch, TooOld> {
        loop {
            let reached = self.feed.reached();
            let step = self.place.step(&self.feed.history(), reached, max)?;
            if step.at_end || !step.batch.events.is_empty() {
                return Ok(step.batch);
            }
        }
    }

    /// The newest revision that this watch has delivered completely, if no event is pending. It grows with the watermark
    /// of the whole server, also for a scope without events, so bookmarks use it.
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
    /// Moves on from the current position, past at most [`LOOK_EVENTS`] events or `max` events of the scope.
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
            // The next event may have the revision of a delivered one, so all events are delivered only below that
            // revision.
            Some(next) => Revision::new(next.revision.get().saturating_sub(1)),
            None => reached.max(history.newest()),
        };
        self.seen = watermark.max(self.after);
        let at_end = self.position == history.end();
        let batch = CursorBatch { events, watermark: self.seen, watchers: state.watchers() };
        Ok(Progress { batch, at_end })
    }

    /// Returns an error if position `needed` is below `available`, the start of the history.
    fn check(&self, needed: u64, available: u64, history: &History) -> Result<(), TooOld> {
        if needed < available { Err(TooOld { requested: self.seen, oldest: history.floor() }) } else { Ok(()) }
    }
}

/// Collects up to `max` (at least one) events of the scope. Returns the position of the first event that was left out.
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
