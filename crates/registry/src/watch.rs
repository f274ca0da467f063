//! Watches: state machines with one step function.
//!
//! A watch holds a cursor in the collection's history and no queue. Invariants 11 to 14 of ARCHITECTURE.md. A list at R
//! followed by a watch from R loses and repeats nothing. Nothing follows an error, and exactly one bookmark ends the
//! initial events. An object that leaves the selection is deleted with its old content. `watch/chosen.rs` applies a
//! query.

mod burst;
mod chosen;

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::{Collection, CursorBatch, Entry, Event, FrameKind, RangeCursor, TooOld, WatchCursor};
use keelson_meta::error::ExpiredKind;
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use keelson_query::Query;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

pub use self::burst::Burst;
use self::chosen::{QueriedEvents, frame_kind};
use crate::caller::Caller;
use crate::list::KeyRange;
use crate::query::QueryEvaluator;
use crate::registry::Registry;
use crate::selection::Selection;
use crate::target::Target;

/// The number of events of one step, so that a watcher holds a worker briefly.
const STEP_EVENTS: usize = 128;
/// The shortest time between steps, unless there are more events than one step takes.
const PACE: Duration = Duration::from_millis(10);
/// The time between steps for each watcher of the same scope, if that is longer. It is about twice the time of a write
/// to one connection, so that sending to all watchers leaves time for writes.
const PACE_A_WATCHER: Duration = Duration::from_micros(20);
/// The longest time that an event waits for further events.
const LONGEST_PACE: Duration = Duration::from_millis(100);
/// The number of steps without a pause after silence. Changes of one object mostly come in a few, and waking up after a
/// pause to find no new events costs more.
const STEPS_AT_ONCE: u32 = 4;
/// The silence after which steps need no pause: longer than any pause.
const SILENCE: Duration = Duration::from_millis(50);
/// The largest size of the objects of one step in bytes, unless one object alone is larger. It limits the memory of a
/// watcher that does not read.
const STEP_BYTES: usize = 64 * 1024;
/// The longest duration of a watch, whatever its client requests.
const LONGEST_WATCH: Duration = Duration::from_hours(24 * 365);
/// The time that a watch waits for the backfill of the history before its start, which takes seconds at most.
const HISTORY_WAIT: Duration = Duration::from_secs(15);
/// The time before its deadline at which a watch sends a last bookmark, so that the client can resume from there.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// An output of a watch.
#[derive(Clone)]
pub enum WatchOutput {
    /// An object that existed when the watch began.
    Initial(Arc<Entry>),
    /// A change, after the selection of this watch is applied.
    Event(FrameKind, Arc<Event>),
    /// Everything up to this revision has been sent.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// True for the bookmark that ends the initial events.
        initial_events_end: bool,
    },
    /// The watch has ended with this error. Nothing follows.
    Error(ApiError),
}

impl WatchOutput {
    /// The size of the encoded output in bytes, approximately.
    pub fn size(&self) -> usize {
        const SMALL: usize = 256;
        match self {
            Self::Initial(entry) => entry.size(),
            Self::Event(kind, event) => event.object(*kind).map_or(SMALL, |entry| entry.size()),
            Self::Bookmark { .. } | Self::Error(_) => SMALL,
        }
    }
}

/// A running watch.
pub struct WatchStream {
    state: State,
    /// The events that are not sent yet: pointers to objects that all watchers share.
    pending: VecDeque<WatchOutput>,
    collection: Arc<Collection>,
    cursor: Option<WatchCursor>,
    selection: Selection,
    /// The query that filters them.
    chosen: Option<QueriedEvents>,
    /// Events up to this revision are not sent: a watch may start in the future.
    floor: Revision,
    bookmarks: bool,
    bookmark_interval: Duration,
    next_bookmark: Instant,
    last_bookmark: Instant,
    /// Fires at the end of the pause. In a steady stream a write to the connection costs more than the events in it, so
    /// events are sent together. The first events after silence are sent at once.
    rested: Pin<Box<Sleep>>,
    /// The remaining steps without a pause.
    at_once: Burst,
    /// Fires at the end of the watch. The timers are reused by all steps, because creating one costs more than an
    /// event.
    deadline: Pin<Box<Sleep>>,
    /// Fires when the next bookmark is due.
    bookmark_due: Pin<Box<Sleep>>,
    /// The newest revision that was sent.
    sent: Revision,
    /// Dropped when all initial events have been sent.
    held: Option<Box<dyn Any + Send + Sync>>,
}

