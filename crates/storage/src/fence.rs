//! Fencing: a server writes only while its identity is in the store.
//!
//! Every transaction also compares the key of the server's identity. So a server that was paused for too long, or that
//! other servers have declared dead, can't write. This module knows only keys and revisions. Other modules define the
//! meaning of an identity, renew it, and declare servers dead.
//!
//! A full store refuses the put of the identity too. Meanwhile the fence lets transactions that only delete pass
//! without an identity, since they free space. Each of them compares the objects that it deletes, and the recent
//! refusal proves that the server was not paused.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::{Clock, Revision};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::guarded::{CommitGuard, GuardedStore};
use crate::key::StoreKey;
use crate::store::{CommitError, Committed, Condition, Store, StoreError, Transaction};

/// The time that a write waits for a renewal to be recorded, after its compare met another identity.
const VERDICT_PATIENCE: Duration = Duration::from_secs(1);
/// The time for which a refusal of the identity is valid. A server without an identity registers more often than that.
const REFUSAL_COUNTS: Duration = Duration::from_secs(30);
/// The maximum attempts of a write whose identity was renewed meanwhile. Renewals are seconds apart.
const ATTEMPTS: usize = 4;

/// The state of a server's identity in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IdentityState {
    /// The server is starting and has not registered. Writes compare no identity.
    Starting,
    /// The identity is in the store.
    Held(Identity),
    /// The identity is gone or expired. The server must register again before it writes.
    Lost,
    /// Another server has the identity. This server never writes again. Holds the reason.
    Closed(String),
}

/// An identity that is written in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store key.
    pub key: StoreKey,
    /// The revision of its last write.
    pub revision: Revision,
    /// The time at which it expires unless it is renewed.
    pub until: SystemTime,
    /// The number of the registration. Renewals keep it.
    pub registration: u64,
}

/// The known state of a server's identity. The task that renews the identity and the [`FencedStore`] share it.
pub struct Fence {
    standing: watch::Sender<IdentityState>,
    /// The revision of the identity that a write expected and did not find.
    doubt: Mutex<Option<Revision>>,
    doubted: Notify,
    /// The last refusal of this server's identity by a full store, with its time.
    refusal: Mutex<Option<(SystemTime, String)>>,
    /// The key of this server's identity. Only writes of this key have no compare.
    own: StoreKey,
    clock: Arc<dyn Clock>,
}

impl Fence {
    /// Creates a fence. Writes pass without a compare until the first [`Fence::hold`]. Writes of `own`, the key of the
    /// identity itself, are never fenced.
    pub fn new(own: StoreKey, clock: Arc<dyn Clock>) -> Self {
        let standing = watch::Sender::new(IdentityState::Starting);
        let (doubt, refusal) = (Mutex::default(), Mutex::default());
        Self { standing, doubt, doubted: Notify::new(), refusal, own, clock }
    }

    /// Records that the identity was written.
    pub fn hold(&self, identity: Identity) {
        self.stand(IdentityState::Held(identity));
    }

    /// Records the loss of the identity. Writes fail from now on.
    pub fn lose(&self) {
        self.stand(IdentityState::Lost);
    }

    /// Closes the fence for good, with this reason. Writes fail from now on.
    pub fn close(&self, why: impl Into<String>) {
        self.stand(IdentityState::Closed(why.into()));
    }

    fn is_closed(&self) -> bool {
        matches!(&*self.standing.borrow(), IdentityState::Closed(_))
    }

    /// Waits until the fence is closed for good. Returns the reason.
    pub async fn closed(&self) -> String {
        let mut standing = self.standing.subscribe();
        let why = match standing.wait_for(|standing| matches!(standing, IdentityState::Closed(_))).await.as_deref() {
            Ok(IdentityState::Closed(why)) => Some(why.clone()),
            _ => None,
        };
        match why {
            Some(why) => why,
            // The sender is in `self`, so waiting can't end otherwise.
            None => std::future::pending().await,
        }
    }

    fn stand(&self, next: IdentityState) {
        self.standing.send_if_modified(|standing| {
            let open = !matches!(standing, IdentityState::Closed(_));
            if open {
                *standing = next;
            }
            open
        });
    }

    /// Returns when the compare of a write met another identity than the recorded one, so that the caller checks the
    /// identity at once. Skips doubts that a renewal has resolved: otherwise the renewal after each doubt would raise
    /// the next one.
    pub async fn doubted(&self) {
        loop {
            self.doubted.notified().await;
            if self.is_doubtful() {
                return;
            }
        }
    }

