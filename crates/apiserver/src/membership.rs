//! The membership of this server among those that share its store: a record in the store, which the server renews and
//! which all its writes require.
//!
//! The record corresponds to the identity lease of a main server, for stores without leases: the fence compares the
//! record in every transaction. A server that was paused too long, or whose record was removed, registers again before
//! it writes. A server is live while its record changes, and clocks are never compared. Of two processes with the same
//! name the later one stays.
//!
//! A server can start even if its store answers but refuses puts. It registers once there is space.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keelson_controllers::Observations;
use keelson_meta::{Clock, Random, Revision};
use keelson_registry::Registry;
use keelson_storage::{
    CommitError, Condition, Fence, FencedStore, Identity, KeyValue, RangeRequest, Relief, Store, StoreError, StoreKey,
    Transaction,
};
use keelson_supervision::{Supervisor, warn_repeated};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// The prefix of the records, outside of the objects' `/registry/`.
const PREFIX: &str = "/keelson-apiserver/servers/";
/// The most records that are read: many times the servers of a store.
const MOST: usize = 1_000;
/// The delay before a failed registration or renewal is retried.
const RETRY: Duration = Duration::from_secs(1);
/// After this many renewal intervals between two checks this server was itself paused, so no other server counts as
/// dead.
const MISSED_LOOKS: u32 = 3;
/// The number of missed renewals after which another server takes over a server's work.
const MISSED_RENEWALS: u32 = 3;
/// The most immediate attempts to register when others write the same record.
const ATTEMPTS: usize = 4;
/// The time limit for deleting the record at shutdown.
const LEAVING_TIME: Duration = Duration::from_secs(2);

/// The time limits of a registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Its validity without a renewal.
    pub(crate) duration: Duration,
    /// The renewal interval.
    pub(crate) interval: Duration,
}

impl Terms {
    /// The limits for a validity, with renewals often enough that a few may fail.
    pub(crate) fn new(duration: Duration) -> Self {
        Self { duration, interval: duration / 6 }
    }
}

/// The stored record of a server.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// The identity of the process.
    holder: String,
    /// The time of the write by the server's clock, in milliseconds since 1970.
    renewed: u64,
    /// The time for which the record is valid, in milliseconds.
    milliseconds: u64,
}

/// The other servers of the store, as this one observes them. A server that missed a few renewals may still be alive,
/// so others must not take over its work.
#[derive(Clone, Debug)]
pub(crate) struct OtherServers {
    /// The servers that renew their records; `None` before the first look.
    seen: Arc<Mutex<Option<HashSet<String>>>>,
}

impl OtherServers {
    /// The neighbours in a store that only one server uses: none.
    pub(crate) fn none() -> Self {
        Self { seen: Arc::new(Mutex::new(Some(HashSet::new()))) }
    }

    fn unknown() -> Self {
        Self { seen: Arc::default() }
    }

    /// Returns true if the server with this name seems alive. All servers do before the first check.
    pub(crate) fn live(&self, server_id: &str) -> bool {
        self.seen.lock().as_ref().is_none_or(|seen| seen.contains(server_id))
    }
}

/// The record of this server.
pub(crate) struct Membership {
    store: Arc<dyn Store>,
    fence: Arc<Fence>,
    clock: Arc<dyn Clock>,
    server_id: String,
    key: StoreKey,
    holder: String,
    terms: Terms,
    /// The number of the registration that the record belongs to.
    registration: u64,
    has_registered: bool,
    held: Option<LeaseRecord>,
    /// The observations of other records.
    others: Observations,
    neighbours: OtherServers,
}

/// The written record.
#[derive(Clone, Copy, Debug)]
struct LeaseRecord {
    revision: Revision,
    until: SystemTime,
}

/// The handling of another process with the same name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameConflict {
    /// This process, which is starting, replaces the other.
    Replace,
    /// The other process started later, so this process gives way.
    GiveWay,
}

