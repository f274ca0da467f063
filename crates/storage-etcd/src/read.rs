//! Reads: single keys, ranges in pages, counts.
//!
//! A range is read in pages, so that no response has a whole collection. The first page determines the revision of all
//! pages. The size of the entries so far determines the size of the next page.

use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangePage, RangeRequest, StoreError, StoreKey};

use crate::client::{RANGE, READ_TXN};
use crate::error::Failure;
use crate::proto::{self, RangeResponse, Request, Response, TxnRequest, TxnResponse};
use crate::revision::{self, explain, from_etcd, housekeeping, to_etcd};
use crate::store::Shared;
use crate::transaction::key_value;

/// The number of entries of the first page, before their size is known.
const FIRST_PAGE: usize = 500;
/// The smallest and largest page.
const PAGES: (usize, usize) = (10, 10_000);
/// The target size of a page in bytes.
const PAGE_BYTES: usize = 4 << 20;
/// The maximum number of attempts of a read at the newest revision, since compactions may interrupt it.
const ATTEMPTS: usize = 5;

/// The newest value of a key.
pub(crate) async fn get(shared: &Shared, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
    let request = proto::RangeRequest { key: shared.keys.encode(key), ..proto::RangeRequest::default() };
    let before = shared.seen.highest();
    let answer: RangeResponse = shared.client.call(RANGE, request).await.map_err(Failure::into_store_error)?;
    if let Err(failure) = shared.seen.saw(before, answer.header.unwrap_or_default()) {
        return Err(shared.told(failure).await);
    }
    Ok(answer.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)))
}

/// Reads all entries of a range at one revision, up to its limit.
pub(crate) async fn range(shared: &Shared, request: RangeRequest) -> Result<RangePage, StoreError> {
    request.revision.map_or(Ok(()), |revision| shared.revisions.check(revision))?;
    let mut attempts = ATTEMPTS;
    loop {
        match Walk::new(shared, &request).run(request.revision).await {
            Err(Failure::Compacted) if request.revision.is_none() && attempts > 1 => attempts -= 1,
            Err(failure @ Failure::SetBack) => return Err(shared.told(failure).await),
            Err(failure) => {
                let requested = request.revision.unwrap_or_default();
                let Shared { client, keys, revisions, .. } = shared;
                return Err(explain(failure, requested, client, keys, revisions).await);
            }
            Ok(page) => return Ok(page),
        }
    }
}

/// Returns the number of entries that [`range`] would return.
pub(crate) async fn count(shared: &Shared, request: RangeRequest) -> Result<u64, StoreError> {
    request.revision.map_or(Ok(()), |revision| shared.revisions.check(revision))?;
    match try_count(shared, &request).await {
        Err(failure @ Failure::SetBack) => Err(shared.told(failure).await),
        Ok(count) => Ok(count.min(request.limit.unwrap_or(usize::MAX) as u64)),
        Err(failure) => {
            let requested = request.revision.unwrap_or_default();
            Err(explain(failure, requested, &shared.client, &shared.keys, &shared.revisions).await)
        }
    }
}

async fn try_count(shared: &Shared, request: &RangeRequest) -> Result<u64, Failure> {
    let mut at = fixed(request.revision)?;
    let mut total = 0;
    for (key, range_end) in shared.keys.segments(&request.from, &request.to) {
        let ask = proto::RangeRequest { key, range_end, revision: at, count_only: true, ..Default::default() };
        let before = shared.seen.highest();
        let answer: RangeResponse = shared.client.call(RANGE, ask).await?;
        shared.seen.saw(before, answer.header.unwrap_or_default())?;
        total += answer.count.max(0).unsigned_abs();
        if at == 0 {
            at = answer.header.unwrap_or_default().revision;
        }
    }
    Ok(total)
}

/// Converts a revision to etcd's, 0 for the newest. In etcd, revision 0 is the newest. In the store, revision 0
/// precedes all others, so it is compacted.
pub(crate) fn fixed(revision: Option<Revision>) -> Result<i64, Failure> {
    match revision {
        Some(Revision::ZERO) => Err(Failure::Compacted),
        Some(revision) => Ok(to_etcd(revision)),
        None => Ok(0),
    }
}

