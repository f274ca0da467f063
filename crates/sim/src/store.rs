//! The store of a simulation: one memory engine that all servers share, each over a way of its own with delays and faults.
//!
//! It keeps the contract of `keelson_storage::Store` as PostgreSQL and etcd do: a commit may take effect although its
//! answer is lost, and also after its sender has given it up. A feed may fall behind, break, and be overtaken by a
//! compaction. Mutants break the contract on purpose.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::memory::{MemorySnapshot, MemoryStore};
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Seal, Store, StoreError, StoreEvent, StoreKey, Tail,
    TailBatch, Transaction, Write,
};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::mutant::Mutant;

/// The delay of a request in each direction without a fault, in milliseconds.
const DELAY_MS: Range<u64> = 1..12;
/// The interval at which a stalled call or feed looks again.
const LOOK: Duration = Duration::from_millis(20);
/// The time after which a call to an unreachable store fails.
const UNREACHABLE: Duration = Duration::from_millis(700);
/// The most milliseconds until a commit takes effect whose sender has given it up.
const LATEST_MS: u64 = 4000;

/// The state of the way between one server and the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// Calls fail, and feeds end.
    pub(crate) is_down: bool,
    /// Calls and feeds wait.
    pub(crate) is_stalled: bool,
    /// An additional delay in each direction, in milliseconds.
    pub(crate) slow_ms: u64,
    /// An additional delay of feeds, in milliseconds.
    pub(crate) lag_ms: u64,
    /// The answers of a thousand commits that are lost.
    pub(crate) lost: u64,
    /// Feeds that began before the last change of this number end.
    pub(crate) breaks: u64,
    /// A mutant's divergence: events after the first revision up to the second are missing.
    missing: Option<(Revision, Revision)>,
}

/// The store. Clones are the same store.
#[derive(Clone)]
pub(crate) struct SimStore {
    engine: MemoryStore,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    now: u64,
    seed: u64,
    ways: BTreeMap<usize, Way>,
    /// Commits that take effect later, by their time.
    late: BTreeMap<(u64, u64), Transaction>,
    late_count: u64,
    mutant: Option<Mutant>,
    /// The number of times that the mutant has acted.
    acted: u64,
    /// The part of the keys on which mutants act.
    scope: &'static str,
}

impl SimStore {
    pub(crate) fn new(seed: u64, snapshot: Option<&MemorySnapshot>, mutant: Option<Mutant>) -> Self {
        let engine = snapshot.map_or_else(MemoryStore::new, MemoryStore::from_snapshot);
        let shared = Shared {
            now: 0,
            seed,
            ways: BTreeMap::new(),
            late: BTreeMap::new(),
            late_count: 0,
            mutant,
            acted: 0,
            scope: "/sim/",
        };
        Self { engine, shared: Arc::new(Mutex::new(shared)) }
    }

    /// The engine, which has no faults.
    pub(crate) fn engine(&self) -> &MemoryStore {
        &self.engine
    }

    /// The store as one server reaches it.
    pub(crate) fn reached_by(&self, server: usize) -> ServerStore {
        ServerStore { store: self.clone(), server }
    }

    /// Changes the way of a server.
    pub(crate) fn change(&self, server: usize, change: impl FnOnce(&mut Way)) {
        change(self.shared.lock().ways.entry(server).or_default());
    }

    /// The number of times that the mutant has acted.
    pub(crate) fn acted(&self) -> u64 {
        self.shared.lock().acted
    }

    /// Lets late commits take effect up to this time, in milliseconds.
    pub(crate) fn advance(&self, now: u64) {
        let due = {
            let mut shared = self.shared.lock();
            shared.now = now;
            let later = shared.late.split_off(&(now, 0));
            std::mem::replace(&mut shared.late, later)
        };
        for transaction in due.into_values() {
            // If it is refused by then, its sender learns nothing of that either.
            let _refused = self.apply(transaction);
        }
    }

    /// Compacts all history.
    pub(crate) fn compact_all(&self) {
        let compacted = async {
            let newest = self.engine.current_revision().await?;
            self.engine.compact(newest).await
        };
        let _ = compacted.now_or_never();
    }

