//! Fills in the history of before the start, behind a cache that serves already.
//!
//! A start loads the newest state alone. What led to it is read from the store afterwards, window by window, the newest
//! first, and put in front of what the collections have seen since: until the store knows no more, or no collection has
//! room. A collection that is written much is full soon; others go on, since their events are few.
//!
//! Invariant: a window is put in front of a history as a whole, or not at all where the history has lost its beginning
//! meanwhile; so it has no gap at any moment.

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
use crate::history::Past;
use crate::load;
use crate::shared::Shared;
use crate::trees::Trees;

/// How many revisions the first window has. The next ones are as large, unless their objects are.
const WINDOW_REVISIONS: u64 = 8192;
/// How many bytes of objects a window may hold; it is halved until it does.
const WINDOW_BYTES: usize = 64 << 20;
/// How many events are looked at altogether: some seconds of work on one core.
const MOST_EVENTS: usize = 1 << 20;
/// How many objects are asked for at the same time.
const QUESTIONS: usize = 16;
/// Where a stretch holds more objects than so many for each that is wanted, they are asked for one by one.
const SPARSE: usize = 8;
/// How often a window is tried that the store does not answer, or compacts meanwhile.
const ATTEMPTS: u32 = 5;
/// How long to wait between two tries.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How far the history of before the start has been filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Down to this revision.
    DownTo(Revision),
    /// As far as it will be.
    Entirely,
}

pub(crate) struct Filler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) filled: watch::Sender<Filled>,
}

/// What happened in a window to one collection.
type Happened = Vec<StoreEvent>;

impl Filler {
    /// Fills in what happened before `loaded`, the revision of which everything was loaded.
    pub(crate) async fn run(self, loaded: Revision) {
        let mut attempt = 0;
        let (mut end, mut revisions, mut looked_at) = (loaded, WINDOW_REVISIONS, 0);
        while looked_at < MOST_EVENTS {
            match self.window(end, &mut revisions).await {
                Ok(None) => break,
                Ok(Some((begin, events))) => {
                    (end, attempt) = (begin, 0);
                    looked_at += events;
                    self.filled.send_replace(Filled::DownTo(end));
                }
                Err(error) => {
                    attempt += 1;
                    if attempt == ATTEMPTS {
                        tracing::warn!(%error, revision = %end, "the history of before the start stays shorter than the store's");
                        break;
                    }
                    // The store has forgotten a part of the window while it was read. The rest of it is there still.
                    if !matches!(error, StoreError::Compacted { .. }) {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                }
            }
        }
        self.filled.send_replace(Filled::Entirely);
    }

    /// Fills in the window that ends at a revision. Returns where it begins and how many events it has; `None` where nobody
    /// wants it.
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

    /// Reads what happened after `begin` up to `end`, by collection; `None` where that is too much at once.
    async fn read(
        &self,
        begin: Revision,
        end: Revision,
        taking: &[Arc<Collection>],
        bounded: bool,
    ) -> Result<Option<(BTreeMap<Box<str>, Happened>, usize)>, StoreError> {
        let prefixes: HashSet<&str> = taking.iter().map(|one| one.prefix()).collect();
        let mut happened: BTreeMap<Box<str>, Happened> = BTreeMap::new();
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

    /// Puts what happened in front of the collection's history.
    async fn put(
        &self,
        collection: &Arc<Collection>,
        happened: &[StoreEvent],
        begin: Revision,
        end: Revision,
    ) -> Result<(), StoreError> {
        if happened.is_empty() {
            self.shared.prepend(collection, end, Past::nothing(begin));
            return Ok(());
        }
        let before = self.before(collection, happened, begin).await?;
        let (of, happened) = (collection.clone(), happened.to_vec());
        let events = load::on_a_core(move || {
            let after = of.state_at_floor();
            let events = events(&of, &happened, before, &after);
            Past::new(begin, events, after)
        });
        self.shared.prepend(collection, end, events.await?);
        Ok(())
    }

    /// The objects at the beginning of the window of those keys that were written in it.
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

/// The events of what happened, given the objects before it and after it.
fn events(
    collection: &Collection,
    happened: &[StoreEvent],
    before: HashMap<StoreKey, KeyValue>,
    after: &Trees,
) -> Vec<Arc<Event>> {
    // What the collection holds, or its history begins with, is not made again.
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
