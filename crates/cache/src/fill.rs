//! The backfill of the history: adds events from before the start while the cache already serves.
//!
//! A start loads only the newest state. Then the backfill reads older events from the store, window by window, the
//! newest first. It prepends them to the histories of the collections until the store has no more events, or no
//! collection has space. The history of a frequently written collection is soon full. Collections with fewer events
//! continue.
//!
//! Invariant: a window is prepended as a whole. If the history has dropped its oldest events meanwhile, the window is
//! not prepended at all. So a history never has a gap.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, Store, StoreError, StoreEvent, StoreKey, pages};
use tokio::sync::watch;

use crate::collection::Collection;
use crate::entry::Entry;
use crate::event::Event;
use crate::history::HistoryStartError;
use crate::load;
use crate::shared::Shared;
use crate::trees::Trees;

/// The number of revisions in the first window. Later windows have the same number, unless their objects are large.
const WINDOW_REVISIONS: u64 = 8192;
/// The maximum size of a window's objects in bytes. A larger window is halved.
const WINDOW_BYTES: usize = 64 << 20;
/// The maximum number of events that the backfill examines in total: a few seconds of work on one core.
const MOST_EVENTS: usize = 1 << 20;
/// The number of concurrent reads of objects.
const QUESTIONS: usize = 16;
/// If a range has more than this number of objects for each needed one, the needed objects are read individually.
const SPARSE: usize = 8;
/// The number of attempts for a window that fails or is compacted.
const ATTEMPTS: u32 = 5;
/// The wait between two attempts.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The progress of the backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackfillProgress {
    /// Down to this revision.
    DownTo(Revision),
    /// Complete.
    Entirely,
}

pub(crate) struct Backfill {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) filled: watch::Sender<BackfillProgress>,
}

/// The events of one collection in a window.
type CollectionEvents = Vec<StoreEvent>;

