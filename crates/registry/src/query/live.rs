//! Live pages: a page of a sorted list that reports the objects that enter it, leave it and move in it.
//!
//! A live page keeps the objects that it has sent and nothing else. After a write in its range it updates the shared
//! view by the changes, and compares the page with the one it sent. It therefore skips intermediate states, needs no
//! history, and costs the changes and its own length. It updates at most four times a second, and pauses for longer
//! than an update took.
//!
//! Invariant: the page sent before, with the changes, is the page at the revision sent with them.

mod changes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keelson_cache::{Collection, Entry, Event, FrameKind, Scope, Snapshot, SnapshotError, WatchCursor};
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use keelson_query::Query;
use tokio::time::{Instant, sleep_until};

use self::changes::Changes;
use super::plan::QueryPlan;
use super::{PlannedQuery, QueryEvaluator, SelectedSnapshot, making, page};
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;
use crate::watch::{WatchOutput, hand_out, too_old};

/// The largest number of objects in a live page.
const MAX_LIMIT: usize = 500;
/// The shortest time between updates.
const PACE: Duration = Duration::from_millis(250);
/// The pause after an update, as a multiple of its duration: at most a fifth of a thread.
const RESTED_LOOKS: u32 = 4;
/// The longest duration of a live page, whatever its client requests.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// A live page.
pub struct LivePage {
    plan: QueryPlan,
    collection: Arc<Collection>,
    wanted: Arc<QueryEvaluator>,
    scope: Scope,
    /// The page sent last; `None` before the first page.
    shown: Option<SentPage>,
    /// The events that are not sent yet.
    pending: VecDeque<WatchOutput>,
    /// The change of the page, which is sent after these events.
    change: Option<PageChange>,
    /// The interval of bookmarks.
    bookmark_interval: Option<Duration>,
    next_bookmark: Instant,
    /// The end of the pause after the last update.
    rested: Instant,
    deadline: Instant,
    is_over: bool,
}

/// A page that was sent.
struct SentPage {
    revision: Revision,
    entries: Vec<Arc<Entry>>,
    total: usize,
}

/// The change of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChange {
    /// The revision of the new page.
    pub revision: Revision,
    /// The number of objects in the whole result.
    pub total: usize,
    /// The number of objects after the page.
    pub remaining: usize,
    /// The keys of its objects, in order.
    pub keys: Vec<Arc<str>>,
    /// The keys that entered the page.
    pub entered: Vec<Arc<str>>,
    /// The keys that left the page.
    pub left: Vec<Arc<str>>,
    /// The smallest set of other keys that must move to get the new order.
    pub moved: Vec<Arc<str>>,
}

/// An output of a live page.
pub enum LiveOutput {
    /// Objects that entered, changed or left.
    Objects(Vec<WatchOutput>),
    /// The end of these events, and the new page.
    Page(PageChange),
}

