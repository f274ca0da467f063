//! The newest and the oldest revision.
//!
//! etcd has one revision for all keys. This includes two housekeeping keys that users of the store do not see: the
//! compaction key and the tick. So the newest revision of the store is the newest one that writes neither of them. It
//! is equal for all servers and covers every acknowledged commit. Every tail reaches it, by an event or by a progress
//! request (see the states of the tail).
//!
//! etcd does not report the compacted revision. It only reports that a revision can't be read. The search for the
//! oldest revision starts at the value of the compaction key, and usually ends there.

use std::sync::atomic::{AtomicI64, Ordering};

use keelson_meta::Revision;
use keelson_storage::StoreError;
use parking_lot::Mutex;

use crate::client::{Client, RANGE, READ_TXN};
use crate::error::Failure;
use crate::keys::{COMPACTION_KEY, Keys};
use crate::proto::{RangeRequest, RangeResponse, Request, RequestOp, Response, ResponseOp, TxnRequest, TxnResponse};

/// The maximum number of consecutive housekeeping revisions that are examined. If there are more, the current revision
/// is returned. That is valid too, since tails reach it by a progress request.
const MOST_STEPS: usize = 1000;
/// The maximum number of searches that a concurrent compaction restarts.
const SEARCHES: usize = 5;
/// The revision of an etcd without writes.
const FIRST: i64 = 1;

/// Converts etcd's revision to the store's.
pub(crate) fn from_etcd(revision: i64) -> Revision {
    Revision::new(revision.max(0).unsigned_abs())
}

/// Converts the store's revision to etcd's. A revision that is too large becomes one that etcd never reaches.
pub(crate) fn to_etcd(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// The state of the two housekeeping keys at a revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Housekeeping {
    /// The revision of the read: the requested one, or etcd's newest.
    pub(crate) at: i64,
    /// The cluster id of the etcd.
    pub(crate) cluster: u64,
    /// The revision of the last write to each key. 0 if there was none.
    pub(crate) compaction: i64,
    pub(crate) tick: i64,
    /// The number of writes to the compaction key, and the revision in its value.
    pub(crate) compactions: i64,
    pub(crate) compacted: i64,
}

impl Housekeeping {
    /// Returns true if the revision of the read only has a write to a housekeeping key.
    const fn is_newest(&self) -> bool {
        self.compaction == self.at || self.tick == self.at
    }
}

/// The known revisions.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    /// All revisions after `.0` up to `.1` are housekeeping writes.
    quiet: Mutex<(i64, i64)>,
    /// A revision that was the oldest readable one at some time. 0 if unknown.
    oldest: AtomicI64,
    /// Lower revisions belong to a lost history, even if etcd has other content at them.
    floor: AtomicI64,
}

impl Revisions {
    /// Returns the newest revision of the store that is not above `seen`.
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
                // Earlier revisions are compacted and can't be examined.
                Err(Failure::Compacted) => break,
                other => other?,
            };
        }
        self.remember_quiet(seen.at, top);
        Ok(from_etcd(seen.at))
    }

    /// Returns the oldest readable revision. Needs one request, unless there was a compaction since the last call.
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

    /// Discards all revisions below `revision`, at which another history begins.
    pub(crate) fn begin_at(&self, revision: i64) {
        self.floor.store(revision, Ordering::Release);
        self.oldest.store(revision, Ordering::Release);
        *self.quiet.lock() = (0, 0);
    }

    /// Checks that a revision belongs to the current history.
    pub(crate) fn check(&self, revision: Revision) -> Result<(), StoreError> {
        let oldest = from_etcd(self.floor.load(Ordering::Acquire));
        if revision < oldest { Err(StoreError::Compacted { requested: revision, oldest }) } else { Ok(()) }
    }

    /// Records a compaction.
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

/// Creates read requests for both keys, at a revision or at the newest (0), to use in a transaction.
pub(crate) fn reads(keys: &Keys, revision: i64) -> [RequestOp; 2] {
    [COMPACTION_KEY.to_vec(), keys.tick()]
        .map(|key| Request::Range(RangeRequest { key, revision, ..RangeRequest::default() }).into())
}

/// Parses the answers to [`reads`].
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

/// Reads both keys, at a revision or at the newest (0). Sees every commit acknowledged before.
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

/// Returns true if a revision can be read. Sees every compaction acknowledged before.
pub(crate) async fn is_readable(client: &Client, keys: &Keys, revision: i64) -> Result<bool, Failure> {
    let request = RangeRequest { key: keys.tick(), revision, count_only: true, ..RangeRequest::default() };
    match client.call::<_, RangeResponse>(RANGE, request).await {
        Ok(_) | Err(Failure::Future) => Ok(true),
        Err(Failure::Compacted) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Searches for the oldest readable revision above an unreadable one.
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

/// Returns the error for a failed read at `requested`, with the revisions.
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
