//! Detects an etcd that was reset to an older state, and raises its revision above all that this server returned.
//!
//! When a volume snapshot is restored, etcd loses changes that clients have seen, and keeps its cluster id. So the
//! server remembers the newest revision from etcd, and some changes as witnesses. A lower revision or a missing witness
//! proves a reset. The server that finds it raises etcd's revision above all that it has seen, and rewrites the objects
//! that were written since. So no revision of a lost version is used again. Then it compacts all earlier history, so
//! all earlier watches and tokens must list again. Several servers may do this at once. If etcd is empty or has another
//! store, its revision is not raised, and it is not used (`name.rs`).
//!
//! Invariant: the revisions that this server returns never decrease.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{StoreError, StoreEvent, StoreKey, Write};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::{PUT, RANGE, TXN};
use crate::compact;
use crate::error::Failure;
use crate::keys::Keys;
use crate::name;
use crate::proto::{
    Compare, CompareResult, CompareTarget, CompareWith, KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse,
    Request, ResponseHeader, TxnRequest, TxnResponse,
};
use crate::revision::{self, to_etcd};
use crate::store::Shared;

/// The number of newest changes that are remembered as witnesses.
const NEWEST: usize = 32;
/// The number of older changes that are remembered as witnesses.
const OLDER: usize = 128;
/// The minimum distance between two older witnesses, in revisions.
const APART: i64 = 128;
/// The distance by which the revision is raised above the highest one seen. Clients of other servers may have seen a
/// higher revision by at most this distance, unless their servers detect the reset themselves.
const MARGIN: i64 = 1000;
/// The maximum number of writes that raise the revision. etcd executes some thousands a second.
const MOST_RAISED: i64 = 5_000_000;
/// The number of concurrent writes for raising the revision.
const IN_FLIGHT: usize = 64;
/// The number of these writes between two checks of etcd's revision.
const ROUND: i64 = 4096;
/// The maximum number of objects that are rewritten.
const MOST_AGAIN: i64 = 10_000;

/// The remembered revisions and witnesses.
#[derive(Debug)]
pub(crate) struct RememberedState {
    /// The cluster id when the store was opened.
    pub(crate) cluster: u64,
    /// The newest revision that etcd has reported.
    highest: AtomicI64,
    witnesses: Mutex<HashedChanges>,
    /// The number of resets. Tails start again after each.
    pub(crate) times: watch::Sender<u64>,
    /// Locked while the revision is raised.
    raising: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct HashedChanges {
    newest: VecDeque<HashedChange>,
    older: VecDeque<HashedChange>,
}

/// A change with a hash of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HashedChange {
    key: Vec<u8>,
    revision: i64,
    value: u64,
}

/// The result of comparing etcd with the remembered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateComparison {
    /// etcd has all remembered changes that it could still show.
    Same,
    /// etcd was reset. The remembered changes up to this revision still exist; 0 if none does.
    SetBack { common: i64 },
}

/// The result of searching a witness in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    There,
    Gone,
    /// The revision can't be read any more, so the change may have existed.
    Compacted,
}

impl RememberedState {
    pub(crate) fn new(cluster: u64, highest: i64) -> Self {
        Self {
            cluster,
            highest: AtomicI64::new(highest),
            witnesses: Mutex::default(),
            times: watch::Sender::new(0),
            raising: tokio::sync::Mutex::default(),
        }
    }

    /// The newest revision so far. The answer to a request that is sent now must have this revision or a higher one.
    pub(crate) fn highest(&self) -> i64 {
        self.highest.load(Ordering::Acquire)
    }

    /// Checks the header of a response, and records its revision. `before` was the newest revision when the request was
    /// sent.
    ///
    /// # Errors
    /// etcd was reset, or another cluster answered.
    pub(crate) fn saw(&self, before: i64, header: ResponseHeader) -> Result<(), Failure> {
        if header.revision < before || header.cluster_id != self.cluster {
            return Err(Failure::SetBack);
        }
        self.highest.fetch_max(header.revision, Ordering::AcqRel);
        Ok(())
    }

    /// Records changes of a tail. Deletes can't be witnesses, since a read does not find them.
    pub(crate) fn told(&self, keys: &Keys, events: &[StoreEvent]) {
        let Some(last) = events.last() else { return };
        self.highest.fetch_max(to_etcd(last.revision), Ordering::AcqRel);
        let newest = &events[events.len().saturating_sub(NEWEST)..];
        let values = newest.iter().filter_map(|event| Some((&event.key, event.value.as_deref()?, event.revision)));
        self.witnesses.lock().add(keys, values);
    }

    /// Records a write of this server at a revision.
    pub(crate) fn wrote(&self, keys: &Keys, writes: &[Write], revision: Revision) {
        let values = writes.iter().take(1).filter_map(|write| match write {
            Write::Put { key, value, .. } => Some((key, &value[..], revision)),
            Write::Delete { .. } => None,
        });
        self.witnesses.lock().add(keys, values);
    }
}

