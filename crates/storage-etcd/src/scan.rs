//! Reads all entries of some ranges, in large pages.
//!
//! For each page, etcd counts all keys to the end of the requested range. So pages are as large as memory allows. No
//! page only checks for more entries, and a request does not reach to a distant key (`reach.rs`).

mod reach;

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, Scan, ScanRequest, StoreError, StoreKey};

use crate::client::RANGE;
use crate::error::Failure;
use crate::proto::{self, RangeResponse};
use crate::read::fixed;
use crate::revision::explain;
use crate::store::Shared;
use crate::transaction::key_value;

use reach::{PageOutcome, Reach};

/// The number of entries of the first page, before their size is known.
const FIRST_PAGE: usize = 500;
/// The smallest and largest page.
const PAGES: (usize, usize) = (10, 50_000);
/// The target size of a page in bytes. A cache that loads has a few pages in memory at a time.
const PAGE_BYTES: usize = 32 << 20;

/// Reads the ranges in order. Skips a gap between two ranges if a page ends in it.
pub(crate) fn stream(shared: Arc<Shared>, request: ScanRequest) -> Scan {
    let ScanRequest { mut ranges, revision } = request;
    ranges.sort_unstable();
    let mut segments = match (ranges.first(), ranges.last()) {
        (Some((from, _)), Some((_, to))) => shared.keys.segments(from, to),
        _ => Vec::new(),
    };
    segments.reverse();
    let reach = Reach::default();
    let reading = Reading { shared, ranges, at: revision, segments, page: FIRST_PAGE, reach };
    stream::try_unfold(reading, Reading::next).boxed()
}

struct Reading {
    shared: Arc<Shared>,
    /// The ranges, ascending.
    ranges: Vec<(StoreKey, StoreKey)>,
    at: Revision,
    /// The remaining parts of the ranges, in reverse order, as etcd's keys.
    segments: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of entries in the next page.
    page: usize,
    reach: Reach,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Vec<KeyValue>, Self)>, StoreError> {
        self.shared.sure().await?;
        self.shared.revisions.check(self.at)?;
        while !self.segments.is_empty() {
            let connections = self.shared.client.connections();
            let page = self.read().await;
            self.shared.still_sure(connections).await?;
            match page {
                Ok(entries) if entries.is_empty() => {}
                Ok(entries) => return Ok(Some((entries, self))),
                Err(failure @ Failure::SetBack) => return Err(self.shared.told(failure).await),
                Err(failure) => {
                    let Shared { client, keys, revisions, .. } = &*self.shared;
                    return Err(explain(failure, self.at, client, keys, revisions).await);
                }
            }
        }
        Ok(None)
    }

    /// Reads the next page. Returns its entries that are in the ranges.
    async fn read(&mut self) -> Result<Vec<KeyValue>, Failure> {
        let Some((from, to)) = self.segments.last().cloned() else { return Ok(Vec::new()) };
        let end = self.reach.end(&from, &to);
        let (limit, revision) = (i64::try_from(self.page).unwrap_or(i64::MAX), fixed(Some(self.at))?);
        let (key, range_end) = (from.clone(), end.clone());
        let ask = proto::RangeRequest { key, range_end, limit, revision, ..proto::RangeRequest::default() };
        let before = self.shared.seen.highest();
        let page: RangeResponse = self.shared.client.call(RANGE, ask).await?;
        self.shared.seen.saw(before, page.header.unwrap_or_default())?;
        let ends = page.kvs.first().zip(page.kvs.last()).map(|(first, last)| (&*first.key, &*last.key));
        let counted = usize::try_from(page.count).unwrap_or_default();
        self.reach.learn(&PageOutcome { range: (&from, &to), ends, keys: (page.kvs.len(), self.page), counted });
        let bytes: usize = page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        if let Some(average) = bytes.checked_div(page.kvs.len()) {
            self.page = (PAGE_BYTES / average.max(1)).clamp(PAGES.0, PAGES.1);
        }
        match page.kvs.last().filter(|_| page.more) {
            Some(last) => self.go_on_at([&*last.key, b"\0"].concat()),
            None if end < to => self.go_on_at(end),
            None => drop(self.segments.pop()),
        }
        let keys = &self.shared.keys;
        let entries = page.kvs.into_iter().filter_map(|kv| key_value(keys, kv));
        Ok(entries.filter(|entry| self.is_wanted(&entry.key)).collect())
    }

    /// Continues at this key, or at the next key in a range.
    fn go_on_at(&mut self, behind: Vec<u8>) {
        let keys = &self.shared.keys;
        let next = self.ranges.iter().find(|(_, to)| keys.encode(to) > behind);
        match (next, self.segments.last_mut()) {
            (Some((first, _)), Some((from, _))) => *from = keys.encode(first).max(behind),
            _ => self.segments.clear(),
        }
        self.segments.retain(|(from, to)| from < to);
    }

    fn is_wanted(&self, key: &StoreKey) -> bool {
        let behind = self.ranges.partition_point(|(from, _)| from <= key);
        behind.checked_sub(1).is_some_and(|place| *key < self.ranges[place].1)
    }
}