impl Registry {
    /// Follows a page of the objects that match a query.
    ///
    /// # Errors
    /// 400 for mutually exclusive parameters and for a missing limit. The errors of [`watch`](Self::watch). Later
    /// errors are outputs of the page.
    pub async fn watch_page(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<LivePage, ApiError> {
        caller.in_time(self.begin_page(target, caller, options, query)).await
    }

    async fn begin_page(
        &self,
        target: &Target,
        caller: &Caller,
        options: &ListOptions,
        query: &Query,
    ) -> Result<LivePage, ApiError> {
        let plan = QueryPlan::new(target, options, query, None, self.token_form(target, caller))?.for_caller(caller);
        let refused = |why: &str| Err(ApiError::BadRequest(why.to_owned()));
        if plan.token().is_some() {
            return refused("a live page is followed by its number, not from a continue token on");
        }
        if plan.limit.is_none_or(|limit| limit > MAX_LIMIT) {
            return refused("a live page needs a limit of at most 500");
        }
        let selection = self.selection(target, options)?;
        let collection = self.settled_collection(target).await?;
        let scope = selection.scope(target, &collection.snapshot());
        let requested = options.requested_version()?;
        let now = Instant::now();
        let bookmark_interval = options.allow_bookmarks.then_some(self.config.bookmark_interval);
        let timeout = options.timeout.unwrap_or_else(|| self.random_watch_timeout());
        let mut live = LivePage {
            plan,
            collection,
            wanted: Arc::new(
                QueryEvaluator::new(target, options, query.clone(), selection).indexed(&self.config).within_budget(),
            ),
            scope,
            shown: None,
            pending: VecDeque::new(),
            change: None,
            bookmark_interval,
            next_bookmark: now + bookmark_interval.unwrap_or(LONGEST),
            rested: now,
            deadline: now + timeout.min(LONGEST),
            is_over: false,
        };
        match requested {
            RequestedVersion::Unset => self.catch_up().await?,
            RequestedVersion::Any => {}
            RequestedVersion::At(revision) => {
                self.wait_for(revision).await?;
                live.begin_at(revision).await;
            }
        }
        Ok(live)
    }
}

impl LivePage {
    /// The time at which the page ends.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Begins with the page at a revision, which the client already has.
    async fn begin_at(&mut self, revision: Revision) {
        let begun = match self.collection.snapshot_at(revision) {
            Ok(snapshot) => self.look(snapshot).await,
            Err(SnapshotError::TooOld { oldest }) => Err(too_old(revision, oldest)),
            Err(SnapshotError::Removed { .. }) => Err(ApiError::UnknownResource),
            Err(SnapshotError::Future { current }) => {
                Err(ApiError::RevisionTooLarge { requested: revision, current, retry: true })
            }
        };
        match begun {
            Ok(page) => self.shown = Some(page),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.pending = VecDeque::from([WatchOutput::Error(error)]);
        self.change = None;
        self.is_over = true;
    }

    /// The next output; `None` at the end.
    pub async fn next(&mut self) -> Option<LiveOutput> {
        loop {
            if !self.pending.is_empty() {
                return Some(LiveOutput::Objects(hand_out(&mut self.pending)));
            }
            if let Some(change) = self.change.take() {
                return Some(LiveOutput::Page(change));
            }
            if self.is_over || self.collection.is_removed() {
                return None;
            }
            let is_due = match &self.shown {
                None => true,
                Some(shown) => self.wait(shown.revision).await?,
            };
            let begun = Instant::now();
            match self.look(self.collection.snapshot()).await {
                Ok(page) => self.tell(page, is_due),
                Err(error) => self.fail(error),
            }
            let ended = Instant::now();
            self.rested = ended + PACE.max((ended - begun) * RESTED_LOOKS);
        }
    }

    /// Waits for a write in the page's range after a revision (true), or for the next bookmark (false). `None` at the
    /// deadline.
    async fn wait(&self, after: Revision) -> Option<bool> {
        let changed = async {
            // A cursor that is too old has missed a write, which is enough to know.
            if let Ok(mut cursor) = self.collection.watch(after, self.scope.clone()) {
                let _batch = WatchCursor::next(&mut cursor, 1).await;
            }
            sleep_until(self.rested).await;
        };
        tokio::select! {
            biased;
            () = sleep_until(self.deadline) => None,
            () = sleep_until(self.next_bookmark) => Some(true),
            () = changed => Some(false),
        }
    }

    /// The page of a snapshot.
    async fn look(&self, snapshot: Snapshot) -> Result<SentPage, ApiError> {
        self.wanted.renew_budget();
        let (plan, collection, wanted) = (self.plan.clone(), self.collection.clone(), self.wanted.clone());
        let owner = plan.owner;
        let query = PlannedQuery { plan, sought: SelectedSnapshot { collection, snapshot, wanted, owner } };
        let (shown, looked_at) = making::shown(&query.sought).await?;
        let page = page::cut(&query, shown, looked_at).await?;
        Ok(SentPage { revision: page.revision, total: page.total, entries: page.items.into_entries().await? })
    }

    /// Enqueues the events of a page that changed, or of a due bookmark.
    fn tell(&mut self, page: SentPage, is_due: bool) {
        let before = self.shown.as_ref();
        let changes = Changes::between(before.map_or(&[][..], |shown| &shown.entries), &page.entries);
        let is_another = before.is_none_or(|shown| shown.total != page.total) || !changes.is_empty();
        if is_another || is_due {
            let gone = |entry: &Arc<Entry>| Arc::new(Event::new(page.revision, Some(entry.clone()), None));
            let left = changes.left.iter().map(|entry| WatchOutput::Event(FrameKind::Deleted, gone(entry)));
            let entered = changes.entered.iter().map(|entry| WatchOutput::Initial(entry.clone()));
            let changed = changes.changed.iter().map(|(old, new)| {
                let event = Event::new(new.revision, Some(old.clone()), Some(new.clone()));
                WatchOutput::Event(FrameKind::Modified, Arc::new(event))
            });
            self.pending.extend(left.chain(entered).chain(changed));
            self.change = Some(self.change_to(&page, &changes));
            self.next_bookmark = Instant::now() + self.bookmark_interval.unwrap_or(LONGEST);
        }
        self.shown = Some(page);
    }

    fn change_to(&self, page: &SentPage, changes: &Changes) -> PageChange {
        let keys = |entries: &[Arc<Entry>]| entries.iter().map(|entry| entry.key.clone()).collect();
        let behind = self.plan.first_rank().saturating_add(page.entries.len());
        PageChange {
            revision: page.revision,
            total: page.total,
            remaining: page.total.saturating_sub(behind),
            keys: keys(&page.entries),
            entered: keys(&changes.entered),
            left: keys(&changes.left),
            moved: keys(&changes.moved),
        }
    }
}
