//! [`EtcdStore`]: etcd as a storage engine.
//!
//! This file combines the parts in other files: reads, transactions, the watch behind tails, leases and compaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::future::BoxFuture;
use keelson_meta::{Clock, Random, Revision};
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Seal, Store, StoreError, StoreKey,
    Tail, Transaction, Write,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, EtcdCounters, EtcdStats, READ_TXN, TXN};
use crate::config::EtcdConfig;
use crate::error::{Failure, OpenError};
use crate::format::{self, FORMAT};
use crate::keys::Keys;
use crate::lease::Leases;
use crate::name::{self, StoreName};
use crate::proto::{ResponseHeader, TxnResponse};
use crate::revision::{self, Housekeeping, Revisions, explain, from_etcd, to_etcd};
use crate::seen::RememberedState;
use crate::version::{EtcdVersion, OLDEST_USABLE};
use crate::{compact, outcome, read, scan, transaction, watch as tail};

/// The state of an etcd without space, with the remedy.
const WAY_OUT: &str = "it refuses what puts anything, and takes deletions; delete objects, let the server compact, defragment each \
    member (etcdctl defrag), and disarm the alarm (etcdctl alarm disarm)";
/// The text for an unknown version.
const UNTOLD: &str = "untold";

/// A store on etcd, which any number of servers may share.
#[derive(Clone)]
pub struct EtcdStore {
    shared: Arc<Shared>,
}