    /// Applies a mutant's loss at the death of a server.
    pub(crate) fn server_died(&self, server: usize) {
        let newest = self.engine.current_revision().now_or_never().and_then(Result::ok).unwrap_or(Revision::ZERO);
        let last = self.last_in_scope();
        let mut shared = self.shared.lock();
        let Some((key, before, revision)) = last else { return };
        match shared.mutant {
            Some(Mutant::DivergesAfterKill) => {
                shared.acted += 1;
                let from = Revision::new(revision.get() - 1);
                shared.ways.entry(server).or_default().missing = Some((from, newest));
            }
            Some(Mutant::LosesLastOnKill) => {
                shared.acted += 1;
                let write = match before {
                    Some(value) => Write::Put { key, value, expires: None },
                    None => Write::Delete { key },
                };
                drop(shared);
                let _ = self.apply(Transaction { writes: vec![write], ..Transaction::default() });
            }
            _ => {}
        }
    }

    /// The key of the last write in the mutants' scope, its value before, and its revision.
    fn last_in_scope(&self) -> Option<(StoreKey, Option<bytes::Bytes>, Revision)> {
        let oldest = self.engine.oldest_revision().now_or_never()?.ok()?;
        let mut tail = self.engine.tail(oldest).now_or_never()?.ok()?;
        let mut events: Vec<StoreEvent> = Vec::new();
        while let Some(Some(Ok(batch))) = tail.next().now_or_never() {
            events.extend(batch.events);
        }
        let last = events.iter().rposition(|event| event.key.as_str().contains("/sim/"))?;
        let (key, revision) = (events[last].key.clone(), events[last].revision);
        let before = events[..last].iter().rev().find(|event| event.key == key).and_then(|event| event.value.clone());
        Some((key, before, revision))
    }

    fn apply(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        // The engine in memory never waits.
        self.engine.commit(transaction).now_or_never().expect("the engine in memory answers at once")
    }
}

impl Shared {
    /// Draws the delays of a request.
    fn delays(&mut self, server: usize) -> [Duration; 2] {
        let slow = self.ways.entry(server).or_default().slow_ms;
        let mut dice = Dice::at(self.seed, "store", self.now, server as u64);
        [(); 2].map(|()| {
            let more = if slow == 0 { 0 } else { dice.within(0..slow) };
            Duration::from_millis(dice.within(DELAY_MS) + more)
        })
    }

    /// True if the mutant acts at this time and place, this many times of a thousand.
    fn acts(&mut self, mutant: Mutant, of_thousand: u64, place: u64) -> bool {
        let acts = self.mutant == Some(mutant) && Dice::at(self.seed, "mutant", self.now, place).chance(of_thousand);
        self.acted += u64::from(acts);
        acts
    }

    fn concerns(&self, transaction: &Transaction) -> bool {
        transaction.writes.iter().any(|write| write.key().as_str().contains(self.scope))
    }
}

fn unreachable() -> StoreError {
    StoreError::Unavailable("the store can't be reached".to_owned())
}

fn lost() -> StoreError {
    StoreError::Unknown("the answer was lost".to_owned())
}

/// The store as one server reaches it.
#[derive(Clone)]
pub(crate) struct ServerStore {
    store: SimStore,
    server: usize,
}

/// The outcome of a commit that has arrived.
enum Fate {
    Answered,
    /// It takes effect, and its answer is lost.
    AnswerLost,
    /// It takes effect after this many milliseconds, and its answer is lost.
    Late(u64),
}

impl ServerStore {
    fn way(&self) -> Way {
        self.store.shared.lock().ways.entry(self.server).or_default().clone()
    }

    /// Waits for the request to arrive. Returns the delay of the answer.
    async fn arrive(&self) -> Result<Duration, StoreError> {
        let [there, back] = self.store.shared.lock().delays(self.server);
        sleep(there).await;
        while self.way().is_stalled {
            sleep(LOOK).await;
        }
        if self.way().is_down {
            sleep(UNREACHABLE).await;
            return Err(unreachable());
        }
        Ok(back)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let back = self.arrive().await?;
        let answer = call.await;
        sleep(back).await;
        if self.way().is_down { Err(unreachable()) } else { answer }
    }

