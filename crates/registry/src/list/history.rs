//! The snapshot from which a list is read: the cache's, at any revision it can still rebuild, or the store's own
//! history.
//!
//! The store is read only for revisions that the cache no longer has, page by page. Its bytes become entries in the
//! same way as in the cache.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use keelson_cache::{Collection, Entry, Snapshot, SnapshotError};
use keelson_meta::error::ExpiredKind;
use keelson_meta::{ApiError, Revision};
use keelson_storage::{ContinueToken, KeyValue, RangeRequest, StoreError, StoreKey, behind, pages};
use parking_lot::Mutex;

use super::page::KeyRange;
use super::plan::{ListPlan, ReadAt};
use super::{HistoryItems, ListItems, ListPage};
use crate::registry::{Registry, store_error};
use crate::selection::Selection;
use crate::target::Target;

/// The number of keys in one read of the store's history.
const STORE_PAGE: usize = 500;
/// The largest chunk from the store's history in bytes, unless one object alone is larger. The token precedes the
/// objects, so they are collected.
const CHUNK_BYTES: usize = 16 << 20;
/// The number of walks of the store's history whose counts are kept.
const RESTS: usize = 64;

impl Registry {
    /// The snapshot of a plan; `None` if the cache no longer has the revision.
    pub(crate) async fn snapshot(&self, collection: &Collection, at: ReadAt) -> Result<Option<Snapshot>, ApiError> {
        match at {
            ReadAt::Any => Ok(Some(collection.snapshot())),
            ReadAt::Newest => {
                let begun = Instant::now();
                let reached = self.catch_up().await;
                collection.counts().waited(begun.elapsed(), reached.is_ok());
                reached?;
                Ok(Some(collection.snapshot()))
            }
            ReadAt::NotOlderThan(revision) => {
                self.wait_for(revision).await?;
                Ok(Some(collection.snapshot()))
            }
            ReadAt::Exactly(revision) => {
                self.wait_for(revision).await?;
                match collection.snapshot_at(revision) {
                    Ok(snapshot) => Ok(Some(snapshot)),
                    Err(SnapshotError::TooOld { .. }) => Ok(None),
                    Err(SnapshotError::Removed { .. }) => Err(ApiError::UnknownResource),
                    Err(SnapshotError::Future { current }) => {
                        Err(ApiError::RevisionTooLarge { requested: revision, current, retry: true })
                    }
                }
            }
        }
    }

    /// Reads the page from the store's history, for revisions that the cache no longer keeps.
    ///
    /// A list without a limit is streamed. A chunk is collected, since its token precedes its objects. It is also
    /// limited in bytes, so it may have fewer objects than its limit. Values that are not objects are left out, as in
    /// the cache.
    ///
    /// # Errors
    /// 410 when the store has compacted the revision, or it is older than the history window. Some stores keep more,
    /// and clients must not rely on that.
    pub(super) async fn list_from_store(
        &self,
        target: &Target,
        plan: &ListPlan,
        selection: &Selection,
    ) -> Result<ListPage, ApiError> {
        let ReadAt::Exactly(revision) = plan.at else {
            return Err(ApiError::Internal("only an exact revision is read from history".to_owned()));
        };
        let oldest = self.cache().unexpired();
        // If objects must be converted to be selected, they are read from the cache only.
        if revision < oldest || selection.is_of_converted() {
            return Err(expired(StoreError::Compacted { requested: revision, oldest }, plan));
        }
        self.counters().count_list_from_store();
        let prefix = target.key_prefix();
        let range = KeyRange::below(&prefix, &plan.start).narrowed(target, selection);
        let collection = self.settled_collection(target).await?;
        collection.counts().lists_from_store.increment();
        let root = collection.prefix();
        let to = range.to.map_or_else(|| StoreKey::prefix_end(root), |to| StoreKey::new(format!("{root}{to}")));
        let span = Span { from: StoreKey::new(format!("{root}{}", range.from)), to, revision };
        let Some(limit) = plan.limit else {
            let items = self.stream(&collection, selection, span).await.map_err(|error| expired(error, plan))?;
            let items = ListItems::History(items);
            return Ok(ListPage { revision, continue_token: None, remaining: None, items });
        };
        let part = self
            .read_part(&collection, (limit, plan.to_next_visible), selection, &span)
            .await
            .map_err(|error| expired(error, plan))?;
        let mut page =
            ListPage { revision, continue_token: None, remaining: None, items: ListItems::Chosen(part.chosen) };
        if let Some(next) = part.cut_at {
            let relative = next.strip_prefix(prefix.as_str()).unwrap_or(&next);
            page.continue_token = Some(plan.encode(&ContinueToken::at(revision, relative)));
            if selection.is_everything() {
                let rest = Span { from: StoreKey::new(format!("{root}{next}")), ..span.clone() };
                let rest = self.count_rest(&span, part.looked_at, rest).await.map_err(|error| expired(error, plan))?;
                page.remaining = Some(rest);
            }
        }
        Ok(page)
    }