/// The state of a range read.
struct Walk<'a> {
    shared: &'a Shared,
    /// The remaining parts of the range, in reverse order.
    segments: Vec<(Vec<u8>, Vec<u8>)>,
    limit: usize,
    entries: Vec<KeyValue>,
    page: usize,
}

impl<'a> Walk<'a> {
    fn new(shared: &'a Shared, request: &RangeRequest) -> Self {
        let mut segments = shared.keys.segments(&request.from, &request.to);
        segments.reverse();
        let limit = request.limit.unwrap_or(usize::MAX);
        Self { shared, segments, limit, entries: Vec::new(), page: FIRST_PAGE }
    }

    async fn run(mut self, revision: Option<Revision>) -> Result<RangePage, Failure> {
        let at = fixed(revision)?;
        let (mut answer, revision, at) = self.first(at).await?;
        loop {
            if self.entries.len() == self.limit && !answer.kvs.is_empty() {
                return Ok(RangePage { entries: self.entries, revision, more: true });
            }
            self.take(answer);
            if self.segments.is_empty() {
                return Ok(RangePage { entries: self.entries, revision, more: false });
            }
            answer = self.shared.client.call(RANGE, self.ask(at)).await?;
        }
    }

    /// Returns the first page, the revision of the result, and the revision to read the other pages at.
    async fn first(&self, at: i64) -> Result<(RangeResponse, Revision, i64), Failure> {
        let Shared { client, keys, revisions, seen, .. } = self.shared;
        let before = seen.highest();
        if at > 0 {
            let page: RangeResponse = client.call(RANGE, self.ask(at)).await?;
            seen.saw(before, page.header.unwrap_or_default())?;
            return Ok((page, from_etcd(at), at));
        }
        let mut success = vec![Request::Range(self.ask(0)).into()];
        success.extend(revision::reads(keys, 0));
        let request = TxnRequest { success, ..TxnRequest::default() };
        let mut answer: TxnResponse = client.call(READ_TXN, request).await?;
        let header = answer.header.unwrap_or_default();
        let at = header.revision;
        seen.saw(before, header)?;
        let seen = housekeeping(at, header.cluster_id, answer.responses.get(1..).unwrap_or_default());
        let newest = revisions.settle(client, keys, seen).await?;
        match answer.responses.first_mut().and_then(|part| part.response.take()) {
            Some(Response::Range(page)) => Ok((page, newest, at)),
            _ => Err(Failure::Nonsense("etcd sent a response of another kind".to_owned())),
        }
    }

    /// Returns the request for the next page. At the limit it reads one more key, to find out if there are more. For an
    /// empty range it reads a key outside of all ranges, to check the revision.
    fn ask(&self, revision: i64) -> proto::RangeRequest {
        let left = self.limit - self.entries.len();
        let limit = i64::try_from(self.page.min(left.max(1))).unwrap_or(i64::MAX);
        match self.segments.last() {
            Some((key, range_end)) => proto::RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit,
                revision,
                keys_only: left == 0,
                ..proto::RangeRequest::default()
            },
            None => {
                proto::RangeRequest { key: self.shared.keys.tick(), revision, count_only: true, ..Default::default() }
            }
        }
    }

    /// Adds a page to the result, and continues after its last key.
    fn take(&mut self, page: RangeResponse) {
        let bytes: usize = page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        if let Some(average) = bytes.checked_div(page.kvs.len()) {
            self.page = (PAGE_BYTES / average.max(1)).clamp(PAGES.0, PAGES.1);
        }
        match (page.more, page.kvs.last(), self.segments.last_mut()) {
            (true, Some(last), Some((from, _))) => {
                from.clone_from(&last.key);
                from.push(0);
            }
            _ => {
                self.segments.pop();
            }
        }
        let keys = &self.shared.keys;
        self.entries.extend(page.kvs.into_iter().filter_map(|kv| key_value(keys, kv)));
    }
}
