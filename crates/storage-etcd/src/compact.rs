//! Compaction, coordinated with all other API servers on the same etcd.
//!
//! Compaction follows upstream's protocol. A server first writes the revision into the compaction key, in a transaction
//! that compares the version of the key. It compacts only if the transaction succeeds. So servers of all kinds compact
//! one after another, and all of them find the compacted revision in the key.

use std::time::Duration;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreError;
use keelson_supervision::warn_repeated;
use tokio::time::Instant;

use crate::client::{COMPACT, TXN};
use crate::error::Failure;
use crate::keys::COMPACTION_KEY;
use crate::proto::{
    CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, CompareWith, PutRequest, Request,
    TxnRequest, TxnResponse,
};
use crate::revision::{self, Housekeeping, from_etcd, to_etcd};
use crate::store::Shared;

/// The maximum number of lost races before this server leaves the compaction to other servers.
const TRIES: usize = 5;
/// The time until the next attempt after etcd has denied compaction to this user.
const TRY_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Compacts the history below `oldest`.
pub(crate) async fn compact(shared: &Shared, oldest: Revision) -> Result<(), StoreError> {
    let Shared { client, keys, revisions, may_not_compact, .. } = shared;
    let requested = to_etcd(oldest);
    if may_not_compact.lock().is_some_and(|since| since.elapsed() < TRY_AGAIN) {
        return Ok(());
    }
    for _ in 0..TRIES {
        if revisions.oldest(client, keys).await.map_err(Failure::into_store_error)? >= oldest {
            return Ok(());
        }
        let seen = revision::read(client, keys, 0).await.map_err(Failure::into_store_error)?;
        if requested > seen.at {
            let current = revisions.settle(client, keys, seen).await.map_err(Failure::into_store_error)?;
            return Err(StoreError::Future { requested: oldest, current });
        }
        // Another server that has announced this revision may be compacting or may have ended. Compacting twice is
        // harmless. An etcd without space refuses the announcement but needs the compaction. Other servers then learn
        // of the compaction when a read fails, as after a compaction by etcd itself.
        let is_announced = seen.compacted >= requested
            || match announce(shared, requested, seen).await {
                Err(Failure::NoSpace(_)) => true,
                announced => announced.map_err(Failure::into_store_error)?,
            };
        if is_announced {
            return do_it(shared, requested).await.map_err(Failure::into_store_error);
        }
    }
    tracing::debug!(%oldest, "other servers compact more often than this one; this one skips the compaction");
    Ok(())
}

/// Compacts all history below a revision at which a new history begins.
pub(crate) async fn begin_at(shared: &Shared, revision: i64) -> Result<(), Failure> {
    let seen = revision::read(&shared.client, &shared.keys, 0).await?;
    if seen.compacted < revision {
        // If another server is faster, it announces the same revision, and compacting twice is harmless.
        announce(shared, revision, seen).await?;
    }
    do_it(shared, revision).await
}

/// Writes the revision into the compaction key. Returns false if another server has written the key meanwhile.
async fn announce(shared: &Shared, revision: i64, seen: Housekeeping) -> Result<bool, Failure> {
    let key = COMPACTION_KEY.to_vec();
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key: key.clone(),
        with: Some(CompareWith::Version(seen.compactions)),
    };
    let put = PutRequest { key, value: Bytes::from(revision.to_string()), ..PutRequest::default() };
    let request =
        TxnRequest { compare: vec![compare], success: vec![Request::Put(put).into()], ..TxnRequest::default() };
    let answer: TxnResponse = shared.client.call(TXN, request).await?;
    Ok(answer.succeeded)
}

async fn do_it(shared: &Shared, revision: i64) -> Result<(), Failure> {
    match shared.client.call::<_, CompactionResponse>(COMPACT, CompactionRequest { revision }).await {
        Ok(_) => {
            shared.revisions.compacted(revision);
            tracing::debug!(oldest = %from_etcd(revision), "etcd is compacted");
            Ok(())
        }
        // etcd is compacted to this revision or a higher one already.
        Err(Failure::Compacted) => Ok(()),
        // Since 3.4.42, 3.5.28 and 3.6.9, only the user root may compact, so the operator must decide who compacts. The
        // store works without compaction by this server, and etcd can compact by itself.
        Err(Failure::Refused(cause)) => {
            warn_repeated!(""; %cause,
                "etcd does not let its user compact, so its history grows: give the user the role root, or start etcd with \
                 --auto-compaction-retention"
            );
            *shared.may_not_compact.lock() = Some(Instant::now());
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use keelson_storage::{Store, StoreKey, Transaction};
    use keelson_teststores::EtcdServer;

    use super::*;
    use crate::{EtcdConfig, EtcdStore};

    /// The steps of upstream's compactor: version, put, compact.
    async fn announce_as_upstream(shared: &Shared, revision: i64) -> bool {
        let seen = revision::read(&shared.client, &shared.keys, 0).await.unwrap();
        announce(shared, revision, seen).await.unwrap()
    }

    #[tokio::test]
    async fn the_key_that_upstream_compacts_by_is_kept() {
        let Some(server) = EtcdServer::start() else { return };
        let config = EtcdConfig::new([server.endpoint()]);
        let store = EtcdStore::open(config).await.unwrap();
        let mut revisions = Vec::new();
        for round in 0..10 {
            let transaction = Transaction::default().put(StoreKey::new("/registry/a"), round.to_string());
            revisions.push(store.commit(transaction).await.unwrap().revisions[0]);
        }
        let shared = store.shared();
        let held = || async { revision::read(&shared.client, &shared.keys, 0).await.unwrap() };

        store.compact(revisions[2]).await.unwrap();
        let first = held().await;
        assert_eq!((first.compactions, from_etcd(first.compacted)), (1, revisions[2]));

        // A kube-apiserver has announced a higher revision than this one, so the key does not change.
        assert!(announce_as_upstream(shared, to_etcd(revisions[6])).await);
        store.compact(revisions[4]).await.unwrap();
        let second = held().await;
        assert_eq!((second.compactions, from_etcd(second.compacted)), (2, revisions[6]));
        assert_eq!(store.oldest_revision().await.unwrap(), revisions[4]);

        // A server that has read an older version of the key loses.
        assert!(!announce(shared, to_etcd(revisions[8]), first).await.unwrap());
        store.compact(revisions[8]).await.unwrap();
        assert_eq!(from_etcd(held().await.compacted), revisions[8]);
        assert_eq!(store.current_revision().await.unwrap(), revisions[9]);
    }
}