    fn is_doubtful(&self) -> bool {
        match &*self.standing.borrow() {
            IdentityState::Starting => false,
            IdentityState::Held(identity) => {
                self.clock.now() >= identity.until || *self.doubt.lock() == Some(identity.revision)
            }
            IdentityState::Lost => true,
            IdentityState::Closed(_) => false,
        }
    }

    /// Raises a doubt about an identity, if it is still the recorded one.
    fn doubt(&self, met: &Identity) {
        // ORDER: the standing is borrowed while the doubt is recorded, so that an old doubt never replaces a newer one.
        let standing = self.standing.borrow();
        if matches!(&*standing, IdentityState::Held(identity) if identity == met) {
            *self.doubt.lock() = Some(met.revision);
            self.doubted.notify_one();
        }
    }

    /// The reason for which a full store refuses this server's identity. `None` if it does not.
    pub fn refusal(&self) -> Option<String> {
        let refusal = self.refusal.lock();
        let (since, why) = refusal.as_ref()?;
        let counts = self.clock.now() < *since + REFUSAL_COUNTS;
        counts.then(|| why.clone())
    }

    /// Records that the store accepted or refused this server's identity.
    pub fn note(&self, committed: &Result<Committed, CommitError>) {
        let refusal = match committed {
            Err(CommitError::Store(error)) if error.refuses_puts() => Some((self.clock.now(), error.to_string())),
            Ok(_) | Err(CommitError::Compare { .. }) => None,
            // Other errors are neither an acceptance nor a refusal.
            Err(CommitError::Store(_)) => return,
        };
        *self.refusal.lock() = refusal;
    }

    /// Returns true for a transaction that only deletes, while the store has no space for the identity.
    fn makes_room(&self, transaction: &Transaction) -> bool {
        transaction.deletes_only() && self.refusal().is_some()
    }

    /// Checks that writes pass, or deletions if the store is full.
    ///
    /// # Errors
    /// The reason for which the fence refuses writes.
    pub fn check(&self) -> Result<(), StoreError> {
        match &*self.standing.borrow() {
            IdentityState::Starting => Ok(()),
            IdentityState::Held(identity) if self.clock.now() < identity.until => Ok(()),
            IdentityState::Held(_) | IdentityState::Lost if self.refusal().is_some() => Ok(()),
            IdentityState::Held(_) | IdentityState::Lost => Err(lost()),
            IdentityState::Closed(why) => Err(closed(why)),
        }
    }

    /// Returns true if a transaction writes only this server's identity.
    fn exempts(&self, transaction: &Transaction) -> bool {
        transaction.writes.iter().all(|write| *write.key() == self.own)
    }

    /// The identity that a write must compare; `None` before the first registration.
    fn identity(&self) -> Result<Option<Identity>, StoreError> {
        match &*self.standing.borrow() {
            IdentityState::Starting => Ok(None),
            IdentityState::Held(identity) if self.clock.now() < identity.until => Ok(Some(identity.clone())),
            IdentityState::Held(_) | IdentityState::Lost => {
                self.doubted.notify_one();
                Err(lost())
            }
            IdentityState::Closed(why) => Err(closed(why)),
        }
    }