enum State {
    /// The watch sends the objects that existed when it began.
    Initial { rest: RangeCursor, revision: Revision },
    /// The watch follows the history.
    Live,
    /// The watch has failed. The error is sent once.
    Failed(ApiError),
    /// The watch has ended.
    Done,
}

impl Registry {
    /// Starts a watch over the target's URL.
    ///
    /// # Errors
    /// 400 for invalid selectors and revisions, 503 when the store is unavailable or too far ahead. Later errors are
    /// sent in the stream.
    pub async fn watch(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        caller.in_time(self.begin_watch(target, options, None)).await
    }

    /// As [`watch`](Self::watch), for the objects that match a query, in the order of the events.
    ///
    /// # Errors
    /// As [`watch`](Self::watch). An object that cannot be evaluated is an error in the stream.
    pub async fn watch_query(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<WatchStream, ApiError> {
        caller.in_time(self.begin_watch(target, options, Some(query))).await
    }

    fn begin_watch<'w>(
        &'w self,
        target: &'w Target,
        options: &'w ListOptions,
        query: Option<&'w Query>,
    ) -> BoxFuture<'w, Result<WatchStream, ApiError>> {
        Box::pin(self.begin_chosen_watch(target, options, query))
    }

    async fn begin_chosen_watch(
        &self,
        target: &Target,
        options: &ListOptions,
        query: Option<&Query>,
    ) -> Result<WatchStream, ApiError> {
        let selection = self.selection(target, options)?;
        let chosen = query
            .filter(|query| !query.is_plain())
            .map(|query| {
                QueriedEvents::new(Arc::new(QueryEvaluator::new(target, options, query.clone(), selection.clone())))
            })
            .or_else(|| selection.is_of_converted().then(|| QueriedEvents::of_converted(selection.clone())));
        let requested = options.requested_version()?;
        let collection = self.settled_collection(target).await?;
        let (state, cursor, floor) = match self.begin(target, options, requested, &selection, &collection).await {
            Ok(begun) => begun,
            // A client that gets an error in the stream discards its state. This error does not require that.
            Err(error @ ApiError::ServiceUnavailable { .. }) => return Err(error),
            Err(error) => (State::Failed(error), None, Revision::ZERO),
        };
        let now = Instant::now();
        let timeout = options.timeout.unwrap_or_else(|| self.random_watch_timeout());
        let deadline = now + timeout.min(LONGEST_WATCH);
        let interval = self.config.bookmark_interval;
        Ok(WatchStream {
            state,
            pending: VecDeque::new(),
            cursor,
            collection,
            selection,
            chosen,
            floor,
            bookmarks: options.allow_bookmarks,
            bookmark_interval: interval,
            next_bookmark: now + interval,
            last_bookmark: deadline.checked_sub(BOOKMARK_BEFORE_DEADLINE).unwrap_or(now),
            deadline: Box::pin(sleep_until(deadline)),
            bookmark_due: Box::pin(sleep_until(now + interval)),
            rested: Box::pin(sleep_until(now)),
            at_once: Burst::new(STEPS_AT_ONCE, SILENCE),
            sent: floor,
            held: None,
        })
    }

    async fn begin(
        &self,
        target: &Target,
        options: &ListOptions,
        requested: RequestedVersion,
        selection: &Selection,
        collection: &Arc<Collection>,
    ) -> Result<(State, Option<WatchCursor>, Revision), ApiError> {
        let scope = selection.scope(target, &collection.snapshot());
        if options.send_initial_events {
            match requested {
                RequestedVersion::Unset => self.catch_up().await?,
                RequestedVersion::Any => {}
                RequestedVersion::At(revision) => self.wait_for(revision).await?,
            }
            let snapshot = collection.snapshot();
            let range = KeyRange::below(&target.key_prefix(), "").narrowed(target, selection);
            let rest = snapshot.cursor(&range.from, range.to.as_deref());
            let cursor = follow(collection, snapshot.revision, scope)?;
            return Ok((State::Initial { rest, revision: snapshot.revision }, Some(cursor), snapshot.revision));
        }
        let floor = match requested {
            RequestedVersion::Unset => {
                self.catch_up().await?;
                collection.snapshot().revision
            }
            RequestedVersion::Any => collection.snapshot().revision,
            RequestedVersion::At(revision) => revision,
        };
        let after = floor.min(self.cache().watermark());
        let cursor = match follow(collection, after, scope.clone()) {
            Ok(cursor) => cursor,
            // A server that has just started may still be loading the earlier history.
            Err(_) => {
                self.cache().wait_for_history(after, HISTORY_WAIT).await;
                follow(collection, after, scope)?
            }
        };
        Ok((State::Live, Some(cursor), floor))
    }

    /// A timeout between once and twice the minimum, so that watches that began together do not end together.
    pub(crate) fn random_watch_timeout(&self) -> Duration {
        let shortest = self.config.min_watch_timeout;
        let spread = u64::try_from(shortest.as_millis()).unwrap_or(u64::MAX).max(1);
        shortest + Duration::from_millis(self.random.u64() % spread)
    }
}

