//! The newest and the oldest revision.
//!
//! etcd counts one revision for all its keys, and two of them are no business of the store's users: the compaction key and
//! the tick. The newest revision is therefore the newest at which neither of them was written, which is the same for every
//! server, at least that of every acknowledged commit, and one that every tail reaches: by an event, or by being asked for
//! (see the tail's states).
//!
//! etcd does not tell what it has compacted, only whether a revision can be read. The compaction key's value is where the
//! search begins, and usually ends.

use std::sync::atomic::{AtomicI64, Ordering};

use keelson_meta::Revision;
use keelson_storage::StoreError;
use parking_lot::Mutex;

use crate::client::{Client, RANGE, READ_TXN};
use crate::error::Failure;
use crate::keys::{COMPACTION_KEY, Keys};
use crate::proto::{RangeRequest, RangeResponse, Request, RequestOp, Response, ResponseOp, TxnRequest, TxnResponse};

/// How many revisions of housekeeping in a row are looked through. Beyond, the revision found so far is taken, which is a
/// sound answer too: tails reach it by being asked for.
const MOST_STEPS: usize = 1000;
/// How often a search is begun again because etcd was compacted meanwhile.
const SEARCHES: usize = 5;
/// An etcd that was never written to is at this revision.
const FIRST: i64 = 1;

/// etcd's number as the store's.
pub(crate) fn from_etcd(revision: i64) -> Revision {
    Revision::new(revision.max(0).unsigned_abs())
}

/// The store's number as etcd's. What etcd can't have becomes one that it never reaches.
pub(crate) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// What the two keys were at some revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Housekeeping {
    /// The revision that they were read at: etcd's newest, if none was asked for.
    pub(crate) at: i64,
    /// The number of the etcd that answered.
    pub(crate) cluster: u64,
    /// When each was last written; 0 is never.
    pub(crate) compaction: i64,
    pub(crate) tick: i64,
    /// How often the compaction key was written, and the revision it holds.
    pub(crate) compactions: i64,
    pub(crate) compacted: i64,
}

impl Housekeeping {
    /// Whether the revision that it was read at was one of housekeeping alone.
    const fn is_newest(&self) -> bool {
        self.compaction == self.at || self.tick == self.at
    }
}

/// What is known of revisions so far.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    /// From `.0` to `.1` nothing but housekeeping happened behind `.0`.
    quiet: Mutex<(i64, i64)>,
    /// What was once the oldest readable revision; 0 is unknown.
    oldest: AtomicI64,
    /// What lies below is of a history that etcd has lost, though it may still have revisions of the same numbers.
    floor: AtomicI64,
}

impl Revisions {
    /// The newest revision in the sense of the store, at or below the one that `seen` was read at.
    pub(crate) async fn settle(&self, client: &Client, keys: &Keys, seen: Housekeeping) -> Result<Revision, Failure> {
        let top = seen.at;
        let mut seen = seen;
        for _ in 0..MOST_STEPS {
            if let Some(known) = self.known_quiet(seen.at) {
                seen.at = known;
                break;
            }
            if !seen.is_newest() || seen.at <= FIRST {
                break;
            }
            seen = match read(client, keys, seen.at - 1).await {
                // Compacted: what is below can't be told any more.
                Err(Failure::Compacted) => break,
                other => other?,
            };
        }
        self.remember_quiet(seen.at, top);
        Ok(from_etcd(seen.at))
    }

    /// The oldest revision that can be read. One question, unless there was a compaction since the last.
    pub(crate) async fn oldest(&self, client: &Client, keys: &Keys) -> Result<Revision, Failure> {
        for _ in 0..SEARCHES {
            let known = self.oldest.load(Ordering::Acquire);
            let base = known.max(FIRST);
            if is_readable(client, keys, base).await? {
                return Ok(from_etcd(base));
            }
            let found = search(client, keys, base).await?;
            self.oldest.fetch_max(found, Ordering::AcqRel);
        }
        Ok(from_etcd(self.oldest.load(Ordering::Acquire)))
    }

    /// Forgets everything below a revision, at which a history begins that has nothing to do with the one before.
    pub(crate) fn begin_at(&self, revision: i64) {
        self.floor.store(revision, Ordering::Release);
        self.oldest.store(revision, Ordering::Release);
        *self.quiet.lock() = (0, 0);
    }

    /// Whether a revision is of the history that is known.
    pub(crate) fn check(&self, revision: Revision) -> Result<(), StoreError> {
        let oldest = from_etcd(self.floor.load(Ordering::Acquire));
        if revision < oldest { Err(StoreError::Compacted { requested: revision, oldest }) } else { Ok(()) }
    }

    /// Notes a compaction that was just done.
    pub(crate) fn compacted(&self, oldest: i64) {
        self.oldest.fetch_max(oldest, Ordering::AcqRel);
    }

