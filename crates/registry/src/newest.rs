//! The store's newest revision, read once for many readers.
//!
//! Readers that wait at the same moment share a read. By invariant 15 a reader may only use a read that was sent after
//! the reader came. An earlier read may have been answered before a write that the reader's client already knows. There
//! are therefore at most two reads: the one under way, and the next one, which all later readers join. It is sent when
//! the first one is answered. An embedded store knows the answer without a read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use keelson_meta::{ApiError, Revision};
use keelson_storage::{Store, StoreError};
use parking_lot::Mutex;

use crate::registry::store_error;

type Answer = Result<Revision, ApiError>;
type Read = Shared<BoxFuture<'static, Answer>>;

/// The number of reads of the newest revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewestReads {
    /// Reads that were sent to the store.
    pub asked: u64,
    /// Readers that joined the read of another reader.
    pub shared: u64,
}

/// Reads a store's newest revision as rarely as possible.
pub(crate) struct Newest(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    /// The timeout of a read.
    patience: Duration,
    reads: Mutex<Reads>,
    asked: AtomicU64,
    shared: AtomicU64,
}

#[derive(Default)]
struct Reads {
    /// The read that is not sent yet, which readers may join.
    next: Option<Read>,
    /// The read that was sent last. The next read waits for its answer.
    last: Option<Read>,
}

impl Newest {
    pub(crate) fn new(store: Arc<dyn Store>, patience: Duration) -> Self {
        let reads = Mutex::default();
        Self(Arc::new(Inner { store, patience, reads, asked: AtomicU64::new(0), shared: AtomicU64::new(0) }))
    }

    /// The newest revision: at least that of every write that was acknowledged, by any server, before this was called.
    ///
    /// # Errors
    /// 503 when the store fails, or does not answer in time.
    pub(crate) async fn ask(&self) -> Answer {
        if let Some(known) = self.0.store.known_revision() {
            return Ok(known);
        }
        let read = self.0.join();
        read.await
    }

    pub(crate) fn stats(&self) -> NewestReads {
        NewestReads { asked: self.0.asked.load(Ordering::Relaxed), shared: self.0.shared.load(Ordering::Relaxed) }
    }
}

impl Inner {
    /// The read that is sent next.
    fn join(self: &Arc<Self>) -> Read {
        let mut reads = self.reads.lock();
        if let Some(next) = &reads.next {
            self.shared.fetch_add(1, Ordering::Relaxed);
            return next.clone();
        }
        let last = reads.last.clone();
        // This value owns the reads, so they must not own it.
        let next = put(Arc::downgrade(self), self.store.clone(), self.patience, last).boxed().shared();
        reads.next = Some(next.clone());
        next
    }

    /// Closes the next read to further readers.
    fn close(&self) {
        let mut reads = self.reads.lock();
        reads.last = reads.next.take();
        self.asked.fetch_add(1, Ordering::Relaxed);
    }
}