impl HashedChanges {
    fn add<'a>(&mut self, keys: &Keys, values: impl Iterator<Item = (&'a StoreKey, &'a [u8], Revision)>) {
        for (key, value, revision) in values {
            let revision = to_etcd(revision);
            // Several tails and the writer report the same change.
            if self.newest.back().is_some_and(|newest| newest.revision >= revision) {
                continue;
            }
            self.newest.push_back(HashedChange { key: keys.encode(key), revision, value: hash(value) });
            if self.newest.len() > NEWEST
                && let Some(old) = self.newest.pop_front()
            {
                self.keep(old);
            }
        }
    }

    fn keep(&mut self, old: HashedChange) {
        if self.older.back().is_none_or(|older| older.revision + APART <= old.revision) {
            self.older.push_back(old);
            if self.older.len() > OLDER {
                self.older.pop_front();
            }
        }
    }
}

fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Shared {
    /// Checks that etcd still has the newest witness. It may have lost changes while it was unreachable.
    ///
    /// # Errors
    /// etcd was reset, or has another store. The caller starts again after the repair.
    pub(crate) async fn recognise(&self) -> Result<(), Failure> {
        if let Some(known) = self.name.known()
            && name::read(&self.client, &self.keys).await?.as_deref() != Some(known)
        {
            return Err(Failure::SetBack);
        }
        let newest = self.seen.witnesses.lock().newest.back().cloned();
        match newest {
            Some(witness) if self.trace(&witness).await? == Trace::Gone => Err(Failure::SetBack),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the store error for a failure. Repairs etcd first if it was reset.
    pub(crate) async fn told(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::SetBack => self.set_back().await,
            other => other.into_store_error(),
        }
    }

    /// Repairs an etcd that was reset. Returns the error for the caller, whose call has no result.
    pub(crate) async fn set_back(&self) -> StoreError {
        let found = *self.seen.times.borrow();
        let _raising = self.seen.raising.lock().await;
        let again = StoreError::Unavailable(
            "etcd was set back to an older state; its revision was raised above it, and a retry may help".to_owned(),
        );
        if *self.seen.times.borrow() != found {
            // Another caller has repaired etcd meanwhile.
            return again;
        }
        match self.raise().await {
            Ok(()) => again,
            Err(failure) => failure.into_store_error(),
        }
    }

    async fn raise(&self) -> Result<(), Failure> {
        let found = revision::read(&self.client, &self.keys, 0).await?;
        let (at, highest) = (found.at, self.seen.highest());
        let (standing, is_proven) = self.judge(at).await?;
        // ORDER: the name is checked before anything is written, since the data may belong to another store.
        self.check_name(found.cluster, is_proven).await?;
        let StateComparison::SetBack { common } = standing else { return Ok(()) };
        tracing::error!(
            seen = highest,
            has = at,
            common,
            "etcd was set back to an older state under this server; its revision is raised above what was seen, all clients list \
             anew, and what was lost has to be written again"
        );
        let raised = self.raise_above(highest.max(at) + MARGIN).await?;
        let again = self.write_again(common, at).await?;
        self.name_again().await;
        let begins = self.newest_of_etcd().await?.max(raised);
        self.revisions.begin_at(begins);
        self.leases().forget();
        *self.seen.witnesses.lock() = HashedChanges::default();
        self.seen.highest.store(begins, Ordering::Release);
        // ORDER: this is published after everything that restarted tails read.
        self.seen.times.send_modify(|times| *times += 1);
        // The compaction shows all other servers that earlier history is gone. Without permission to compact, only this
        // server treats it as gone.
        if let Err(failure) = compact::begin_at(self, begins).await {
            tracing::warn!(?failure, "etcd was not compacted after it was set back");
        }
        tracing::warn!(begins, again, "the history of etcd continues at a higher revision");
        Ok(())
    }

    /// Compares an etcd at revision `at` with the witnesses. Also returns true if etcd has one of them.
    async fn judge(&self, at: i64) -> Result<(StateComparison, bool), Failure> {
        let witnesses: Vec<HashedChange> = {
            let witnesses = self.seen.witnesses.lock();
            witnesses.older.iter().chain(&witnesses.newest).rev().cloned().collect()
        };
        let mut lost = at < self.seen.highest();
        for witness in witnesses {
            let trace = self.trace(&witness).await?;
            if trace != Trace::Gone {
                let standing =
                    if lost { StateComparison::SetBack { common: witness.revision } } else { StateComparison::Same };
                return Ok((standing, trace == Trace::There));
            }
            lost = true;
        }
        Ok((if lost { StateComparison::SetBack { common: 0 } } else { StateComparison::Same }, false))
    }

    async fn trace(&self, witness: &HashedChange) -> Result<Trace, Failure> {
        let request = RangeRequest { key: witness.key.clone(), revision: witness.revision, ..RangeRequest::default() };
        match self.client.call::<_, RangeResponse>(RANGE, request).await {
            Ok(answer) => {
                let is_it = |kv: &KeyValue| kv.mod_revision == witness.revision && hash(&kv.value) == witness.value;
                Ok(if answer.kvs.first().is_some_and(is_it) { Trace::There } else { Trace::Gone })
            }
            Err(Failure::Compacted) => Ok(Trace::Compacted),
            Err(Failure::Future) => Ok(Trace::Gone),
            Err(other) => Err(other),
        }
    }

    async fn newest_of_etcd(&self) -> Result<i64, Failure> {
        let request = RangeRequest { key: self.keys.tick(), count_only: true, ..RangeRequest::default() };
        let answer: RangeResponse = self.client.call(RANGE, request).await?;
        Ok(answer.header.unwrap_or_default().revision)
    }

    /// Writes until etcd is above revision `goal`. Returns etcd's revision.
    async fn raise_above(&self, goal: i64) -> Result<i64, Failure> {
        let mut at = self.newest_of_etcd().await?;
        if goal - at > MOST_RAISED {
            return Err(Failure::Nonsense(format!(
                "etcd was set back by {} revisions, which are too many to be made up for by writing: stop all servers, restore a \
                 snapshot with `etcdutl snapshot restore --bump-revision`, and start them again",
                goal - at
            )));
        }
        while at <= goal {
            let writes = (goal + 1 - at).min(ROUND);
            let mut done = stream::iter(0..writes).map(|_| self.write_raised(goal)).buffer_unordered(IN_FLIGHT);
            while let Some(written) = done.next().await {
                at = at.max(written?);
            }
        }
        Ok(at)
    }

    async fn write_raised(&self, goal: i64) -> Result<i64, Failure> {
        let request =
            PutRequest { key: self.keys.raised(), value: Bytes::from(goal.to_string()), ..PutRequest::default() };
        // Repeating the write is harmless, since only the number of writes matters.
        match self.client.call::<_, PutResponse>(PUT, request.clone()).await {
            Err(Failure::Unavailable { .. }) => self.client.call::<_, PutResponse>(PUT, request).await,
            written => written,
        }
        .map(|answer| answer.header.unwrap_or_default().revision)
    }

    /// Rewrites unchanged the objects whose last write is in a range of revisions, unless other writes change them
    /// meanwhile. Returns their number.
    async fn write_again(&self, after: i64, until: i64) -> Result<usize, Failure> {
        let (key, range_end) = self.keys.all();
        let request = RangeRequest {
            key,
            range_end,
            limit: MOST_AGAIN,
            keys_only: true,
            min_mod_revision: after + 1,
            max_mod_revision: until,
            ..RangeRequest::default()
        };
        let written: RangeResponse = self.client.call(RANGE, request).await?;
        if written.more {
            tracing::warn!("more than {MOST_AGAIN} objects were written since; the others keep their revisions");
        }
        let again = written.kvs.iter().filter(|kv| !self.keys.is_reserved(&kv.key)).map(|kv| {
            let compare = Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: kv.key.clone(),
                with: Some(CompareWith::ModRevision(kv.mod_revision)),
            };
            let put =
                PutRequest { key: kv.key.clone(), ignore_value: true, ignore_lease: true, ..PutRequest::default() };
            TxnRequest { compare: vec![compare], success: vec![Request::Put(put).into()], ..TxnRequest::default() }
        });
        let again: Vec<TxnRequest> = again.collect();
        let count = again.len();
        let mut done = stream::iter(again)
            .map(|request| self.client.call::<_, TxnResponse>(TXN, request))
            .buffer_unordered(IN_FLIGHT);
        while let Some(written) = done.next().await {
            written?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: u64) -> StoreEvent {
        let value = Some(Bytes::from(revision.to_string()));
        StoreEvent::new(StoreKey::new("/registry/a"), Revision::new(revision), value)
    }

    #[test]
    fn old_changes_are_remembered_ever_farther_apart() {
        let (seen, keys) = (RememberedState::new(7, 1), Keys::new("/registry".to_owned()));
        for revision in 2..=10_000 {
            seen.told(&keys, &[put(revision)]);
            // A second tail reports the same change.
            seen.told(&keys, &[put(revision)]);
        }
        assert_eq!(seen.highest(), 10_000);
        let witnesses = seen.witnesses.lock();
        let newest: Vec<i64> = witnesses.newest.iter().map(|witness| witness.revision).collect();
        assert_eq!(newest, (9_969..=10_000).collect::<Vec<_>>());
        let older: Vec<i64> = witnesses.older.iter().map(|witness| witness.revision).collect();
        assert!(older.len() > 70 && older.windows(2).all(|pair| pair[0] + APART == pair[1]), "{older:?}");
    }

    #[test]
    fn a_response_older_than_the_known_revision_is_detected() {
        let seen = RememberedState::new(7, 5);
        let header = |revision| ResponseHeader { cluster_id: 7, revision };
        seen.saw(5, header(9)).unwrap();
        // The request was sent before revision 9 arrived.
        seen.saw(5, header(6)).unwrap();
        assert_eq!(seen.saw(9, header(8)), Err(Failure::SetBack));
        assert_eq!(seen.saw(9, ResponseHeader { cluster_id: 8, revision: 10 }), Err(Failure::SetBack));
        assert_eq!(seen.highest(), 9);
    }
}
