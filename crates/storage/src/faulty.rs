//! A store with injected faults, for tests of a server whose store is unavailable.
//!
//! The store wraps another engine. Calls and tails fail independently. Apart from swallowed events and lost answers,
//! all results are the engine's own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use keelson_meta::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::key::StoreKey;
use crate::seal::Seal;
use crate::store::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Store, StoreError, Tail, TailBatch, Transaction, Write,
};

/// The fault of the calls or tails of a [`FaultyStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Calls fail at once without effect. Tails end with an error.
    Error,
    /// Calls and tails wait until the fault is removed, then continue.
    Hang,
    /// Calls take this long on the way to the engine and again on the way back. Each batch of a tail is delayed by it
    /// once.
    Slow(Duration),
}

/// A store with injected faults. Clones share them.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    controls: Arc<Controls>,
}

struct Controls {
    calls: watch::Sender<Fault>,
    tails: watch::Sender<Fault>,
    /// The number of commits below a prefix that succeed but return an error.
    answers_to_lose: Mutex<(String, usize)>,
    /// The delay of the next commit's answer below a prefix.
    late_answer: Mutex<Option<(String, Duration)>>,
    /// Keys whose next event the tails omit.
    swallowed: Mutex<HashSet<StoreKey>>,
    /// The number of checks until the engine reports that rows of its history are gone. Absent for a sound engine.
    sound_checks: Mutex<Option<usize>>,
    /// The injected panics.
    panics: Mutex<HashSet<Panic>>,
    /// The key whose deletions wait, and true while a deletion waits.
    held: watch::Sender<(Option<StoreKey>, bool)>,
    /// The number of reads of the newest revision.
    revision_reads: AtomicU64,
}

/// A place for an injected panic, which ends the calling task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Panic {
    /// At the next batch of a tail.
    Tail,
    /// At the removal of expired keys.
    Expire,
    /// At a write of a key below this prefix.
    Write(String),
}

impl FaultyStore {
    /// Wraps a store, without faults.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let controls = Controls {
            calls: watch::Sender::default(),
            tails: watch::Sender::default(),
            answers_to_lose: Mutex::default(),
            late_answer: Mutex::default(),
            swallowed: Mutex::default(),
            sound_checks: Mutex::default(),
            panics: Mutex::default(),
            held: watch::Sender::default(),
            revision_reads: AtomicU64::new(0),
        };
        Self { inner, controls: Arc::new(controls) }
    }

    /// Sets the fault of calls and tails.
    pub fn set(&self, fault: Fault) {
        self.set_calls(fault);
        self.set_tails(fault);
    }

    /// Sets the fault of calls only.
    pub fn set_calls(&self, fault: Fault) {
        self.controls.calls.send_replace(fault);
    }

    /// Sets the fault of tails only.
    pub fn set_tails(&self, fault: Fault) {
        self.controls.tails.send_replace(fault);
    }

    /// Lets the next commits that write below a prefix succeed but report an unknown outcome, as after a broken
    /// connection to a store that can't check the outcome.
    pub fn lose_answers(&self, prefix: &str, commits: usize) {
        *self.controls.answers_to_lose.lock() = (prefix.to_owned(), commits);
    }

    /// Delays the answer to the next commit that writes below a prefix. The commit takes effect at once.
    pub fn delay_answer(&self, prefix: &str, delay: Duration) {
        *self.controls.late_answer.lock() = Some((prefix.to_owned(), delay));
    }

    /// Omits the next event of this key from the tail that reads it.
    pub fn swallow(&self, key: StoreKey) {
        self.controls.swallowed.lock().insert(key);
    }

    /// Sets whether the engine reports that rows of its history are gone.
    pub fn lose_rows(&self, lossy: bool) {
        *self.controls.sound_checks.lock() = lossy.then_some(0);
    }

    /// Lets the engine report that rows of its history are gone, after this many further checks.
    pub fn lose_rows_after(&self, checks: usize) {
        *self.controls.sound_checks.lock() = Some(checks);
    }

    /// Commits that delete this key wait from now on, until [`let_go`](Self::let_go).
    pub fn hold_deletion(&self, key: StoreKey) {
        self.controls.held.send_replace((Some(key), false));
    }

    /// Waits until a commit waits for [`let_go`](Self::let_go).
    pub async fn is_holding(&self) {
        // The sender lives as long as this handle.
        let _ = self.controls.held.subscribe().wait_for(|(_, is_holding)| *is_holding).await;
    }

    /// Lets the waiting commits continue.
    pub fn let_go(&self) {
        self.controls.held.send_replace((None, false));
    }

    /// Panics at this place from now on.
    pub fn panic_at(&self, place: Panic) {
        self.controls.panics.lock().insert(place);
    }

    /// The number of reads of the newest revision.
    pub fn revision_reads(&self) -> u64 {
        self.controls.revision_reads.load(Ordering::SeqCst)
    }

    async fn call<T, E: From<StoreError>>(&self, call: impl Future<Output = Result<T, E>> + Send) -> Result<T, E> {
        let mut fault = self.controls.calls.subscribe();
        let fault = *fault.wait_for(|fault| *fault != Fault::Hang).await.map_err(|_| broken())?;
        match fault {
            Fault::None | Fault::Hang => call.await,
            Fault::Error => Err(broken().into()),
            Fault::Slow(delay) => {
                tokio::time::sleep(delay).await;
                let answer = call.await;
                tokio::time::sleep(delay).await;
                answer
            }
        }
    }
}