/// The state shared by a store and its tails.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    pub(crate) revisions: Revisions,
    /// The newest revision that a reader waits for. Tails ensure that they reach it.
    pub(crate) wanted: watch::Sender<Revision>,
    pub(crate) seen: RememberedState,
    pub(crate) name: StoreName,
    /// The time at which etcd last denied compaction to this user.
    pub(crate) may_not_compact: Mutex<Option<Instant>>,
    leases: Leases,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl EtcdStore {
    /// Connects, logs in, and checks that this etcd can be used.
    ///
    /// # Errors
    /// A sentence for the operator: etcd does not answer, its certificate is not trusted, the password is wrong, or the
    /// version is too old.
    pub fn open(config: EtcdConfig) -> BoxFuture<'static, Result<Self, OpenError>> {
        // The future is boxed, so that the gRPC client is compiled only into this crate.
        Box::pin(Self::connect(config))
    }

    async fn connect(config: EtcdConfig) -> Result<Self, OpenError> {
        let counters = Arc::new(EtcdCounters::default());
        let client = Client::new(&config, counters)?;
        let user = config.login.as_ref().map_or_else(|| "us".to_owned(), |login| format!("user {:?}", login.user));
        let refused = |failure: Failure| open_error(&client, &user, failure);
        client.log_in().await.map_err(refused)?;
        let version = match client.status().await {
            Ok(status) => status.version,
            // Some usable versions report their status only to root. If the login is invalid, the first read fails.
            Err(Failure::Refused(_)) => UNTOLD.to_owned(),
            Err(failure) => return Err(refused(failure)),
        };
        if version != UNTOLD && EtcdVersion::parse(&version).is_none_or(|version| version < OLDEST_USABLE) {
            return Err(OpenError::TooOld {
                endpoints: client.endpoints(),
                version,
                needed: OLDEST_USABLE.to_string(),
            });
        }
        let keys = Keys::new(config.prefix.clone());
        // The first read fails without read permission.
        let seen = revision::read(&client, &keys, 0).await.map_err(refused)?;
        if let Some(found) = format::newer(&client, &keys).await.map_err(refused)? {
            let (endpoints, prefix) = (client.endpoints(), config.prefix);
            return Err(OpenError::NewerFormat { endpoints, prefix, found, known: FORMAT });
        }
        // ORDER: the number of interruptions is read before the name, so that an interruption in between causes another
        // check.
        let interruptions = client.interruptions();
        let name = StoreName::new(name::read(&client, &keys).await.map_err(refused)?, interruptions);
        tracing::info!(endpoints = %client.endpoints(), %version, prefix = %config.prefix, "etcd is open");
        let shared = Shared {
            leases: Leases::new(&config.prefix),
            name,
            seen: RememberedState::new(seen.cluster, seen.at),
            may_not_compact: Mutex::default(),
            client,
            keys,
            revisions: Revisions::default(),
            wanted: watch::Sender::new(Revision::ZERO),
            clock: config.clock,
            random: config.random,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The current counts.
    pub fn stats(&self) -> EtcdStats {
        self.shared.client.counters().read()
    }

    /// The counters. They can be read after the store is dropped.
    pub fn counters(&self) -> Arc<EtcdCounters> {
        self.shared.client.counters().clone()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    async fn leases(&self, writes: &[Write]) -> Result<Vec<i64>, Failure> {
        let mut leases = Vec::with_capacity(writes.len());
        for write in writes {
            leases.push(match write {
                Write::Put { expires: Some(expires), .. } => {
                    self.shared.leases.lease_for(*expires, &self.shared.client, &*self.shared.clock).await?
                }
                Write::Put { expires: None, .. } | Write::Delete { .. } => 0,
            });
        }
        Ok(leases)
    }

    /// Sends a transaction. If its answer is lost, finds the outcome from the keys.
    async fn try_commit(&self, transaction: &Transaction) -> Result<TransactionOutcome, CommitError> {
        let Shared { client, keys, leases, .. } = &*self.shared;
        let method = if transaction.writes.is_empty() { READ_TXN } else { TXN };
        let mut fresh = false;
        loop {
            let of_writes = self.leases(&transaction.writes).await.map_err(Failure::into_store_error)?;
            let request = transaction::encode(keys, transaction, &of_writes)?;
            let before = self.shared.seen.highest();
            match client.call::<_, TxnResponse>(method, request).await {
                Ok(answer) => {
                    let Err(failure) = self.shared.seen.saw(before, answer.header.unwrap_or_default()) else {
                        return Ok(TransactionOutcome::Answered(answer));
                    };
                    // The transaction took effect on an etcd whose revision is being raised. All its writes get other
                    // revisions then.
                    let why = self.shared.told(failure).await;
                    if transaction.writes.is_empty() {
                        return Err(why.into());
                    }
                    return outcome::find(&self.shared, transaction, before, why.to_string())
                        .await
                        .map(TransactionOutcome::FoundOut);
                }
                // Another server has revoked a lease that this one had created. etcd has written nothing.
                Err(Failure::LeaseNotFound) if !fresh => {
                    leases.forget();
                    fresh = true;
                }
                Err(Failure::Unavailable { cause, sent: true }) if !transaction.writes.is_empty() => {
                    return outcome::find(&self.shared, transaction, before, cause)
                        .await
                        .map(TransactionOutcome::FoundOut);
                }
                Err(failure) => {
                    if let Failure::NoSpace(cause) = &failure {
                        self.shared.ran_full(cause);
                        let applied = outcome::applied_without_room(&self.shared, transaction, before).await;
                        let unknown =
                            |why: Failure| StoreError::Unknown(format!("{cause}; {}", why.into_store_error()));
                        let applied = applied.map_err(unknown)?;
                        if let Some(at) = applied {
                            let revisions = vec![at; transaction.writes.len()];
                            return Ok(TransactionOutcome::FoundOut(Committed { revisions }));
                        }
                    }
                    return Err(failure.into_store_error().into());
                }
            }
        }
    }
}

/// The outcome of a sent transaction.
enum TransactionOutcome {
    /// etcd has answered.
    Answered(TxnResponse),
    /// The answer was lost, and the search has found that the transaction took effect.
    FoundOut(Committed),
}

impl Shared {
    /// Returns the newest revision that tails must reach, from a read that sees every acknowledged commit.
    async fn newest(&self) -> Result<Revision, StoreError> {
        let seen = self.seen(0).await?;
        let newest = self.settle(seen).await?;
        self.wanted.send_if_modified(|wanted| {
            let is_news = newest > *wanted;
            *wanted = newest.max(*wanted);
            is_news
        });
        Ok(newest)
    }

    async fn seen(&self, revision: i64) -> Result<Housekeeping, StoreError> {
        let before = self.seen.highest();
        let seen = revision::read(&self.client, &self.keys, revision).await.map_err(Failure::into_store_error)?;
        // After a read at an older revision, only the cluster is checked.
        let at = if revision == 0 { seen.at } else { before };
        if let Err(failure) = self.seen.saw(before, ResponseHeader { cluster_id: seen.cluster, revision: at }) {
            return Err(self.told(failure).await);
        }
        Ok(seen)
    }

    /// Records that etcd refused a write for lack of space.
    fn ran_full(&self, cause: &str) {
        if !self.client.counters().full.swap(true, Ordering::Relaxed) {
            tracing::error!(cause, "etcd has no room: {WAY_OUT}");
        }
    }

    /// Records that etcd accepted a put. Every server renews its lease regularly, so it detects when there is space
    /// again.
    fn has_room(&self) {
        let full = &self.client.counters().full;
        if full.load(Ordering::Relaxed) && full.swap(false, Ordering::Relaxed) {
            tracing::info!("etcd has room again");
        }
    }

    pub(crate) const fn leases(&self) -> &Leases {
        &self.leases
    }

    async fn settle(&self, seen: Housekeeping) -> Result<Revision, StoreError> {
        self.revisions.settle(&self.client, &self.keys, seen).await.map_err(Failure::into_store_error)
    }

    async fn explained(&self, failure: Failure, requested: Revision) -> StoreError {
        explain(failure, requested, &self.client, &self.keys, &self.revisions).await
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.shared.sure().await?;
        let has_puts = transaction.has_puts();
        if has_puts {
            self.shared.ensure_named(&*self.shared.random).await;
        }
        let connections = self.shared.client.connections();
        let answer = match self.try_commit(&transaction).await? {
            TransactionOutcome::Answered(answer) => answer,
            TransactionOutcome::FoundOut(committed) => return Ok(committed),
        };
        if let Err(why) = self.shared.still_sure(connections).await {
            let may_have_written = answer.succeeded && !transaction.writes.is_empty();
            return Err(if may_have_written { StoreError::Unknown(why.to_string()) } else { why }.into());
        }
        let done = transaction::decode(&self.shared.keys, &transaction, answer)?;
        if done.wrote && has_puts {
            self.shared.has_room();
        }
        let revision = if done.wrote || transaction.writes.is_empty() {
            let revision = from_etcd(done.revision);
            self.shared.seen.wrote(&self.shared.keys, &transaction.writes, revision);
            revision
        } else {
            // The transaction only had deletes of absent keys. etcd's newest revision may be one of a housekeeping
            // write.
            let seen = self.shared.seen(done.revision).await?;
            self.shared.settle(seen).await?
        };
        Ok(Committed { revisions: vec![revision; transaction.writes.len()] })
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.shared.surely(read::get(&self.shared, key)).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.shared.surely(read::range(&self.shared, request)).await
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        Some(scan::stream(self.shared.clone(), request))
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.shared.surely(read::count(&self.shared, request)).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.shared.surely(self.shared.newest()).await
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        let Shared { client, keys, revisions, .. } = &*self.shared;
        let oldest = async { revisions.oldest(client, keys).await.map_err(Failure::into_store_error) };
        self.shared.surely(oldest).await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let seen = self.shared.surely(self.shared.seen(0)).await?;
        if to_etcd(after) > seen.at {
            return Err(self.shared.explained(Failure::Future, after).await);
        }
        self.shared.revisions.check(after)?;
        let oldest = self.oldest_revision().await?;
        if after < oldest {
            return Err(StoreError::Compacted { requested: after, oldest });
        }
        Ok(tail::open(self.shared.clone(), after))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.shared.sure().await?;
        compact::compact(&self.shared, oldest).await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.shared.sure().await?;
        self.shared.leases.expire(now, &self.shared.client).await.map_err(Failure::into_store_error)
    }

    fn refusal(&self) -> Option<String> {
        self.shared.client.counters().full.load(Ordering::Relaxed).then(|| format!("etcd has no room: {WAY_OUT}"))
    }

    fn seal(&self, _key: &str) -> Seal {
        Seal::PLAIN
    }

    async fn verify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        // An etcd without space answers reads and accepts deletions.
        self.shared.surely(self.shared.seen(0)).await.map(|_| ())
    }
}

fn open_error(client: &Client, user: &str, failure: Failure) -> OpenError {
    let endpoints = client.endpoints();
    match failure {
        Failure::Refused(cause) => OpenError::Refused { endpoints, user: user.to_owned(), cause },
        Failure::Unavailable { cause, .. } => OpenError::Unreachable { endpoints, cause: client.complaints(cause) },
        other => OpenError::Unreachable { endpoints, cause: format!("{other:?}") },
    }
}