    /// True if the process has this mutant. It acts now.
    fn acts(&self, mutant: Mutant) -> bool {
        self.store.shared.lock().acts(mutant, 1000, self.server as u64)
    }

    fn fate(&self) -> Fate {
        let mut shared = self.store.shared.lock();
        let lost = shared.ways.entry(self.server).or_default().lost;
        let mut dice = Dice::at(shared.seed, "fate", shared.now, self.server as u64);
        match dice.chance(lost) {
            false => Fate::Answered,
            true if dice.chance(300) => Fate::Late(dice.within(1..LATEST_MS)),
            true => Fate::AnswerLost,
        }
    }

    /// Applies a commit that has arrived, with the mutant's changes.
    fn apply(&self, mut transaction: Transaction) -> Result<Committed, CommitError> {
        let mut shared = self.store.shared.lock();
        if !shared.concerns(&transaction) {
            drop(shared);
            return self.store.apply(transaction);
        }
        let place = self.server as u64;
        if shared.acts(Mutant::AcknowledgesUnwritten, 40, place) {
            drop(shared);
            let newest = self.store.engine.current_revision().now_or_never().and_then(Result::ok);
            let revision = newest.unwrap_or(Revision::ZERO).next();
            return Ok(Committed { revisions: transaction.writes.iter().map(|_| revision).collect() });
        }
        if shared.acts(Mutant::IgnoresConditions, 1000, place) {
            transaction.compares.clear();
        }
        let twice = shared.acts(Mutant::WritesTwice, 40, place).then(|| {
            let writes = transaction.writes.clone();
            Transaction { writes, ..Transaction::default() }
        });
        let denied = shared.acts(Mutant::DeniesWritten, 40, place);
        let is_wrong = shared.acts(Mutant::WrongRevision, 100, place);
        drop(shared);
        let mut committed = self.store.apply(transaction)?;
        if let Some(again) = twice {
            let _ = self.store.apply(again);
        }
        if denied {
            return Err(unreachable().into());
        }
        if is_wrong {
            committed.revisions.iter_mut().for_each(|revision| *revision = Revision::new(revision.get() - 1));
        }
        Ok(committed)
    }

    /// Removes the events that a diverged member does not have.
    fn without_missing(&self, events: &mut Vec<StoreEvent>) {
        if let Some((after, last)) = self.way().missing {
            events.retain(|event| {
                !(event.revision > after && event.revision <= last && event.key.as_str().contains("/sim/"))
            });
        }
    }
}

#[async_trait]
impl Store for ServerStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let back = self.arrive().await?;
        let fate = self.fate();
        if let Fate::Late(after) = fate {
            {
                let mut shared = self.store.shared.lock();
                shared.late_count += 1;
                let key = (shared.now + after, shared.late_count);
                shared.late.insert(key, transaction);
            }
            sleep(UNREACHABLE).await;
            return Err(lost().into());
        }
        let answer = self.apply(transaction);
        sleep(back).await;
        if matches!(fate, Fate::AnswerLost) || self.way().is_down {
            sleep(UNREACHABLE).await;
            return Err(lost().into());
        }
        answer
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.call(self.store.engine.get(key)).await
    }

    async fn range(&self, mut request: RangeRequest) -> Result<RangePage, StoreError> {
        let asked = request.revision;
        if asked.is_some() && self.acts(Mutant::ForgetsSnapshot) {
            request.revision = None;
        }
        if let Some((after, _)) = self.way().missing {
            request.revision = Some(after);
        }
        let mut page = self.call(self.store.engine.range(request)).await?;
        if let Some(asked) = asked {
            page.revision = asked;
        }
        Ok(page)
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.call(self.store.engine.count(request)).await
    }

    fn seal(&self, key: &str) -> Seal {
        self.store.engine.seal(key)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        let newest = self.call(self.store.engine.current_revision()).await?;
        let is_stale = self.store.shared.lock().acts(Mutant::StaleRevision, 500, self.server as u64);
        Ok(if is_stale { Revision::new(newest.get().saturating_sub(8).max(1)) } else { newest })
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.call(self.store.engine.oldest_revision()).await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let newest = self.store.engine.current_revision().await?;
        let from = if after < newest && self.acts(Mutant::ResumesLate) { after.next() } else { after };
        let inner = match self.call(self.store.engine.tail(from)).await {
            Err(StoreError::Compacted { oldest, .. }) if self.acts(Mutant::HidesCompaction) => {
                self.store.engine.tail(oldest).await?
            }
            inner => inner?,
        };
        let feed = Feed { inner, of: self.clone(), breaks: self.way().breaks, held: Vec::new(), last: BTreeMap::new() };
        Ok(Box::pin(stream::unfold(Some(feed), |feed| async move {
            let mut feed = feed?;
            let batch = feed.next().await?;
            let rest = batch.is_ok().then_some(feed);
            Some((batch, rest))
        })))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.call(self.store.engine.compact(oldest)).await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.call(self.store.engine.expire(now)).await
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.call(self.store.engine.verify()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.call(self.store.engine.check()).await
    }
}