impl Controls {
    async fn wait_if_held(&self, transaction: &Transaction) {
        let is_held = |held: &Option<StoreKey>| {
            let deletes = |write: &Write| matches!(write, Write::Delete { key } if held.as_ref() == Some(key));
            transaction.writes.iter().any(deletes)
        };
        if is_held(&self.held.borrow().0) {
            self.held.send_modify(|(_, is_holding)| *is_holding = true);
            let _ = self.held.subscribe().wait_for(|(held, _)| !is_held(held)).await;
        }
    }

    /// Panics if an injected place matches.
    fn pass(&self, is_here: impl Fn(&Panic) -> bool) {
        let found = self.panics.lock().iter().find(|place| is_here(place)).cloned();
        if let Some(place) = found {
            panic!("configured to panic at {place:?}");
        }
    }
}

fn broken() -> StoreError {
    StoreError::Unavailable("broken on purpose".to_owned())
}

/// A tail with its faults.
struct FaultyTail {
    inner: Tail,
    fault: watch::Receiver<Fault>,
    controls: Arc<Controls>,
}

impl FaultyTail {
    async fn next(&mut self) -> Option<Result<TailBatch, StoreError>> {
        loop {
            let fault = *self.fault.borrow_and_update();
            match fault {
                Fault::None => {}
                Fault::Error => return Some(Err(broken())),
                Fault::Hang => {
                    self.fault.changed().await.ok()?;
                    continue;
                }
                Fault::Slow(delay) => tokio::time::sleep(delay).await,
            }
            tokio::select! {
                biased;
                changed = self.fault.changed() => changed.ok()?,
                batch = self.inner.next() => {
                    self.controls.pass(|place| *place == Panic::Tail);
                    return batch.map(|batch| batch.map(|batch| self.without_swallowed(batch)));
                }
            }
        }
    }

