//! One resource of a source as a store: a cache loads it by a list, and follows it by a watch.
//!
//! Only the read half of the contract works, and only what a cache needs: the newest state, and a tail. History is the
//! cache's own. Writes are refused, since they are passed through to the source.
//!
//! The first load is that of the durable copy, if the source still has its revision. The watch continues from there. A
//! list is a stream where the source sends it (`initial.rs`), and pages otherwise.
//!
//! A cache and a registry get two views of the store. To the cache, the newest revision is that of the list or the watch
//! which feeds it. To the registry, whose reads are consistent, it is the source's newest revision when the read began.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::stream::{self, unfold};
use futures::{StreamExt as _, TryStreamExt as _};
use keelson_meta::Revision;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Seal, Store, StoreError, StoreKey,
    Tail, Transaction,
};
use keelson_supervision::turns::blocking;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::copy::ResourceCopy;
use crate::initial;
use crate::objects::{MirroredKind, Page};
use crate::progress::Progress;
use crate::source::{Fault, Source, parse};
use crate::tail;

/// The number of objects in a page of a list at the source.
const PAGE: usize = 500;
/// The most pages of a list: 10 million objects. A list with more never ends.
const PAGES: usize = 20_000;
/// The longest time in which the source must return its newest revision.
const QUESTION_TIME: Duration = Duration::from_secs(2);
/// The longest time that a consistent read waits for the watch. kube-apiserver sends a bookmark after one to two seconds
/// when it is asked to.
const SETTLING_TIME: Duration = Duration::from_secs(4);

/// The reader of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Cache,
    Registry,
}

/// One resource of a source.
#[derive(Clone)]
pub(crate) struct UpstreamStore {
    shared: Arc<Shared>,
    reader: Reader,
}

struct Shared {
    source: Arc<Source>,
    kind: Arc<MirroredKind>,
    progress: Arc<Progress>,
    /// The durable copy.
    copy: Arc<ResourceCopy>,
    /// The state that the cache is about to load.
    next: Mutex<LoadStage>,
}

/// The state that a cache loads next.
enum LoadStage {
    /// The copy has not been read yet.
    Unread,
    /// The copied state at this revision.
    Copied(Revision),
    /// The list that begins with this page.
    Listed(Page),
    /// A list that has not begun yet.
    Nothing,
}

impl UpstreamStore {
    /// The views of the cache and of the registry.
    pub(crate) fn views(
        source: Arc<Source>,
        kind: MirroredKind,
        progress: Arc<Progress>,
        copy: Arc<ResourceCopy>,
    ) -> (Self, Self) {
        let kind = Arc::new(kind);
        let shared = Arc::new(Shared { source, kind, progress, copy, next: Mutex::new(LoadStage::Unread) });
        (Self { shared: shared.clone(), reader: Reader::Cache }, Self { shared, reader: Reader::Registry })
    }
}

impl Shared {
    /// Reads a page of the list.
    async fn page(&self, query: &str) -> Result<Page, Fault> {
        let bytes = self.source.bytes(&format!("{}?{query}", self.kind.path)).await?;
        let kind = self.kind.clone();
        let read = blocking(move || kind.page(parse(&bytes)?).map_err(Fault::Invalid));
        read.await
    }

    /// Begins a load, from the copy if it has not been read yet. Returns its revision.
    async fn begin_load(&self) -> Result<Revision, StoreError> {
        let is_unread = matches!(std::mem::replace(&mut *self.next.lock(), LoadStage::Nothing), LoadStage::Unread);
        if is_unread && let Some(mark) = self.copy.mark().await {
            let newest = self.page("limit=1").await.map_err(|fault| tail::error(&self.progress, mark, &fault))?;
            if newest.revision >= mark {
                *self.next.lock() = LoadStage::Copied(mark);
                return Ok(mark);
            }
        }
        self.begin_list().await
    }

    /// Begins a list. Returns its revision.
    async fn begin_list(&self) -> Result<Revision, StoreError> {
        let reached = self.progress.reached();
        let page = self.first_page().await;
        let page = page.map_err(|fault| tail::error(&self.progress, reached, &fault))?;
        self.check_not_restored(reached, page.revision)?;
        let revision = page.revision;
        self.copy.begin_list().await;
        *self.next.lock() = LoadStage::Listed(page);
        Ok(revision)
    }

    /// The whole list as a stream if the source sends it, or else its first page.
    async fn first_page(&self) -> Result<Page, Fault> {
        if self.source.streams_lists() {
            match initial::list(&self.source, &self.kind).await {
                Ok(page) => return Ok(page),
                Err(fault) => {
                    let (source, path) = (&self.source.name, &self.kind.path);
                    tracing::debug!(source, path, %fault, "a list is no stream; it is read in pages");
                }
            }
        }
        self.page(&format!("limit={PAGE}")).await
    }

    /// Checks that the source's newest revision is not below one that it had before the question. While the response
    /// travels, the watch may deliver newer ones.
    fn check_not_restored(&self, reached: Revision, newest: Revision) -> Result<(), StoreError> {
        if newest >= reached {
            return Ok(());
        }
        self.progress.set_restored();
        Err(StoreError::Unavailable(format!("the source went back from revision {reached} to {newest}")))
    }