impl Membership {
    /// Registers a server and returns the store for its writes. If the store refuses puts, [`run`](Self::run) registers
    /// it later.
    ///
    /// # Errors
    /// The store does not answer, or is damaged.
    pub(crate) async fn join(
        store: Arc<dyn Store>,
        (clock, random): (Arc<dyn Clock>, &dyn Random),
        server_id: &str,
        terms: Terms,
    ) -> Result<(Self, Arc<dyn Store>), StoreError> {
        let key = StoreKey::new(format!("{PREFIX}{server_id}"));
        let fence = Arc::new(Fence::new(key.clone(), clock.clone()));
        let fenced = Arc::new(FencedStore::new(store.clone(), fence.clone()));
        let (server_id, holder) = (server_id.to_owned(), random.uuid());
        let others = Observations::new(terms.interval * MISSED_LOOKS);
        let mut membership = Self {
            store,
            fence,
            clock,
            server_id,
            key,
            holder,
            terms,
            registration: 0,
            has_registered: false,
            held: None,
            others,
            neighbours: OtherServers::unknown(),
        };
        match membership.take(NameConflict::Replace).await {
            Ok(()) => {}
            Err(error) if error.refuses_puts() => {
                membership.fence.lose();
                tracing::error!(
                    server_id = membership.server_id,
                    %error,
                    "the store refuses the record of this server: only reads and deletes are served"
                );
            }
            Err(error) => return Err(error),
        }
        Ok((membership, fenced))
    }

    /// The other servers of the store, updated from now on.
    pub(crate) fn neighbours(&self) -> OtherServers {
        self.neighbours.clone()
    }

