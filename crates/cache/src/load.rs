//! Reads collections out of the store: page by page, decoded on several cores while the next page is on its way.
//!
//! Memory is bounded by what is kept: as many pages as the runtime has threads are in work, whatever the collection holds.

use std::sync::Arc;

use futures::{Stream, TryStreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, Store, StoreError, StoreKey};

use crate::cache::Shared;
use crate::collection::Unreadable;
use crate::entry::Entry;

/// How many keys one read asks for.
pub(crate) const PAGE: usize = 500;

/// How many pieces are decoded at the same time: one for each thread that the runtime was given.
pub(crate) fn decoders() -> usize {
    tokio::runtime::Handle::current().metrics().num_workers()
}

/// What the store holds under a prefix at a revision, in key order.
pub(crate) fn pages(
    store: Arc<dyn Store>,
    prefix: &str,
    revision: Revision,
) -> impl Stream<Item = Result<Vec<KeyValue>, StoreError>> + Send + 'static {
    let to = StoreKey::prefix_end(prefix);
    stream::try_unfold(Some(StoreKey::new(prefix)), move |from| {
        let (store, to) = (store.clone(), to.clone());
        async move {
            let Some(from) = from else { return Ok(None) };
            let page = store.range(RangeRequest { from, to, revision: Some(revision), limit: Some(PAGE) }).await?;
            let last = page.entries.last().filter(|_| page.more);
            let next = last.map(|stored| StoreKey::new(format!("{}\0", stored.key)));
            Ok(Some((page.entries, next)))
        }
    })
}

/// What was read of a collection.
#[derive(Default)]
pub(crate) struct Loaded {
    /// In key order.
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) unreadable: Unreadable,
}

/// What the collection at `place` holds at a revision.
pub(crate) async fn entries(
    store: &Arc<dyn Store>,
    shared: &Arc<Shared>,
    place: usize,
    revision: Revision,
) -> Result<Loaded, StoreError> {
    let decoded = pages(store.clone(), shared.collections[place].prefix(), revision)
        .map_ok(|page| {
            let shared = shared.clone();
            on_a_core(move || decode(&shared, place, &page))
        })
        .try_buffered(decoders());
    decoded
        .try_fold(Loaded::default(), async |mut so_far, page| {
            so_far.entries.extend(page.entries);
            so_far.unreadable.extend(page.unreadable);
            Ok(so_far)
        })
        .await
}

fn decode(shared: &Shared, place: usize, page: &[KeyValue]) -> Loaded {
    let mut loaded = Loaded::default();
    for stored in page {
        match shared.decode(place, stored) {
            Ok(entry) => loaded.entries.push(entry),
            Err(error) => {
                let prefix = shared.collections[place].prefix();
                let key = stored.key.as_str();
                loaded.unreadable.insert(key.strip_prefix(prefix).unwrap_or(key).into(), error);
            }
        }
    }
    loaded
}

/// Has work done beside the runtime's own threads. It begins at once, whether or not the future is polled.
pub(crate) fn on_a_core<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
    let task = tokio::task::spawn_blocking(work);
    async move {
        match task.await {
            Ok(done) => Ok(done),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::Unavailable("the server is stopping".to_owned())),
        }
    }
}