    /// Streams the selected objects of the span. The first page is read at once, so that its errors become a response.
    async fn stream(
        &self,
        collection: &Arc<Collection>,
        selection: &Selection,
        span: Span,
    ) -> Result<HistoryItems, StoreError> {
        let read = || {
            let (collection, selection) = (collection.clone(), selection.clone());
            Box::pin(pages(self.store().clone(), span.request(Some(STORE_PAGE))).map_ok(move |page| {
                let entries = page.into_iter().filter_map(|stored| readable_entry(&collection, &stored));
                entries.filter(|entry| selection.matches(entry)).collect::<Vec<_>>()
            }))
        };
        let mut pages = read();
        let first = pages.try_next().await?.unwrap_or_default();
        let least_bytes = first.iter().map(|entry| entry.size() as u64).sum();
        let pages = stream::once(future::ready(Ok(first))).chain(pages.map_err(store_error)).boxed();
        // The second stream reads nothing before it is polled.
        let again = read().map_err(store_error).boxed();
        Ok(HistoryItems { pages, again, least_bytes })
    }

    /// Reads entries until the chunk is full or the range is over.
    async fn read_part(
        &self,
        collection: &Collection,
        (limit, to_next_visible): (usize, bool),
        selection: &Selection,
        span: &Span,
    ) -> Result<PageRead, StoreError> {
        let mut part = PageRead::default();
        let mut bytes = 0;
        let mut last: Option<String> = None;
        let mut pages = pin!(pages(self.store().clone(), span.request(Some(STORE_PAGE))));
        while let Some(page) = pages.try_next().await? {
            for stored in page {
                let is_full = part.chosen.len() == limit || bytes >= CHUNK_BYTES;
                if !to_next_visible && (is_full || part.looked_at == self.config.bounds.scan) {
                    part.cut_at = last.as_deref().map(behind);
                    return Ok(part);
                }
                part.looked_at += 1;
                let key = stored.key.as_str();
                last = Some(key.strip_prefix(collection.prefix()).unwrap_or(key).to_owned());
                if let Some(entry) = readable_entry(collection, &stored).filter(|entry| selection.matches(entry)) {
                    if is_full {
                        part.cut_at = last;
                        return Ok(part);
                    }
                    bytes += entry.size();
                    part.chosen.push(entry);
                }
            }
        }
        Ok(part)
    }

    /// Counts the entries of `rest`, which begins `looked_at` entries after the start of `span`.
    ///
    /// A count costs as much as its entries, and a walk needs one for every chunk. A past revision never changes, so
    /// the count of one chunk is kept for the next.
    async fn count_rest(&self, span: &Span, looked_at: usize, rest: Span) -> Result<u64, StoreError> {
        let known = self.rests.get(span);
        let count = match known.and_then(|count| count.checked_sub(looked_at as u64)) {
            Some(count) => count,
            None => self.store().count(rest.request(None)).await?,
        };
        self.rests.remember(rest, count);
        Ok(count)
    }
}

/// A range of the store at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    from: StoreKey,
    to: StoreKey,
    revision: Revision,
}

impl Span {
    fn request(&self, limit: Option<usize>) -> RangeRequest {
        RangeRequest { from: self.from.clone(), to: self.to.clone(), revision: Some(self.revision), limit }
    }
}

/// The entry of a stored value, if it is an object. Other values are logged at debug level only: the cache has already
/// reported them, and every chunk of every list would repeat that.
fn readable_entry(collection: &Collection, stored: &KeyValue) -> Option<Arc<Entry>> {
    let decoded = collection.decode(stored).inspect_err(|error| {
        tracing::debug!(key = %stored.key, %error, "a stored value is not an object and is not shown");
    });
    decoded.ok()
}

/// The entries read for one page.
#[derive(Default)]
struct PageRead {
    chosen: Vec<Arc<Entry>>,
    looked_at: usize,
    /// The key at which the next chunk begins, if there is one.
    cut_at: Option<String>,
}

/// The numbers of entries after recent chunks.
#[derive(Debug, Default)]
pub(crate) struct Rests(Mutex<VecDeque<(Span, u64)>>);

impl Rests {
    fn get(&self, span: &Span) -> Option<u64> {
        self.0.lock().iter().rev().find(|(known, _)| known == span).map(|(_, count)| *count)
    }

    fn remember(&self, span: Span, count: u64) {
        let mut known = self.0.lock();
        if known.len() == RESTS {
            known.pop_front();
        }
        known.push_back((span, count));
    }
}

/// The error when the store cannot read the planned revision. For a continued list, 410 carries a token for the rest at
/// the newest revision (KEP-365, "inconsistent continue").
fn expired(error: StoreError, plan: &ListPlan) -> ApiError {
    match (error, &plan.token) {
        (StoreError::Compacted { .. }, Some(token)) => ApiError::Expired {
            message: ExpiredKind::ContinueToken,
            continue_token: Some(plan.encode(&token.newest())),
        },
        (StoreError::Compacted { .. }, None) => {
            ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None }
        }
        (other, _) => store_error(other),
    }
}