    /// A whole list in parts, so that no part holds a thread for long.
    fn parts(self: Arc<Self>, whole: Page) -> Scan {
        let Page { revision, objects, .. } = whole;
        unfold(Some((self, objects.into_iter())), move |state| async move {
            let (shared, mut rest) = state?;
            let part: Vec<KeyValue> = rest.by_ref().take(PAGE).collect();
            shared.copy.list(part.clone()).await;
            if rest.len() > 0 {
                return Some((Ok(part), Some((shared, rest))));
            }
            shared.copy.end_list(revision).await;
            Some((Ok(part), None))
        })
        .boxed()
    }

    /// The rest of the list that was begun.
    fn rest(self: Arc<Self>, first: Page) -> Scan {
        let state = Some((self, first, 1));
        unfold(state, |state| async {
            let (shared, Page { revision, objects, next }, pages) = state?;
            shared.copy.list(objects.clone()).await;
            let Some(token) = next else {
                shared.copy.end_list(revision).await;
                return Some((Ok(objects), None));
            };
            if pages == PAGES {
                let why = format!("the list of {} has more than {PAGES} pages", shared.kind.path);
                return Some((Err(StoreError::Unavailable(why)), None));
            }
            let token = encoded(&token);
            match shared.page(&format!("limit={PAGE}&continue={token}")).await {
                // The pages of a list have the revision of the first.
                Ok(page) => Some((Ok(objects), Some((shared, Page { revision, ..page }, pages + 1)))),
                Err(fault) => Some((Err(tail::error(&shared.progress, revision, &fault)), None)),
            }
        })
        .boxed()
    }

    /// The newest revision for a consistent read. If the source does not answer, or its watch does not get there in
    /// time, the read continues with the mirrored state, whose [age](Progress::age) the response has.
    async fn newest_for_read(&self) -> Revision {
        let reached = self.progress.reached();
        if self.progress.is_away() {
            return reached;
        }
        let asked_at = Instant::now();
        let newest = match timeout(QUESTION_TIME, self.page("limit=1")).await {
            Ok(Ok(page)) => page.revision,
            Ok(Err(_)) | Err(_) => {
                self.progress.lost();
                return reached;
            }
        };
        if self.check_not_restored(reached, newest).is_err() {
            return reached;
        }
        let reached = self.progress.wait_for(newest, SETTLING_TIME).await;
        if reached >= newest {
            self.progress.heard(asked_at);
            return newest;
        }
        reached
    }
}

/// A text as a segment of a path, or as a name or value of a query.
pub(crate) fn encoded(token: &str) -> String {
    let mut text = String::with_capacity(token.len());
    for byte in token.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(byte.into()),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[async_trait]
impl Store for UpstreamStore {
    async fn commit(&self, _: Transaction) -> Result<Committed, CommitError> {
        Err(CommitError::Store(StoreError::ReadOnly("a mirror takes no writes; send them to the source".to_owned())))
    }

    async fn get(&self, _: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        Err(no_history(self.shared.progress.reached()))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        Err(no_history(request.revision.unwrap_or_default()))
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        let next = std::mem::replace(&mut *self.shared.next.lock(), LoadStage::Nothing);
        Some(match next {
            LoadStage::Listed(whole) if whole.revision == request.revision && whole.next.is_none() => {
                self.shared.clone().parts(whole)
            }
            LoadStage::Listed(first) if first.revision == request.revision => self.shared.clone().rest(first),
            LoadStage::Copied(mark) if mark == request.revision => {
                let copy = self.shared.copy.clone();
                stream::once(async move { copy.objects().await }).try_flatten().boxed()
            }
            _ => stream::once(std::future::ready(Err(no_history(request.revision)))).boxed(),
        })
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        Err(no_history(request.revision.unwrap_or_default()))
    }

    fn seal(&self, _: &str) -> Seal {
        Seal::PLAIN
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        match self.reader {
            Reader::Registry => Ok(self.shared.newest_for_read().await),
            Reader::Cache if self.shared.progress.is_watching() => Ok(self.shared.progress.reached()),
            Reader::Cache => self.shared.begin_load().await,
        }
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.progress.reached())
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let Shared { source, kind, progress, copy, .. } = &*self.shared;
        // The cache loads the list when a tail can't be opened. In an open one, it takes this error for a broken watch.
        if progress.is_expired(after) {
            return Err(no_history(after));
        }
        // A watch of a revision that a restored source has not reached yet would be silent.
        let reached = progress.reached().max(after);
        let newest = self.shared.page("limit=1").await;
        let newest = newest.map_err(|fault| tail::error(progress, after, &fault))?;
        self.shared.check_not_restored(reached, newest.revision)?;
        progress.want(newest.revision);
        tail::open((source.clone(), kind.clone(), progress.clone()), copy.clone(), after).await
    }

    async fn compact(&self, _: Revision) -> Result<(), StoreError> {
        Ok(())
    }

    async fn expire(&self, _: SystemTime) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn verify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The error of a read that only the cache can answer.
fn no_history(requested: Revision) -> StoreError {
    StoreError::Compacted { requested, oldest: requested.next() }
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn continue_tokens_are_encoded_as_one_query_value() {
        assert_eq!(encoded("aZ09-_.~"), "aZ09-_.~");
        assert_eq!(encoded("a&b=c%\u{e9}"), "a%26b%3Dc%25%C3%A9");
    }
}