    /// Waits until a renewed identity replaces `before`, and returns it.
    ///
    /// # Errors
    /// No renewal was recorded in time.
    async fn renewed(&self, before: &Identity) -> Result<Identity, StoreError> {
        let mut standing = self.standing.subscribe();
        self.doubt(before);
        let told = standing.wait_for(|standing| *standing != IdentityState::Held(before.clone()));
        match tokio::time::timeout(VERDICT_PATIENCE, told).await {
            Ok(Ok(standing)) => match &*standing {
                IdentityState::Held(identity) if identity.registration == before.registration => Ok(identity.clone()),
                IdentityState::Held(_) | IdentityState::Starting | IdentityState::Lost => Err(lost()),
                IdentityState::Closed(why) => Err(closed(why)),
            },
            Ok(Err(_)) | Err(_) => Err(lost()),
        }
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable("this server's identity has ended; it registers again".to_owned())
}

fn closed(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

/// A store that accepts a server's writes only while its identity is valid.
pub type FencedStore = GuardedStore<Arc<Fence>>;

impl FencedStore {
    /// Wraps a store with a fence.
    pub fn new(store: Arc<dyn Store>, fence: Arc<Fence>) -> Self {
        Self::behind(store, fence)
    }
}

impl CommitGuard for Arc<Fence> {
    async fn commit(&self, store: &dyn Store, transaction: Transaction) -> Result<Committed, CommitError> {
        if self.exempts(&transaction) {
            let has_puts = transaction.has_puts();
            let committed = store.commit(transaction).await;
            if has_puts {
                self.note(&committed);
            }
            return committed;
        }
        let mut identity = match self.identity() {
            Ok(Some(identity)) => identity,
            Ok(None) => return store.commit(transaction).await,
            Err(_) if !self.is_closed() && self.makes_room(&transaction) => {
                return store.commit(transaction).await;
            }
            Err(error) => return Err(error.into()),
        };
        for _ in 0..ATTEMPTS {
            // The compare of the identity is the last one, so that a conflict of the client is reported first.
            let fenced = transaction.clone().when(identity.key.clone(), Condition::At(identity.revision));
            match store.commit(fenced).await {
                Err(CommitError::Compare { index, .. }) if index == transaction.compares.len() => {
                    identity = self.renewed(&identity).await?;
                }
                done => return done,
            }
        }
        Err(lost().into())
    }

    fn refusal(&self) -> Option<String> {
        Fence::refusal(self)
    }

    fn check(&self) -> Result<(), StoreError> {
        Fence::check(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::clock::ManualClock;

    use crate::memory::MemoryStore;

    struct Server {
        store: Arc<dyn Store>,
        fence: Arc<Fence>,
        fenced: Arc<FencedStore>,
        clock: Arc<ManualClock>,
    }

    impl Server {
        fn new() -> Self {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
            let fence = Arc::new(Fence::new(Self::key(), clock.clone()));
            let fenced = Arc::new(FencedStore::new(store.clone(), fence.clone()));
            Self { store, fence, fenced, clock }
        }

        fn key() -> StoreKey {
            StoreKey::new("/identities/one")
        }

        /// Writes the identity without the fence, and records it if `told` is true.
        async fn register(&self, registration: u64, told: bool) {
            let written = self.store.commit(Transaction::default().put(Self::key(), "me")).await.unwrap();
            let until = self.clock.now() + Duration::from_secs(60);
            let identity = Identity { key: Self::key(), revision: written.revisions[0], until, registration };
            if told {
                self.fence.hold(identity);
            }
        }

        async fn write(&self) -> Result<Committed, CommitError> {
            self.fenced.commit(Transaction::default().put(StoreKey::new("/a"), "b")).await
        }

        async fn is_refused(&self) -> bool {
            let before = self.store.get(&StoreKey::new("/a")).await.unwrap();
            let refused = matches!(self.write().await, Err(CommitError::Store(StoreError::Unavailable(_))));
            assert_eq!(self.store.get(&StoreKey::new("/a")).await.unwrap() == before, refused);
            refused
        }
    }

    #[tokio::test]
    async fn writes_pass_before_the_first_registration_and_after_it() {
        let server = Server::new();
        assert!(!server.is_refused().await);
        server.register(1, true).await;
        assert!(!server.is_refused().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_declared_dead_writes_nothing_until_it_registers_again() {
        let server = Server::new();
        server.register(1, true).await;
        server.store.commit(Transaction::default().delete(Server::key())).await.unwrap();
        assert!(server.is_refused().await);
        server.fence.doubted().await;
        server.fence.lose();
        assert!(server.is_refused().await && server.fenced.check().await.is_err());
        server.register(2, true).await;
        assert!(!server.is_refused().await);
    }

    #[tokio::test]
    async fn a_server_with_an_expired_identity_writes_nothing() {
        let server = Server::new();
        server.register(1, true).await;
        server.clock.advance(Duration::from_secs(60));
        assert!(server.is_refused().await);
        server.fence.doubted().await;
        server.register(1, true).await;
        assert!(!server.is_refused().await);
    }

    /// Sends the write after the renewal is in the store and before the fence records it.
    async fn write_during_a_registration(registration: u64) -> Result<Committed, CommitError> {
        let server = Server::new();
        server.register(1, true).await;
        server.register(registration, false).await;
        let revision = server.store.get(&Server::key()).await.unwrap().unwrap().revision;
        let until = server.clock.now() + Duration::from_secs(60);
        let told = async {
            server.fence.doubted().await;
            server.fence.hold(Identity { key: Server::key(), revision, until, registration });
        };
        tokio::join!(server.write(), told).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_during_a_write_does_not_affect_it() {
        write_during_a_registration(1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_that_a_renewal_has_answered_leads_to_no_other_renewal() {
        let server = Server::new();
        server.register(1, true).await;
        server.register(1, false).await;
        let revision = server.store.get(&Server::key()).await.unwrap().unwrap().revision;
        let until = server.clock.now() + Duration::from_secs(60);
        // The renewing task is not listening meanwhile, and finds the doubt afterwards.
        let told = async { server.fence.hold(Identity { key: Server::key(), revision, until, registration: 1 }) };
        tokio::join!(server.write(), told).0.unwrap();
        let doubted = tokio::time::timeout(Duration::from_secs(3600), server.fence.doubted()).await;
        assert!(doubted.is_err(), "the renewal that raised the doubt resolves it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_from_before_a_new_registration_is_refused() {
        let refused = write_during_a_registration(2).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(StoreError::Unavailable(_))));
    }

    #[tokio::test]
    async fn a_clients_own_conflict_is_reported_first() {
        let server = Server::new();
        server.register(1, true).await;
        server.store.commit(Transaction::default().delete(Server::key())).await.unwrap();
        let transaction = Transaction::default().when(StoreKey::new("/a"), Condition::Exists);
        let refused = server.fenced.commit(transaction.put(StoreKey::new("/a"), "b")).await.unwrap_err();
        assert!(matches!(refused, CommitError::Compare { index: 0, .. }));
    }

    #[tokio::test]
    async fn a_servers_own_identity_is_written_past_the_fence_and_no_other() {
        let server = Server::new();
        server.fence.lose();
        server.fenced.commit(Transaction::default().put(Server::key(), "me")).await.unwrap();
        let others = Transaction::default().put(StoreKey::new("/identities/one-more"), "me");
        assert!(server.fenced.commit(others).await.is_err());
        assert!(server.is_refused().await);
    }

    #[tokio::test]
    async fn a_server_that_was_replaced_never_writes_again_and_says_why() {
        let server = Server::new();
        server.register(1, true).await;
        server.fence.close("another has this name");
        server.register(2, true).await;
        let CommitError::Store(refused) = server.write().await.unwrap_err() else { panic!("nothing is compared") };
        assert!(refused.to_string().contains("another has this name"), "{refused}");
        assert_eq!(server.fenced.check().await.unwrap_err().to_string(), refused.to_string());
        assert_eq!(server.fence.closed().await, "another has this name");
        let doubted = tokio::time::timeout(Duration::from_secs(1), server.fence.doubted()).await;
        assert!(doubted.is_err(), "it must not register again");
    }

    /// A store that refuses puts, like an etcd without space.
    struct FullStore;

    impl CommitGuard for FullStore {
        async fn commit(&self, store: &dyn Store, transaction: Transaction) -> Result<Committed, CommitError> {
            if transaction.has_puts() {
                return Err(StoreError::EtcdFull("no room".to_owned()).into());
            }
            store.commit(transaction).await
        }
    }

    #[tokio::test]
    async fn a_store_without_room_for_the_identity_takes_deletions() {
        let memory = MemoryStore::new();
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        for key in ["/a", "/b", "/c"] {
            memory.commit(Transaction::default().put(StoreKey::new(key), "x")).await.unwrap();
        }
        let fence = Arc::new(Fence::new(Server::key(), clock.clone()));
        let full: Arc<dyn Store> = Arc::new(GuardedStore::behind(Arc::new(memory.clone()), FullStore));
        let fenced = FencedStore::new(full, fence.clone());
        let delete = |key: &str| fenced.commit(Transaction::default().delete(StoreKey::new(key)));
        fence.lose();
        assert!(delete("/a").await.is_err(), "nothing shows that there is no room");
        fenced.commit(Transaction::default().put(Server::key(), "me")).await.unwrap_err();
        assert!(fence.refusal().is_some_and(|why| why.contains("no room")));
        fenced.check().await.unwrap();
        delete("/a").await.unwrap();
        let mixed = Transaction::default().delete(StoreKey::new("/b")).put(StoreKey::new("/d"), "x");
        fenced.commit(mixed).await.unwrap_err();
        // After a pause the server knows nothing about the store's state.
        clock.advance(REFUSAL_COUNTS);
        assert!(delete("/b").await.is_err() && fenced.check().await.is_err());
        fenced.commit(Transaction::default().put(Server::key(), "me")).await.unwrap_err();
        delete("/b").await.unwrap();
        fence.close("another has this name");
        assert!(delete("/c").await.is_err());
    }
}