    fn without_swallowed(&self, mut batch: TailBatch) -> TailBatch {
        let mut swallowed = self.controls.swallowed.lock();
        batch.events.retain(|event| !swallowed.remove(&event.key));
        batch
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let written: Vec<StoreKey> = transaction.writes.iter().map(|write| write.key().clone()).collect();
        let is_written = |prefix: &str| written.iter().any(|key| key.as_str().starts_with(prefix));
        self.controls.pass(|place| matches!(place, Panic::Write(prefix) if is_written(prefix)));
        self.controls.wait_if_held(&transaction).await;
        let committed = self.call(self.inner.commit(transaction)).await?;
        let late = self.controls.late_answer.lock().take_if(|(prefix, _)| is_written(prefix));
        if let Some((_, delay)) = late {
            tokio::time::sleep(delay).await;
        }
        let mut to_lose = self.controls.answers_to_lose.lock();
        if to_lose.1 > 0 && is_written(&to_lose.0) {
            to_lose.1 -= 1;
            return Err(StoreError::Unknown("its answer was lost".to_owned()).into());
        }
        Ok(committed)
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.call(self.inner.get(key)).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.call(self.inner.range(request)).await
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.call(self.inner.count(request)).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.controls.revision_reads.fetch_add(1, Ordering::SeqCst);
        self.call(self.inner.current_revision()).await
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.call(self.inner.oldest_revision()).await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let (fault, controls) = (self.controls.tails.subscribe(), self.controls.clone());
        if *fault.borrow() == Fault::Error {
            return Err(broken());
        }
        let tail = FaultyTail { inner: self.call(self.inner.tail(after)).await?, fault, controls };
        Ok(Box::pin(stream::unfold(Some(tail), |tail| async move {
            let mut tail = tail?;
            let batch = tail.next().await?;
            let rest = batch.is_ok().then_some(tail);
            Some((batch, rest))
        })))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.call(self.inner.compact(oldest)).await
    }

    async fn crowded(&self) -> Revision {
        self.inner.crowded().await
    }

    fn history_limit(&self) -> Option<u64> {
        self.inner.history_limit()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.controls.pass(|place| *place == Panic::Expire);
        self.call(self.inner.expire(now)).await
    }

    async fn verify(&self) -> Result<(), StoreError> {
        if let Some(sound) = &mut *self.controls.sound_checks.lock() {
            *sound =
                sound.checked_sub(1).ok_or_else(|| StoreError::Corrupt("rows of the history are gone".to_owned()))?;
        }
        self.call(self.inner.verify()).await
    }

    fn refusal(&self) -> Option<String> {
        self.inner.refusal()
    }

    fn seal(&self, key: &str) -> Seal {
        self.inner.seal(key)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call(self.inner.check()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Factory;
    use crate::memory::MemoryStore;

    struct FaultyWrapper(MemoryStore);

    impl Factory for FaultyWrapper {
        async fn open(&mut self) -> Arc<dyn Store> {
            Arc::new(FaultyStore::new(Arc::new(self.0.clone())))
        }
    }

    crate::conformance_tests!(FaultyWrapper(MemoryStore::new()));

    fn put(key: &str) -> Transaction {
        Transaction::default().put(StoreKey::new(key), "x")
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_values_stay_reported_until_repaired() {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let mut tail = store.tail(Revision::new(1)).await.unwrap();
        store.set(Fault::Hang);
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.commit(put("/a")).await }
        });
        let long = Duration::from_secs(60);
        assert!(tokio::time::timeout(long, store.get(&StoreKey::new("/a"))).await.is_err());
        store.set_calls(Fault::None);
        waiting.await.unwrap().unwrap();
        assert!(tokio::time::timeout(long, tail.next()).await.is_err(), "the tail still hangs");
        store.set_tails(Fault::None);
        assert_eq!(tail.next().await.unwrap().unwrap().events.len(), 1);
        store.set(Fault::Error);
        assert!(store.commit(put("/b")).await.is_err());
        assert!(tail.next().await.unwrap().is_err());
        assert!(tail.next().await.is_none());
    }

    #[tokio::test]
    async fn a_lost_answer_is_of_a_write_that_happened() {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let mut tail = store.tail(Revision::new(1)).await.unwrap();
        store.lose_answers("/a", 1);
        let lost = store.commit(put("/a")).await;
        assert!(matches!(lost, Err(CommitError::Store(StoreError::Unknown(_)))), "{lost:?}");
        assert!(store.get(&StoreKey::new("/a")).await.unwrap().is_some());
        store.swallow(StoreKey::new("/b"));
        store.commit(put("/b")).await.unwrap();
        store.commit(put("/b")).await.unwrap();
        let mut told = Vec::new();
        while told.len() < 2 {
            told.extend(tail.next().await.unwrap().unwrap().events);
        }
        assert_eq!([told[0].key.as_str(), told[1].key.as_str()], ["/a", "/b"]);
        assert_eq!(told[1].revision, Revision::new(4));
    }
}