fn follow(collection: &Arc<Collection>, after: Revision, scope: keelson_cache::Scope) -> Result<WatchCursor, ApiError> {
    collection.watch(after, scope).map_err(|gone| too_old(after, gone.oldest))
}

pub(crate) fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::Expired { message: ExpiredKind::WatchTooOld { requested, oldest }, continue_token: None }
}

/// The first pending outputs: at least one, and about [`STEP_BYTES`] of them at most.
pub(crate) fn hand_out(pending: &mut VecDeque<WatchOutput>) -> Vec<WatchOutput> {
    let mut bytes = 0;
    let fitting = pending.iter().take_while(|output| {
        let fits = bytes < STEP_BYTES;
        bytes += output.size();
        fits
    });
    let count = fitting.count();
    pending.drain(..count).collect()
}

/// The next events, after the pause of the watch.
async fn next(cursor: &mut WatchCursor, rested: &mut Pin<Box<Sleep>>) -> Result<CursorBatch, TooOld> {
    rested.as_mut().await;
    cursor.next(STEP_EVENTS).await
}

impl WatchStream {
    /// Holds a value until all initial events have been sent. Drops it at once if there are none.
    #[must_use]
    pub fn holding(mut self, held: impl Any + Send + Sync) -> Self {
        if matches!(self.state, State::Initial { .. }) {
            self.held = Some(Box::new(held));
        }
        self
    }

    /// The next outputs, in order. `None` if the watch has ended.
    ///
    /// Dropping the future between two calls loses nothing.
    pub async fn next(&mut self) -> Option<Vec<WatchOutput>> {
        if !self.pending.is_empty() {
            return Some(hand_out(&mut self.pending));
        }
        loop {
            let outputs = match self.decide().await {
                Some(outputs) => outputs,
                None => self.step().await?,
            };
            self.pending.extend(outputs);
            if !self.pending.is_empty() {
                return Some(hand_out(&mut self.pending));
            }
            // None of these events is selected, and there may be many more like them, so the task yields.
            tokio::task::yield_now().await;
        }
    }

    /// The time at which the watch ends, even if outputs remain.
    pub fn deadline(&self) -> Instant {
        self.deadline.deadline()
    }

    /// Evaluates pending events and returns the selected ones. `None` if no events are pending.
    async fn decide(&mut self) -> Option<Vec<WatchOutput>> {
        let chosen = self.chosen.as_mut().filter(|chosen| !chosen.is_settled())?;
        // A slow webhook must not delay the end of the watch.
        let Ok(decided) = timeout_at(self.deadline.deadline(), chosen.decide()).await else {
            self.chosen = None;
            self.state = State::Done;
            return Some(Vec::new());
        };
        Some(match decided {
            Ok(outputs) => {
                let told = outputs.iter().filter_map(|output| match output {
                    WatchOutput::Event(_, event) => Some(event.revision),
                    WatchOutput::Initial(_) | WatchOutput::Bookmark { .. } | WatchOutput::Error(_) => None,
                });
                self.sent = told.fold(self.sent, Revision::max);
                outputs
            }
            Err(error) => {
                self.chosen = None;
                self.state = State::Done;
                vec![WatchOutput::Error(error)]
            }
        })
    }