    fn known_quiet(&self, at: i64) -> Option<i64> {
        let (from, to) = *self.quiet.lock();
        (from <= at && at <= to && from > 0).then_some(from)
    }

    fn remember_quiet(&self, from: i64, to: i64) {
        let mut known = self.quiet.lock();
        if to >= known.1 {
            *known = (from, to);
        }
    }
}

/// The reads of both keys, at a revision or at the newest (0), to be part of a transaction.
pub(crate) fn reads(keys: &Keys, revision: i64) -> [RequestOp; 2] {
    [COMPACTION_KEY.to_vec(), keys.tick()]
        .map(|key| Request::Range(RangeRequest { key, revision, ..RangeRequest::default() }).into())
}

/// Reads the answers to [`reads`].
pub(crate) fn housekeeping(at: i64, cluster: u64, answers: &[ResponseOp]) -> Housekeeping {
    let found = |place: usize| match answers.get(place).and_then(|part| part.response.as_ref()) {
        Some(Response::Range(RangeResponse { kvs, .. })) => kvs.first().cloned().unwrap_or_default(),
        _ => Default::default(),
    };
    let (compaction, tick) = (found(0), found(1));
    let compacted = std::str::from_utf8(&compaction.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    Housekeeping {
        at,
        cluster,
        compaction: compaction.mod_revision,
        tick: tick.mod_revision,
        compactions: compaction.version,
        compacted,
    }
}

/// Reads both keys, at a revision or at the newest (0). Sees every commit that was acknowledged before.
pub(crate) async fn read(client: &Client, keys: &Keys, revision: i64) -> Result<Housekeeping, Failure> {
    let request = TxnRequest { success: reads(keys, revision).to_vec(), ..TxnRequest::default() };
    let answer: TxnResponse = client.call(READ_TXN, request).await?;
    let header = answer.header.unwrap_or_default();
    if header.revision < FIRST {
        return Err(Failure::Nonsense("etcd gave an answer without a revision".to_owned()));
    }
    let at = if revision == 0 { header.revision } else { revision };
    Ok(housekeeping(at, header.cluster_id, &answer.responses))
}

/// Whether a revision can still be read. Sees every compaction that was acknowledged before.
pub(crate) async fn is_readable(client: &Client, keys: &Keys, revision: i64) -> Result<bool, Failure> {
    let request = RangeRequest { key: keys.tick(), revision, count_only: true, ..RangeRequest::default() };
    match client.call::<_, RangeResponse>(RANGE, request).await {
        Ok(_) | Err(Failure::Future) => Ok(true),
        Err(Failure::Compacted) => Ok(false),
        Err(other) => Err(other),
    }
}

/// The oldest readable revision above one that is not readable.
async fn search(client: &Client, keys: &Keys, unreadable: i64) -> Result<i64, Failure> {
    let seen = read(client, keys, 0).await?;
    let (mut low, mut high) = (unreadable, seen.at);
    for guess in [seen.compacted, seen.compacted - 1] {
        if low < guess && guess < high {
            if is_readable(client, keys, guess).await? { high = guess } else { low = guess }
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_readable(client, keys, middle).await? { high = middle } else { low = middle }
    }
    Ok(high)
}

/// A failure to read at `requested`, with the revisions that belong to it.
pub(crate) async fn explain(
    failure: Failure,
    requested: Revision,
    client: &Client,
    keys: &Keys,
    revisions: &Revisions,
) -> StoreError {
    let explained = match failure {
        Failure::Compacted => {
            revisions.oldest(client, keys).await.map(|oldest| StoreError::Compacted { requested, oldest })
        }
        Failure::Future => match read(client, keys, 0).await {
            Ok(seen) => revisions
                .settle(client, keys, seen)
                .await
                .map(|current| StoreError::Future { requested, current: current.min(requested) }),
            Err(other) => Err(other),
        },
        other => Err(other),
    };
    explained.unwrap_or_else(Failure::into_store_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_of_housekeeping_are_remembered_as_quiet() {
        let revisions = Revisions::default();
        assert_eq!(revisions.known_quiet(0), None);
        revisions.remember_quiet(7, 9);
        assert_eq!([6, 7, 8, 9, 10].map(|at| revisions.known_quiet(at)), [None, Some(7), Some(7), Some(7), None]);
        revisions.remember_quiet(3, 4);
        assert_eq!(revisions.known_quiet(9), Some(7));
        revisions.remember_quiet(7, 10);
        assert_eq!(revisions.known_quiet(10), Some(7));
    }

    #[test]
    fn numbers_that_etcd_can_not_have_stay_out_of_reach() {
        assert_eq!(to_etcd(Revision::new(u64::MAX)), i64::MAX);
        assert_eq!(from_etcd(-1), Revision::ZERO);
        assert_eq!(from_etcd(to_etcd(Revision::new(12))), Revision::new(12));
    }
}