impl Backfill {
    /// Adds events from before `loaded`, the revision of the load.
    pub(crate) async fn run(self, loaded: Revision) {
        let mut attempt = 0;
        let (mut end, mut revisions, mut looked_at) = (loaded, WINDOW_REVISIONS, 0);
        while looked_at < MOST_EVENTS {
            match self.window(end, &mut revisions).await {
                Ok(None) => break,
                Ok(Some((begin, events))) => {
                    (end, attempt) = (begin, 0);
                    looked_at += events;
                    self.filled.send_replace(BackfillProgress::DownTo(end));
                }
                Err(error) => {
                    attempt += 1;
                    if attempt == ATTEMPTS {
                        tracing::warn!(%error, revision = %end, "the history backfill failed; the cache has less history than the store");
                        break;
                    }
                    // The store has compacted a part of the window during the read. The rest of the window is still
                    // available.
                    if !matches!(error, StoreError::Compacted { .. }) {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                }
            }
        }
        self.filled.send_replace(BackfillProgress::Entirely);
    }

    /// Adds the window that ends at a revision. Returns its beginning and the number of its events. `None` if no
    /// collection has space for it.
    async fn window(&self, end: Revision, revisions: &mut u64) -> Result<Option<(Revision, usize)>, StoreError> {
        let oldest = self.store.oldest_revision().await?;
        let taking: Vec<_> = self.shared.collections().into_iter().filter(|one| one.wants_past(end)).collect();
        if end <= oldest || taking.is_empty() {
            return Ok(None);
        }
        loop {
            let begin = oldest.max(Revision::new(end.get().saturating_sub(*revisions)));
            let Some((happened, events)) = self.read(begin, end, &taking, *revisions > 1).await? else {
                *revisions /= 2;
                continue;
            };
            for collection in taking {
                let of_it = happened.get(collection.prefix());
                self.put(&collection, of_it.map_or(&[], Vec::as_slice), begin, end).await?;
            }
            return Ok(Some((begin, events)));
        }
    }

    /// Reads the events after `begin` up to `end`, grouped by collection. `None` if there are too many.
    async fn read(
        &self,
        begin: Revision,
        end: Revision,
        taking: &[Arc<Collection>],
        bounded: bool,
    ) -> Result<Option<(BTreeMap<Box<str>, CollectionEvents>, usize)>, StoreError> {
        let prefixes: HashSet<&str> = taking.iter().map(|one| one.prefix()).collect();
        let mut happened: BTreeMap<Box<str>, CollectionEvents> = BTreeMap::new();
        let (mut bytes, mut events, mut read) = (0, 0, begin);
        let mut tail = self.store.tail(begin).await?;
        while read < end {
            let Some(batch) = tail.next().await.transpose()? else {
                return Err(StoreError::Unavailable("the tail has ended".to_owned()));
            };
            read = batch.watermark;
            for event in batch.events.into_iter().filter(|event| event.revision <= end) {
                let prefix: Option<Box<str>> = self.shared.routes(|routes| {
                    let (collection, _) = routes.route(event.key.as_str())?;
                    prefixes.contains(collection.prefix()).then(|| collection.prefix().into())
                });
                let Some(prefix) = prefix else { continue };
                events += 1;
                bytes += event.value.as_ref().map_or(0, Bytes::len);
                if bounded && bytes > WINDOW_BYTES {
                    return Ok(None);
                }
                happened.entry(prefix).or_default().push(event);
            }
        }
        Ok(Some((happened, events)))
    }

    /// Prepends events to the collection's history.
    async fn put(
        &self,
        collection: &Arc<Collection>,
        happened: &[StoreEvent],
        begin: Revision,
        end: Revision,
    ) -> Result<(), StoreError> {
        if happened.is_empty() {
            self.shared.prepend(collection, end, HistoryStartError::nothing(begin));
            return Ok(());
        }
        let before = self.before(collection, happened, begin).await?;
        let (of, happened) = (collection.clone(), happened.to_vec());
        let events = load::on_a_core(move || {
            let after = of.state_at_floor();
            let events = events(&of, &happened, before, &after);
            HistoryStartError::new(begin, events, after)
        });
        self.shared.prepend(collection, end, events.await?);
        Ok(())
    }

    /// Returns the objects at the beginning of the window for the keys that were written in it.
    async fn before(
        &self,
        collection: &Arc<Collection>,
        happened: &[StoreEvent],
        begin: Revision,
    ) -> Result<HashMap<StoreKey, KeyValue>, StoreError> {
        let mut keys: Vec<StoreKey> = happened.iter().map(|event| event.key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(HashMap::new()) };
        let beyond = last.behind();
        let relative = |key: &StoreKey| collection.relative(key.as_str()).to_owned();
        let between = collection.snapshot().count(&relative(first), Some(&relative(&beyond)));
        let mut found = HashMap::with_capacity(keys.len());
        if between <= keys.len().saturating_mul(SPARSE) {
            let request =
                RangeRequest { from: first.clone(), to: beyond, revision: Some(begin), limit: Some(load::PAGE) };
            let mut pages = pin!(pages(self.store.clone(), request));
            while let Some(page) = pages.try_next().await? {
                let wanted = page.into_iter().filter(|stored| keys.binary_search(&stored.key).is_ok());
                found.extend(wanted.map(|stored| (stored.key.clone(), stored)));
            }
        } else {
            let asked = stream::iter(keys).map(|key| {
                let to = key.behind();
                let request = RangeRequest { from: key, to, revision: Some(begin), limit: Some(1) };
                async { Ok::<_, StoreError>(self.store.range(request).await?.entries) }
            });
            let mut answers = asked.buffer_unordered(QUESTIONS);
            while let Some(entries) = answers.try_next().await? {
                found.extend(entries.into_iter().map(|stored| (stored.key.clone(), stored)));
            }
        }
        Ok(found)
    }
}

/// Builds events from changes. `before` and `after` have the objects at both ends.
fn events(
    collection: &Collection,
    happened: &[StoreEvent],
    before: HashMap<StoreKey, KeyValue>,
    after: &Trees,
) -> Vec<Arc<Event>> {
    // Entries that the cache has already are used again.
    let read = |stored: &KeyValue| {
        let known = after.entries.get(collection.relative(stored.key.as_str()));
        known.filter(|known| known.revision == stored.revision).cloned().or_else(|| collection.decode(stored).ok())
    };
    let mut states: HashMap<StoreKey, Option<Arc<Entry>>> =
        before.into_iter().map(|(key, stored)| (key, read(&stored))).collect();
    let mut events = Vec::with_capacity(happened.len());
    for event in happened {
        let current = event.stored().and_then(|stored| read(&stored));
        let previous = states.insert(event.key.clone(), current.clone()).flatten();
        if previous.is_some() || current.is_some() {
            events.push(Arc::new(Event::new(event.revision, previous, current)));
        }
    }
    events
}