    /// Renews the record until the server stops, registers again after a loss, and removes records that are no longer
    /// renewed. Fails when another process of this name has started.
    pub(crate) async fn run(
        mut self,
        registry: Arc<Registry>,
        supervisor: Supervisor,
        stopping: CancellationToken,
    ) -> Self {
        let fence = self.fence.clone();
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.keep(&registry) => {}
            why = fence.closed() => {
                supervisor.fail("membership", why);
                stopping.cancelled().await;
            }
        }
        self
    }

    /// Deletes the record, so that no server waits for its expiry.
    pub(crate) async fn leave(mut self) {
        let Some(held) = self.held.take() else { return };
        self.fence.lose();
        let gone = Transaction::default().when(self.key.clone(), Condition::At(held.revision)).delete(self.key.clone());
        let left = tokio::time::timeout(LEAVING_TIME, self.store.commit(gone)).await;
        if !matches!(left, Ok(Ok(_))) {
            tracing::warn!(server_id = self.server_id, "deleting the record of this server failed; it expires");
        }
    }

    async fn keep(&mut self, registry: &Registry) {
        loop {
            let wait = if self.held.is_some() { self.terms.interval } else { RETRY };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.fence.doubted() => {}
            }
            let done = match self.renew(registry).await {
                Ok(()) => self.collect().await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                warn_repeated!(&self.server_id; server_id = self.server_id, %error, "renewing the record of this server failed; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn renew(&mut self, registry: &Registry) -> Result<(), StoreError> {
        let Some(held) = self.held else {
            // An earlier process of this name may have left a record that could not be replaced at start.
            let namesake = if self.has_registered { NameConflict::GiveWay } else { NameConflict::Replace };
            return self.take(namesake).await;
        };
        if held.until <= self.clock.now() {
            return self.lost(registry, "the record was not renewed in time").await;
        }
        match self.write(Condition::At(held.revision)).await {
            Ok(()) => Ok(()),
            Err(CommitError::Compare { current: Some(found), .. }) => match read(&found) {
                // The answer to an earlier renewal was lost.
                Some(record) if record.holder == self.holder => {
                    let renewed = SystemTime::UNIX_EPOCH + Duration::from_millis(record.renewed);
                    self.hold(found.revision, renewed);
                    Ok(())
                }
                Some(_) | None => self.lost(registry, "another process holds the record").await,
            },
            Err(CommitError::Compare { current: None, .. }) => self.lost(registry, "the record was deleted").await,
            Err(CommitError::Store(error)) => Err(error),
        }
    }

    async fn lost(&mut self, registry: &Registry, why: &str) -> Result<(), StoreError> {
        self.fence.lose();
        self.held = None;
        tracing::error!(server_id = self.server_id, why, "this server lost its record and registers again");
        // ORDER: before the registration, since the published versions may have been collected.
        registry.close_encodings().await;
        self.take(NameConflict::GiveWay).await
    }

    async fn take(&mut self, namesake: NameConflict) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let found = self.store.get(&self.key).await?;
            let holder = found.as_ref().and_then(read).map(|record| record.holder);
            if namesake == NameConflict::GiveWay && holder.is_some_and(|holder| holder != self.holder) {
                self.give_way();
                return Ok(());
            }
            let condition = found.map_or(Condition::Absent, |found| Condition::At(found.revision));
            self.registration += 1;
            match self.write(condition).await {
                Ok(()) => return Ok(()),
                Err(CommitError::Compare { .. }) => {}
                Err(CommitError::Store(error)) => return Err(error),
            }
        }
        Err(StoreError::Unavailable(format!("others write the record of the server {}", self.server_id)))
    }

    fn give_way(&mut self) {
        let why = format!(
            "another process has started as the server {}: give each server on a store a name of its own",
            self.server_id
        );
        tracing::error!("{why}");
        self.fence.close(why);
        self.held = None;
    }

    /// ORDER: the record is written before the fence accepts it, so a transaction behind the fence compares with the
    /// written record.
    async fn write(&mut self, condition: Condition) -> Result<(), CommitError> {
        let now = self.clock.now();
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let record = Record {
            holder: self.holder.clone(),
            renewed: milliseconds(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            milliseconds: milliseconds(self.terms.duration),
        };
        let record = Bytes::from(serde_json::to_vec(&record).expect("a record of texts and numbers is written"));
        let write = Transaction::default().when(self.key.clone(), condition).put(self.key.clone(), record);
        // A full store accepts this write, since a server without a renewed record could not write any more.
        let write = Transaction { relief: Relief::Upkeep, ..write };
        let committed = self.store.commit(write).await;
        self.fence.note(&committed);
        let written = committed?;
        self.hold(written.revisions[0], now);
        Ok(())
    }

    fn hold(&mut self, revision: Revision, renewed: SystemTime) {
        let until = renewed + self.terms.duration;
        self.held = Some(LeaseRecord { revision, until });
        self.has_registered = true;
        let (key, registration) = (self.key.clone(), self.registration);
        self.fence.hold(Identity { key, revision, until, registration });
    }

    /// Removes records that are no longer renewed, if they are unchanged: a server that comes back meanwhile keeps its
    /// own.
    async fn collect(&mut self) -> Result<(), StoreError> {
        let (from, to) = (StoreKey::new(PREFIX), StoreKey::prefix_end(PREFIX));
        let all = self.store.range(RangeRequest { from, to, revision: None, limit: Some(MOST) }).await?;
        let others: Vec<KeyValue> = all.entries.into_iter().filter(|entry| entry.key != self.key).collect();
        let seen = self.others.look(others.iter().map(|found| (found.key.as_str(), found.revision)));
        let silence = self.terms.interval * MISSED_RENEWALS;
        let alive = others.iter().zip(&seen).filter(|(_, seen)| seen.unchanged < silence);
        let name = |found: &KeyValue| found.key.as_str().strip_prefix(PREFIX).map(str::to_owned);
        *self.neighbours.seen.lock() = Some(alive.filter_map(|(found, _)| name(found)).collect());
        let stands =
            |found| read(found).map_or(self.terms.duration, |record| Duration::from_millis(record.milliseconds));
        for (dead, _) in others.iter().zip(seen).filter(|(found, seen)| seen.unchanged >= stands(*found)) {
            let gone =
                Transaction::default().when(dead.key.clone(), Condition::At(dead.revision)).delete(dead.key.clone());
            match self.store.commit(gone).await {
                Ok(_) => tracing::warn!(record = %dead.key, "deleted the expired record of a server"),
                Err(CommitError::Compare { .. }) => {}
                Err(CommitError::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

fn read(found: &KeyValue) -> Option<Record> {
    serde_json::from_slice(&found.value).ok()
}

#[cfg(test)]
mod tests {
    use keelson_cache::{Cache, CacheConfig};
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;
    use keelson_registry::RegistryConfig;
    use keelson_storage::memory::MemoryStore;

    use super::*;

    const DURATION: Duration = Duration::from_secs(60);

    struct Server {
        membership: Membership,
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
        registry: Arc<Registry>,
    }

    impl Server {
        async fn join(shared: &Arc<dyn Store>, name: &str) -> Self {
            let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
            let (membership, store) =
                Membership::join(shared.clone(), (clock.clone(), &SystemRandom), name, Terms::new(DURATION))
                    .await
                    .unwrap();
            let cache = Cache::start(shared.clone(), Vec::new(), CacheConfig::new(clock.clone())).await.unwrap();
            let config = RegistryConfig::default();
            let registry =
                Registry::without_builtin(store.clone(), cache, clock.clone(), Arc::new(SystemRandom), config);
            Self { membership, store, clock, registry: Arc::new(registry) }
        }

        async fn writes(&self) -> Result<(), String> {
            let written = self.store.commit(Transaction::default().put(StoreKey::new("/registry/a"), "b")).await;
            written.map(|_| ()).map_err(|error| error.to_string())
        }

        /// Renews for a time, by its own clock and the others'.
        async fn live(&mut self, time: Duration) {
            tokio::time::advance(time).await;
            self.clock.advance(time);
            self.membership.renew(&self.registry).await.unwrap();
            self.membership.collect().await.unwrap();
        }
    }

    fn shared() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_paused_past_its_lease_writes_only_after_registering_again() {
        let store = shared();
        let (mut paused, mut other) = (Server::join(&store, "one").await, Server::join(&store, "two").await);
        paused.writes().await.unwrap();
        let revision = store.current_revision().await.unwrap();
        for _ in 0..7 {
            other.live(DURATION / 6).await;
        }
        assert!(store.get(&paused.membership.key).await.unwrap().is_none(), "it is taken for dead");
        // The clock of this server may have stopped, as on a suspended machine.
        let refused = paused.writes().await.unwrap_err();
        assert!(refused.contains("identity has ended"), "{refused}");
        paused.clock.advance(DURATION);
        assert!(paused.writes().await.is_err());
        assert!(
            store.get(&StoreKey::new("/registry/a")).await.unwrap().unwrap().revision <= revision,
            "nothing is written"
        );
        paused.membership.renew(&paused.registry).await.unwrap();
        paused.writes().await.unwrap();
        other.writes().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_renews_its_record_is_left_alone() {
        let store = shared();
        let (mut one, mut two) = (Server::join(&store, "one").await, Server::join(&store, "two").await);
        for _ in 0..20 {
            one.live(DURATION / 12).await;
            two.live(DURATION / 12).await;
        }
        assert_eq!((one.membership.registration, two.membership.registration), (1, 1));
        // The observer's pause does not count against the others.
        tokio::time::advance(DURATION * 2).await;
        two.live(Duration::from_secs(1)).await;
        one.writes().await.unwrap();
        one.membership.leave().await;
        assert!(store.get(&StoreKey::new(format!("{PREFIX}one"))).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_neighbour_with_missed_renewals_is_distrusted_before_its_lease_ends() {
        let store = shared();
        let mut one = Server::join(&store, "one").await;
        let neighbours = one.membership.neighbours();
        assert!(neighbours.live("two"), "before the first look");
        one.live(DURATION / 6).await;
        assert!(!neighbours.live("two"));
        let mut two = Server::join(&store, "two").await;
        for _ in 0..10 {
            two.live(DURATION / 6).await;
            one.live(Duration::ZERO).await;
            assert!(neighbours.live("two") && two.membership.neighbours().live("one"));
        }
        for _ in 0..3 {
            one.live(DURATION / 6).await;
        }
        assert!(!neighbours.live("two"));
        assert!(store.get(&two.membership.key).await.unwrap().is_some(), "its time is not over");
        two.writes().await.unwrap();
        two.live(Duration::ZERO).await;
        one.live(Duration::ZERO).await;
        assert!(neighbours.live("two"), "it is back");
        assert!(!OtherServers::none().live("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_processes_of_one_name_the_later_stays() {
        let store = shared();
        let mut first = Server::join(&store, "one").await;
        let second = Server::join(&store, "one").await;
        assert!(first.writes().await.is_err());
        first.membership.renew(&first.registry).await.unwrap();
        assert!(first.writes().await.unwrap_err().contains("another process has started as the server one"));
        second.writes().await.unwrap();
    }
}