async fn put(inner: Weak<Inner>, store: Arc<dyn Store>, patience: Duration, last: Option<Read>) -> Answer {
    if let Some(last) = last {
        // The answer is for the readers that joined that read.
        let _ = last.await;
    }
    // ORDER: the read is sent when no reader can join any more.
    if let Some(inner) = inner.upgrade() {
        inner.close();
    }
    let silent = |_| StoreError::Unavailable(format!("no response within {patience:?}"));
    let answer = tokio::time::timeout(patience, store.current_revision()).await.map_err(silent);
    answer.and_then(|answer| answer).map_err(store_error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use futures::future::join_all;
    use keelson_meta::Random as _;
    use keelson_meta::random::SeededRandom;
    use keelson_storage::faulty::{Fault, FaultyStore};
    use keelson_storage::memory::MemoryStore;
    use keelson_storage::{StoreKey, Transaction};
    use proptest::prelude::*;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn over(fault: Fault) -> (FaultyStore, Newest) {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.set(fault);
        (store.clone(), Newest::new(Arc::new(store), PATIENCE))
    }

    async fn write(store: &FaultyStore) -> Revision {
        let put = Transaction::default().put(StoreKey::new("/a"), "x");
        store.commit(put).await.unwrap().revisions[0]
    }

    async fn pause(random: &SeededRandom) {
        tokio::time::sleep(Duration::from_millis(random.u64() % 40)).await;
    }

    /// Readers and writers at random moments over a store with delays. No reader gets less than was acknowledged when
    /// it came, and there is at most one read at a time.
    async fn readers_beside_writers(seed: u64, travel: u64, readers: u64) {
        let (store, newest) = over(Fault::Slow(Duration::from_millis(travel)));
        let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let begun = tokio::time::Instant::now();
        let write = async |number: u64| {
            let random = SeededRandom::new(seed + 1000 + number);
            for _ in 0..20 {
                acknowledged.fetch_max(write(&store).await.get(), Ordering::SeqCst);
                pause(&random).await;
            }
            done.store(true, Ordering::SeqCst);
        };
        let read = async |number: u64| {
            let random = SeededRandom::new(seed + number);
            let mut reads = 0;
            while !done.load(Ordering::SeqCst) {
                let before = acknowledged.load(Ordering::SeqCst);
                if random.u64().is_multiple_of(4) {
                    // Some readers are cancelled while they wait, also those that have opened a read.
                    let _ =
                        tokio::time::timeout(Duration::from_millis(random.u64() % (travel + 1)), newest.ask()).await;
                } else {
                    let told = newest.ask().await.unwrap().get();
                    assert!(told >= before, "{told} is older than {before}, which was acknowledged");
                    reads += 1;
                }
                pause(&random).await;
            }
            reads
        };
        let reads = join_all((0..readers).map(read));
        let (_, reads) = futures::future::join(join_all((0..3).map(write)), reads).await;
        let reads: u64 = reads.into_iter().sum();
        let room = begun.elapsed().as_millis() as u64 / (2 * travel) + 1;
        assert!(newest.stats().asked <= room, "{} reads where {room} fit one behind the other", newest.stats().asked);
        let NewestReads { asked, shared } = newest.stats();
        assert_eq!(asked, store.revision_reads());
        assert!(reads > 0 && asked + shared >= reads);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn inv15_readers_see_all_writes_acknowledged_before(
            seed in 0..u64::MAX / 2,
            travel in 1..60u64,
            readers in 1..24u64,
        ) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            runtime.block_on(readers_beside_writers(seed, travel, readers));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_during_a_request_share_the_next_one() {
        let (store, newest) = over(Fault::Slow(Duration::from_millis(100)));
        let first = async {
            let told = newest.ask().await.unwrap();
            (told, tokio::time::Instant::now())
        };
        let late = async {
            // The store has answered the first read, and the answer has not arrived yet.
            tokio::time::sleep(Duration::from_millis(120)).await;
            store.set(Fault::None);
            let written = write(&store).await;
            (written, newest.ask().await.unwrap(), tokio::time::Instant::now())
        };
        let ((told, answered), (written, told_late, answered_late)) = futures::future::join(first, late).await;
        assert!(told < written && told_late == written);
        assert!(answered_late >= answered);
        assert_eq!(newest.stats(), NewestReads { asked: 2, shared: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_readers_share_two_revision_requests() {
        let (_store, newest) = over(Fault::Slow(Duration::from_millis(10)));
        let told = join_all((0..1000).map(|_| newest.ask())).await;
        assert!(told.into_iter().all(|told| told == Ok(Revision::new(1))));
        assert_eq!(newest.stats(), NewestReads { asked: 2, shared: 998 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_is_given_up_and_asked_again() {
        let (store, newest) = over(Fault::Hang);
        let begun = tokio::time::Instant::now();
        for told in join_all((0..10).map(|_| newest.ask())).await {
            let error = told.unwrap_err();
            assert_eq!((error.code(), error.retry_after()), (503, Some(1)), "{error}");
        }
        assert!(begun.elapsed() <= 2 * PATIENCE);
        store.set(Fault::None);
        assert_eq!(newest.ask().await, Ok(Revision::new(1)));
    }
}
