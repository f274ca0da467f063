//! Reads a range in pages, each starting after the last key of the one before.
//!
//! Users are large reads: lists at old revisions, loading, comparing and copying. Callers choose the keys to skip and
//! the use of each page.

use std::ops::Deref;

use futures::stream::{self, Stream};

use crate::key::StoreKey;
use crate::store::{KeyValue, RangeRequest, Store, StoreError};

/// Reads a range in pages of the request's limit.
pub fn pages<'s, S>(
    store: S,
    request: RangeRequest,
) -> impl Stream<Item = Result<Vec<KeyValue>, StoreError>> + Send + 's
where
    S: Deref<Target: Store> + Clone + Send + Sync + 's,
{
    pages_from(store, request, |last| Some(last.behind()))
}

/// Reads a range in pages and skips keys: `next` returns the key to continue at after a page's last key, if any.
pub fn pages_from<'s, S>(
    store: S,
    request: RangeRequest,
    next: impl Fn(&StoreKey) -> Option<StoreKey> + Clone + Send + 's,
) -> impl Stream<Item = Result<Vec<KeyValue>, StoreError>> + Send + 's
where
    S: Deref<Target: Store> + Clone + Send + Sync + 's,
{
    stream::try_unfold(Some(request), move |request| {
        let (store, next) = (store.clone(), next.clone());
        async move {
            let Some(request) = request else { return Ok(None) };
            let page = store.range(request.clone()).await?;
            let last = page.entries.last().filter(|_| page.more);
            let from = last.and_then(|last| next(&last.key));
            Ok(Some((page.entries, from.map(|from| RangeRequest { from, ..request }))))
        }
    })
}
