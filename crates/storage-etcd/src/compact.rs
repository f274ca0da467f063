//! Compaction, together with all other API servers on the same etcd.
//!
//! Upstream's rule is kept: who wants to compact first writes the revision into the compaction key, in a transaction that
//! compares the key's version, and compacts only if that held. So servers of both makes take turns, and the key tells every
//! one of them what is gone.

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

/// How often another server may be faster before this one leaves it to them.
const TRIES: usize = 5;
/// When to try again after etcd has said that this user may not compact.
const TRY_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Forgets what only reads below `oldest` could see.
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
        // A server that announced as much will compact, or has died on the way; compacting twice does no harm. An etcd without room
        // takes no announcement, and needs compaction most: other servers notice it by their reads, as where etcd compacts by itself.
        let is_announced = seen.compacted >= requested
            || match announce(shared, requested, seen).await {
                Err(Failure::NoSpace(_)) => true,
                announced => announced.map_err(Failure::into_store_error)?,
            };
        if is_announced {
            return do_it(shared, requested).await.map_err(Failure::into_store_error);
        }
    }
    tracing::debug!(%oldest, "other servers compact faster than this one; it is left to them");
    Ok(())
}

/// Forgets what is below a revision at which another history begins, whatever is known of the one before.
pub(crate) async fn begin_at(shared: &Shared, revision: i64) -> Result<(), Failure> {
    let seen = revision::read(&shared.client, &shared.keys, 0).await?;
    if seen.compacted < revision {
        // Whoever was faster announces as much, and doing it twice does no harm.
        announce(shared, revision, seen).await?;
    }
    do_it(shared, revision).await
}

/// Writes the revision into the key, unless somebody else has written it meanwhile.
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
        // Further than that already.
        Err(Failure::Compacted) => Ok(()),
        // Since 3.4.42, 3.5.28 and 3.6.9 only who has the role root may. That is for the operator to know and to decide; the
        // store is whole without, and etcd can compact by itself.
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

    /// As upstream's compactor does it: version, put, compact.
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

        // A server of the other make has announced more than this one wants: the key stays as it is.
        assert!(announce_as_upstream(shared, to_etcd(revisions[6])).await);
        store.compact(revisions[4]).await.unwrap();
        let second = held().await;
        assert_eq!((second.compactions, from_etcd(second.compacted)), (2, revisions[6]));
        assert_eq!(store.oldest_revision().await.unwrap(), revisions[4]);

        // Who has seen an older version of the key is told that it has lost.
        assert!(!announce(shared, to_etcd(revisions[8]), first).await.unwrap());
        store.compact(revisions[8]).await.unwrap();
        assert_eq!(from_etcd(held().await.compacted), revisions[8]);
        assert_eq!(store.current_revision().await.unwrap(), revisions[9]);
    }
}