    async fn step(&mut self) -> Option<Vec<WatchOutput>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Initial { rest, revision } => Some(self.initial(rest, revision)),
            State::Live => self.live().await,
            State::Failed(error) => Some(vec![WatchOutput::Error(error)]),
            State::Done => None,
        }
    }

    fn initial(&mut self, mut rest: RangeCursor, revision: Revision) -> Vec<WatchOutput> {
        if let Some(leaf) = rest.next_leaf() {
            self.state = State::Initial { rest, revision };
            let mut selected = leaf.entries().iter().filter(|entry| self.selection.may_match(entry));
            return match &mut self.chosen {
                Some(chosen) => {
                    chosen.take_objects(selected.by_ref());
                    Vec::new()
                }
                None => selected.map(|entry| WatchOutput::Initial(entry.clone())).collect(),
            };
        }
        self.state = State::Live;
        self.sent = revision;
        self.held = None;
        if self.bookmarks { vec![WatchOutput::Bookmark { revision, initial_events_end: true }] } else { Vec::new() }
    }

    async fn live(&mut self) -> Option<Vec<WatchOutput>> {
        // The next step finds the watch live, whatever happens during the wait, unless the state is changed below.
        self.state = State::Live;
        let bookmark_at = self.next_bookmark.min(self.last_bookmark);
        if self.bookmarks && self.bookmark_due.deadline() != bookmark_at {
            self.bookmark_due.as_mut().reset(bookmark_at);
        }
        let cursor = self.cursor.as_mut()?;
        tokio::select! {
            biased;
            () = self.deadline.as_mut() => {
                self.state = State::Done;
                None
            }
            // The arm for bookmarks precedes the events, which may never stop. A due bookmark is sent as soon as all
            // events before it are delivered.
            () = self.bookmark_due.as_mut(), if self.bookmarks && cursor.delivered_up_to().is_some() => {
                Some(self.bookmark(bookmark_at))
            }
            batch = next(cursor, &mut self.rested) => match batch {
                Ok(batch) => Some(self.tell(&batch)),
                // As upstream, a watch of a resource that was removed or replaced ends without an error.
                Err(_) if self.collection.is_removed() => {
                    self.state = State::Done;
                    None
                }
                Err(gone) => {
                    self.state = State::Failed(too_old(gone.requested, gone.oldest));
                    Some(Vec::new())
                }
            },
        }
    }

    /// The events of a batch. After the last one the watch pauses, unless it has sent little lately.
    fn tell(&mut self, batch: &CursorBatch) -> Vec<WatchOutput> {
        if batch.events.len() < STEP_EVENTS {
            let watchers = u32::try_from(batch.watchers).unwrap_or(u32::MAX);
            let pace = PACE_A_WATCHER.saturating_mul(watchers).clamp(PACE, LONGEST_PACE);
            let now = Instant::now();
            let needs_none = self.at_once.takes(now);
            if pace > PACE || !needs_none {
                self.rested.as_mut().reset(now + pace);
            }
        }
        self.select(&batch.events)
    }

    /// The events of this watcher: an object that enters its selection is added, one that leaves it is deleted.
    fn select(&mut self, events: &[Arc<Event>]) -> Vec<WatchOutput> {
        let mut outputs = Vec::with_capacity(events.len());
        if let Some(chosen) = &mut self.chosen {
            chosen.take_events(events.iter().filter(|event| event.revision > self.floor));
            return outputs;
        }
        for event in events.iter().filter(|event| event.revision > self.floor) {
            let selected =
                |entry: &Option<Arc<Entry>>| entry.as_ref().is_some_and(|entry| self.selection.matches(entry));
            let Some(kind) = frame_kind(selected(&event.previous), selected(&event.current)) else { continue };
            self.sent = self.sent.max(event.revision);
            outputs.push(WatchOutput::Event(kind, event.clone()));
        }
        outputs
    }

    fn bookmark(&mut self, due: Instant) -> Vec<WatchOutput> {
        if due == self.last_bookmark {
            self.last_bookmark = self.deadline.deadline();
        }
        self.next_bookmark = Instant::now() + self.bookmark_interval;
        let Some(cursor) = self.cursor.as_ref() else {
            return Vec::new();
        };
        // The cursor names a revision only when nothing at or below it is left to deliver.
        match cursor.delivered_up_to() {
            Some(revision) if revision > self.sent => {
                self.sent = revision;
                vec![WatchOutput::Bookmark { revision, initial_events_end: false }]
            }
            _ => Vec::new(),
        }
    }
}
