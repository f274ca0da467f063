//! Watches: a protocol of states with one step function.
//!
//! A watch holds a cursor in the collection's history and no queue. Invariants 11 to 14 of ARCHITECTURE.md live here:
//! a list at R followed by a watch from R loses and repeats nothing, nothing follows an error, exactly one bookmark ends
//! the initial events, and what leaves the selection is deleted with its old content.

use std::sync::Arc;
use std::time::Duration;

use keelson_cache::{Collection, Entry, Event, FrameKind, RangeCursor, WatchCursor};
use keelson_meta::error::ExpiredKind;
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use tokio::time::{Instant, sleep_until};

use crate::list::KeyRange;
use crate::registry::Registry;
use crate::selection::Selection;
use crate::target::Target;

/// How many events one step returns at the most, so that one watcher can't hold a worker for long.
const STEP_EVENTS: usize = 512;
/// How long before its deadline a watch sends a last bookmark, so that the client can resume from there.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// One thing to tell a watcher.
#[derive(Clone)]
pub enum WatchOutput {
    /// An object that existed when the watch began.
    Initial(Arc<Entry>),
    /// A change, as this watcher sees it.
    Event(FrameKind, Arc<Event>),
    /// Everything up to this revision has been sent.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this is the one that ends the initial events.
        initial_events_end: bool,
    },
    /// The watch is over. Nothing follows.
    Error(ApiError),
}

/// A running watch.
pub struct WatchStream {
    state: State,
    cursor: Option<WatchCursor>,
    selection: Selection,
    /// Events up to this revision are not sent: a watch may start in the future.
    floor: Revision,
    bookmarks: bool,
    bookmark_interval: Duration,
    next_bookmark: Instant,
    last_bookmark: Instant,
    deadline: Instant,
    /// The revision of the newest thing sent.
    sent: Revision,
}

enum State {
    /// Sending what existed when the watch began.
    Initial { rest: RangeCursor, revision: Revision },
    /// Following the history.
    Live,
    /// Something went wrong; it is told once.
    Failed(ApiError),
    /// Over.
    Done,
}

impl Registry {
    /// Starts a watch over the target's URL.
    ///
    /// # Errors
    /// 400 for selectors and revisions that can't be read. What goes wrong after that is told in the stream.
    pub async fn watch(&self, target: &Target, options: &ListOptions) -> Result<WatchStream, ApiError> {
        let selection = Selection::new(target, options)?;
        let requested = options.requested_version()?;
        let collection = self.collection(target)?;
        let (state, cursor, floor) = match self.begin(target, options, requested, &selection, collection).await {
            Ok(begun) => begun,
            Err(error) => (State::Failed(error), None, Revision::ZERO),
        };
        let now = Instant::now();
        let deadline = now + options.timeout.unwrap_or_else(|| self.random_watch_timeout());
        let interval = self.config.bookmark_interval;
        Ok(WatchStream {
            state,
            cursor,
            selection,
            floor,
            bookmarks: options.allow_bookmarks,
            bookmark_interval: interval,
            next_bookmark: now + interval,
            last_bookmark: deadline.checked_sub(BOOKMARK_BEFORE_DEADLINE).unwrap_or(now),
            deadline,
            sent: floor,
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
        let scope = selection.scope(target);
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
        let cursor = follow(collection, floor.min(self.cache().watermark()), scope)?;
        Ok((State::Live, Some(cursor), floor))
    }

    /// Spread between once and twice the minimum, so that watches that began together don't end together.
    fn random_watch_timeout(&self) -> Duration {
        let shortest = self.config.min_watch_timeout;
        let spread = u64::try_from(shortest.as_millis()).unwrap_or(u64::MAX).max(1);
        shortest + Duration::from_millis(self.random.u64() % spread)
    }
}

fn follow(collection: &Arc<Collection>, after: Revision, scope: keelson_cache::Scope) -> Result<WatchCursor, ApiError> {
    collection.watch(after, scope).map_err(|gone| too_old(after, gone.oldest))
}

fn too_old(requested: Revision, oldest: Revision) -> ApiError {
    ApiError::Expired { message: ExpiredKind::WatchTooOld { requested, oldest }, continue_token: None }
}

impl WatchStream {
    /// The next things to send, in order; `None` when the watch has ended.
    ///
    /// Dropping the future between two calls loses nothing.
    pub async fn next(&mut self) -> Option<Vec<WatchOutput>> {
        loop {
            let outputs = self.step().await?;
            if !outputs.is_empty() {
                return Some(outputs);
            }
        }
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
            let selected = leaf.entries().iter().filter(|entry| self.selection.matches(entry));
            let outputs = selected.map(|entry| WatchOutput::Initial(entry.clone())).collect();
            self.state = State::Initial { rest, revision };
            return outputs;
        }
        self.state = State::Live;
        self.sent = revision;
        if self.bookmarks { vec![WatchOutput::Bookmark { revision, initial_events_end: true }] } else { Vec::new() }
    }

    async fn live(&mut self) -> Option<Vec<WatchOutput>> {
        // Whatever happens while waiting, the next step finds the watch live, unless it is put into another state below.
        self.state = State::Live;
        let bookmark_at = self.next_bookmark.min(self.last_bookmark);
        let cursor = self.cursor.as_mut()?;
        tokio::select! {
            biased;
            () = sleep_until(self.deadline) => {
                self.state = State::Done;
                None
            }
            batch = cursor.next(STEP_EVENTS) => match batch {
                Ok(batch) => Some(self.select(&batch.events)),
                Err(gone) => {
                    self.state = State::Failed(too_old(gone.requested, gone.oldest));
                    Some(Vec::new())
                }
            },
            () = sleep_until(bookmark_at), if self.bookmarks => Some(self.bookmark(bookmark_at)),
        }
    }

    /// What this watcher is told of the events: an object that enters its selection is added, one that leaves it is
    /// deleted.
    fn select(&mut self, events: &[Arc<Event>]) -> Vec<WatchOutput> {
        let mut outputs = Vec::with_capacity(events.len());
        for event in events.iter().filter(|event| event.revision > self.floor) {
            let selected =
                |entry: &Option<Arc<Entry>>| entry.as_ref().is_some_and(|entry| self.selection.matches(entry));
            let kind = match (selected(&event.previous), selected(&event.current)) {
                (false, false) => continue,
                (false, true) => FrameKind::Added,
                (true, true) => FrameKind::Modified,
                (true, false) => FrameKind::Deleted,
            };
            self.sent = self.sent.max(event.revision);
            outputs.push(WatchOutput::Event(kind, event.clone()));
        }
        outputs
    }

    fn bookmark(&mut self, due: Instant) -> Vec<WatchOutput> {
        if due == self.last_bookmark {
            self.last_bookmark = self.deadline;
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
