//! Reading a range in pages, each behind the last key of the one before.
//!
//! Whoever reads more than fits into one answer does it here: lists of the past, loading, comparing and copying. What a page is used
//! for, and what is passed over, is said by the callers.

use std::ops::Deref;

use futures::stream::{self, Stream};

use crate::key::StoreKey;
use crate::store::{KeyValue, RangeRequest, Store, StoreError};

/// What the store holds in a range, in pages of the request's limit.
pub fn pages<'s, S>(
    store: S,
    request: RangeRequest,
) -> impl Stream<Item = Result<Vec<KeyValue>, StoreError>> + Send + 's
where
    S: Deref<Target: Store> + Clone + Send + Sync + 's,
{
    pages_from(store, request, |last| Some(last.behind()))
}

/// The same that passes over keys: `next` says where to read on behind a page that ends with this key, if anywhere.
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