/// The feed of one server.
struct Feed {
    inner: Tail,
    of: ServerStore,
    breaks: u64,
    /// Events that a mutant holds back.
    held: Vec<StoreEvent>,
    /// The last values of keys, for a mutant.
    last: BTreeMap<StoreKey, bytes::Bytes>,
}

impl Feed {
    async fn next(&mut self) -> Option<Result<TailBatch, StoreError>> {
        loop {
            let way = self.of.way();
            if way.is_down || way.breaks != self.breaks {
                return Some(Err(unreachable()));
            }
            if way.is_stalled {
                sleep(LOOK).await;
                continue;
            }
            let Ok(batch) = tokio::time::timeout(LOOK * 5, self.inner.next()).await else { continue };
            let [delay, _] = self.of.store.shared.lock().delays(self.of.server);
            sleep(delay + Duration::from_millis(way.lag_ms)).await;
            let mut batch = match batch? {
                Ok(batch) => batch,
                Err(StoreError::Compacted { oldest, .. }) if self.of.acts(Mutant::HidesCompaction) => {
                    match self.of.store.engine.tail(oldest).await {
                        Ok(inner) => self.inner = inner,
                        Err(error) => return Some(Err(error)),
                    }
                    continue;
                }
                Err(error) => return Some(Err(error)),
            };
            self.of.without_missing(&mut batch.events);
            self.mutate(&mut batch);
            return Some(Ok(batch));
        }
    }

    fn mutate(&mut self, batch: &mut TailBatch) {
        let mut shared = self.of.store.shared.lock();
        if shared.mutant.is_none() {
            return;
        }
        let (scope, server) = (shared.scope, self.of.server as u64);
        batch.events.retain(|event| {
            !(event.key.as_str().contains(scope) && shared.acts(Mutant::LosesEvent, 30, event.revision.get()))
        });
        for event in batch.events.iter_mut().filter(|event| event.key.as_str().contains(scope)) {
            let value = event.value.clone();
            if let Some(last) = self.last.get(&event.key)
                && event.value.is_some()
                && shared.acts(Mutant::OldValue, 60, event.revision.get())
            {
                event.value = Some(last.clone());
            }
            self.last.extend(value.map(|value| (event.key.clone(), value)));
        }
        let held = std::mem::take(&mut self.held);
        if shared.acts(Mutant::EarlyProgress, 200, server) {
            self.held = std::mem::take(&mut batch.events);
        }
        batch.events.splice(0..0, held);
        let place = batch.events.len().wrapping_sub(2);
        if let Some([one, other]) = batch.events.get_mut(place..)
            && one.key.as_str().contains(scope)
            && shared.acts(Mutant::Reorders, 500, server)
        {
            std::mem::swap(one, other);
        }
    }
}
