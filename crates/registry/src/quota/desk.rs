//! The desk of a namespace: the only place in a server that charges the quotas of the namespace.
//!
//! Waiting writes share a transaction, together with each quota that they are charged to. A quota is therefore written
//! once for many objects, and writes of one server never conflict on it. Against other servers, the transaction
//! compares the revision of the quota. Each waiting request drives the shared transaction, so a request that is
//! cancelled does not stop the others.
//!
//! ORDER: usage is charged to a state of the quotas that is at least as new as any that this desk has written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use keelson_cache::{Collection, Entry};
use keelson_meta::json::Value;
use keelson_meta::{Amounts, ApiError, Revision};
use keelson_storage::{
    CommitError, Committed, Compare, Condition, KeyValue, Store, StoreError, StoreKey, Transaction, Write,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::limits::Parsed;
use super::{Charge, QuotasOf};
use crate::registry::{Registry, store_error};
use crate::target::Target;
use crate::write::{Live, ManagedObject};

/// The largest number of writes in one transaction: etcd takes 128 compares, and a write has up to three.
const TOGETHER: usize = 32;
/// The largest size of these writes in bytes, unless there is only one.
const BYTES_TOGETHER: usize = 512 * 1024;
/// The largest number of attempts at a transaction that conflicts with other writers.
const ATTEMPTS: usize = 64;
/// The number of desks above which unused desks are dropped.
const FORGET_ABOVE: usize = 64;
/// The largest number of cached quotas in parsed form.
const MOST_READ: usize = 4096;

/// The result of a write.
pub(crate) enum WriteOutcome {
    /// The write is committed.
    Done(Committed),
    /// One of the write's own compares does not hold.
    Lost(CommitError),
    /// The limits have changed, so the charges must be computed again.
    Overtaken,
    /// The quotas make the transaction too large. The write alone is not.
    TooLargeTogether,
}

type Answer = Result<WriteOutcome, ApiError>;
type QuotaBatch = Shared<BoxFuture<'static, ()>>;

/// A waiting write.
struct PendingWrite {
    transaction: Transaction,
    charges: Vec<Charge>,
    answer: oneshot::Sender<Answer>,
}

/// The desks of all namespaces, and quotas in parsed form.
#[derive(Default)]
pub(crate) struct QuotaBatchers {
    desks: Mutex<HashMap<String, Arc<QuotaBatcher>>>,
    read: Mutex<HashMap<Arc<str>, Arc<Parsed>>>,
}

/// The desk of a namespace.
#[derive(Default)]
struct QuotaBatcher {
    waiting: Mutex<Vec<PendingWrite>>,
    round: Mutex<Option<QuotaBatch>>,
    /// The quotas as this desk last wrote or read them, by their keys in the store.
    left: Mutex<HashMap<StoreKey, Arc<Entry>>>,
}

/// The parts of the registry that a round needs. A round is one batch of writes.
#[derive(Clone)]
struct BatchContext {
    store: Arc<dyn Store>,
    quotas: Target,
    collection: Arc<Collection>,
}

/// A quota that a round charges.
struct QuotaState {
    entry: Arc<Entry>,
    parsed: Arc<Parsed>,
    used: Amounts,
    is_charged: bool,
}

impl QuotaBatchers {
    /// The cached quotas of a namespace. If there are more than a write reads, they are only counted.
    pub(super) fn quotas<'n>(&self, registry: &Registry, namespace: &'n str) -> Result<QuotasOf<'n>, ApiError> {
        let none = QuotasOf { namespace, parsed: Vec::new(), number: 0, bytes: 0 };
        let Ok(target) = registry.target("", "resourcequotas") else { return Ok(none) };
        let collection = registry.collection(&target)?;
        if collection.is_empty() {
            return Ok(none);
        }
        let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
        let snapshot = collection.snapshot();
        let mut quotas =
            QuotasOf { number: snapshot.count(&from, Some(&to)), bytes: snapshot.bytes(&from, Some(&to)), ..none };
        if quotas.is_readable() {
            quotas.parsed = snapshot.range(&from, Some(&to)).map(|entry| self.parsed(entry)).collect();
        }
        Ok(quotas)
    }

    fn parsed(&self, entry: &Entry) -> Arc<Parsed> {
        let mut read = self.read.lock();
        if let Some(parsed) = read.get(&entry.key).filter(|parsed| parsed.revision == entry.revision) {
            return parsed.clone();
        }
        if read.len() >= MOST_READ {
            read.clear();
        }
        let parsed = Arc::new(Parsed::from_entry(entry));
        read.insert(entry.key.clone(), parsed.clone());
        parsed
    }

    fn desk(&self, namespace: &str) -> Arc<QuotaBatcher> {
        let mut desks = self.desks.lock();
        if let Some(desk) = desks.get(namespace) {
            return desk.clone();
        }
        if desks.len() >= FORGET_ABOVE {
            desks.retain(|_, desk| Arc::strong_count(desk) > 1);
        }
        desks.entry(namespace.to_owned()).or_default().clone()
    }
}

impl Registry {
    /// Commits a write together with its charges.
    ///
    /// # Errors
    /// 403 if other writes have used the quota up, 503 if the store is away or the quotas keep changing.
    pub(crate) async fn settle(&self, namespace: &str, transaction: Transaction, charges: &[Charge]) -> Answer {
        let quotas = self.target("", "resourcequotas")?.in_namespace(Some(namespace));
        let office = BatchContext { store: self.store().clone(), collection: self.collection(&quotas)?, quotas };
        // The caller enters the gate before another request can commit the write in its batch.
        let _entered = self.enter(&office.quotas).await?;
        let desk = self.desks.desk(namespace);
        let (answer, mut answered) = oneshot::channel();
        desk.waiting.lock().push(PendingWrite { transaction, charges: charges.to_vec(), answer });
        loop {
            desk.round(&office).await;
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Empty) => {}
                Err(oneshot::error::TryRecvError::Closed) => return Err(unsettled()),
            }
        }
    }
}

/// 503: the client may retry.
fn unsettled() -> ApiError {
    ApiError::ServiceUnavailable {
        message: "the quotas of the namespace keep changing, please try again".to_owned(),
        retry_after_seconds: Some(1),
    }
}

impl QuotaBatcher {
    /// The round under way, or a new round of the waiting writes.
    fn round(self: &Arc<Self>, office: &BatchContext) -> QuotaBatch {
        let mut round = self.round.lock();
        if let Some(under_way) = round.as_ref().filter(|round| round.peek().is_none()) {
            return under_way.clone();
        }
        let members = self.take();
        // The round must not own the desk, which owns the round.
        let (desk, office) = (Arc::downgrade(self), office.clone());
        let next = async move {
            if let Some(desk) = desk.upgrade() {
                desk.settle(&office, members).await;
            }
        };
        let next = next.boxed().shared();
        *round = Some(next.clone());
        next
    }

    /// Takes as many waiting writes as fit into one transaction. No two of them write the same key.
    fn take(&self) -> Vec<PendingWrite> {
        let mut waiting = self.waiting.lock();
        let (mut taken, mut left, mut written, mut bytes) = (Vec::new(), Vec::new(), HashSet::new(), 0);
        for member in waiting.drain(..).filter(|member| !member.answer.is_closed()) {
            let keys: Vec<StoreKey> = member.transaction.writes.iter().map(|write| write.key().clone()).collect();
            let size = size(&member.transaction);
            let fits = taken.is_empty()
                || (taken.len() < TOGETHER
                    && bytes + size <= BYTES_TOGETHER
                    && keys.iter().all(|key| !written.contains(key)));
            if fits {
                bytes += size;
                written.extend(keys);
                taken.push(member);
            } else {
                left.push(member);
            }
        }
        *waiting = left;
        taken
    }

    /// Commits a round. Writes that exceed a quota, or whose own compare fails, get their result at once. The others
    /// stay in the round.
    async fn settle(&self, office: &BatchContext, mut members: Vec<PendingWrite>) {
        for _ in 0..ATTEMPTS {
            members.retain(|member| !member.answer.is_closed());
            let mut accounts = BTreeMap::new();
            members = self.charge(office, members, &mut accounts);
            if members.is_empty() {
                return;
            }
            let written = accounts.iter().filter(|(_, account)| account.is_charged);
            let written: Vec<(StoreKey, &QuotaState)> = written.map(|(key, account)| (key.clone(), account)).collect();
            let mut shared = Merged::new(&members);
            for (key, account) in &written {
                shared.charge(office, key, account);
            }
            match office.store.commit(shared.transaction.clone()).await {
                Ok(committed) => {
                    self.keep(office, &shared, &written, &committed);
                    shared.tell(members, &committed);
                    return;
                }
                Err(CommitError::Compare { index, current }) => {
                    if let Some(compare) = shared.transaction.compares.get(index)
                        && written.iter().any(|(key, _)| *key == compare.key)
                    {
                        self.learn(office, &compare.key, current.as_ref());
                        continue;
                    }
                    members = shared.tell_lost(members, index, current.as_ref());
                }
                // A full store refuses the whole transaction because of one write that needs space.
                Err(CommitError::Store(StoreError::Full(why))) if is_mixed(&members) => {
                    members = tell_full(members, &StoreError::Full(why));
                }
                Err(CommitError::Store(
                    StoreError::AboveLimit { .. } | StoreError::TooLarge(_) | StoreError::Unstorable(_),
                )) if members.len() > 1 => {
                    // One write is at fault, or all of them together.
                    for member in members {
                        Box::pin(self.settle(office, vec![member])).await;
                    }
                    return;
                }
                Err(CommitError::Store(StoreError::AboveLimit { .. } | StoreError::TooLarge(_)))
                    if members.iter().all(|member| quotas_weigh_more(&member.transaction, &shared.transaction)) =>
                {
                    for member in members {
                        let _gone = member.answer.send(Ok(WriteOutcome::TooLargeTogether));
                    }
                    return;
                }
                Err(CommitError::Store(error)) => {
                    self.left.lock().clear();
                    let error = store_error(error);
                    for member in members {
                        let _gone = member.answer.send(Err(error.clone()));
                    }
                    return;
                }
            }
        }
        for member in members {
            let _gone = member.answer.send(Err(unsettled()));
        }
    }

    /// Charges the writes that fit into their quotas, and sends the others their result.
    fn charge(
        &self,
        office: &BatchContext,
        members: Vec<PendingWrite>,
        accounts: &mut BTreeMap<StoreKey, QuotaState>,
    ) -> Vec<PendingWrite> {
        let mut charged = Vec::new();
        for member in members {
            match self.charge_one(office, &member.charges, accounts) {
                true => charged.push(member),
                false => {
                    let _gone = member.answer.send(Ok(WriteOutcome::Overtaken));
                }
            }
        }
        charged
    }

    /// Adds the charges of a write. Returns false if the limits changed after the charges were computed, or if a quota
    /// would be exceeded.
    fn charge_one(
        &self,
        office: &BatchContext,
        charges: &[Charge],
        accounts: &mut BTreeMap<StoreKey, QuotaState>,
    ) -> bool {
        for Charge { quota, amounts } in charges {
            let key = StoreKey::new(format!("{}{}", office.collection.prefix(), quota.key));
            let account = match accounts.get(&key) {
                Some(account) => account,
                None => {
                    let Some(entry) = self.newest(office, &key, &quota.key) else { return false };
                    let parsed = Arc::new(Parsed::from_entry(&entry));
                    let used = parsed.limits.used.clone();
                    &*accounts.entry(key).or_insert(QuotaState { entry, parsed, used, is_charged: false })
                }
            };
            let (now, seen) = (&account.parsed.limits, &quota.limits);
            if now.hard != seen.hard || now.scopes != seen.scopes || now.check_room(&account.used, amounts).is_err() {
                // The write computes its charges again from a newer state, and gets the error from there.
                return false;
            }
        }
        for Charge { quota, amounts } in charges {
            let key = StoreKey::new(format!("{}{}", office.collection.prefix(), quota.key));
            if let Some(account) = accounts.get_mut(&key) {
                account.used.add_all(amounts);
                account.is_charged = true;
            }
        }
        true
    }

    /// The newest known state of a quota, from the cache or from this desk.
    fn newest(&self, office: &BatchContext, key: &StoreKey, cached: &str) -> Option<Arc<Entry>> {
        let cached = office.collection.get(cached);
        let mut left = self.left.lock();
        match (left.get(key), cached) {
            (Some(left), Some(cached)) if left.revision > cached.revision => Some(left.clone()),
            (_, Some(cached)) => {
                left.remove(key);
                Some(cached)
            }
            (left, None) => left.cloned(),
        }
    }

    /// Records the state of a quota that another writer changed.
    fn learn(&self, office: &BatchContext, key: &StoreKey, current: Option<&KeyValue>) {
        let newer = current.and_then(|current| office.collection.decode(current).ok());
        let mut left = self.left.lock();
        match newer {
            Some(entry) => left.insert(key.clone(), entry),
            None => left.remove(key),
        };
    }

    /// Records the quotas that a transaction has written.
    fn keep(&self, office: &BatchContext, shared: &Merged, written: &[(StoreKey, &QuotaState)], committed: &Committed) {
        let mut left = self.left.lock();
        for (number, (key, _)) in written.iter().enumerate() {
            let place = shared.of_members + number;
            let (Some(Write::Put { value, .. }), Some(revision)) =
                (shared.transaction.writes.get(place), committed.revisions.get(place))
            else {
                continue;
            };
            let stored = KeyValue::new(key.clone(), value.clone(), *revision);
            if let Ok(entry) = office.collection.decode(&stored) {
                left.insert(key.clone(), entry);
            }
        }
    }
}

/// Returns true if some of the writes need space in the store and some do not.
fn is_mixed(members: &[PendingWrite]) -> bool {
    let roomless = members.iter().filter(|member| member.transaction.needs_no_room()).count();
    (1..members.len()).contains(&roomless)
}

/// Sends an error to the writes that need space in a full store. Returns the others.
fn tell_full(members: Vec<PendingWrite>, full: &StoreError) -> Vec<PendingWrite> {
    let (left, refused): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.transaction.needs_no_room());
    for member in refused {
        let _gone = member.answer.send(Err(store_error(full.clone())));
    }
    left
}

/// Returns true if a write is less than half of its transaction with the quotas, by bytes or by compares.
fn quotas_weigh_more(own: &Transaction, with_quotas: &Transaction) -> bool {
    let compares = own.compares.len() * 2 < with_quotas.compares.len();
    compares || size(own) * 2 < size(with_quotas)
}

fn size(transaction: &Transaction) -> usize {
    let of = |write: &Write| match write {
        Write::Put { value, .. } => value.len(),
        Write::Delete { .. } => 0,
    };
    transaction.writes.iter().map(of).sum()
}

/// The transactions of several writes as one.
struct Merged {
    transaction: Transaction,
    /// For each compare of the transaction: the writes that share it, and its index in each of them.
    stands_for: Vec<Vec<(usize, usize)>>,
    /// The number of entries that belong to the waiting writes. The entries of the quotas follow.
    of_members: usize,
}

impl Merged {
    fn new(members: &[PendingWrite]) -> Self {
        let mut known: HashMap<(StoreKey, Option<Revision>, bool), usize> = HashMap::new();
        let (mut transaction, mut stands_for) = (Transaction::default(), Vec::<Vec<(usize, usize)>>::new());
        for (number, member) in members.iter().enumerate() {
            for (index, compare) in member.transaction.compares.iter().enumerate() {
                let identity = match compare.condition {
                    Condition::Absent => (compare.key.clone(), None, false),
                    Condition::Exists => (compare.key.clone(), None, true),
                    Condition::At(revision) => (compare.key.clone(), Some(revision), true),
                };
                let place = *known.entry(identity).or_insert_with(|| {
                    transaction.compares.push(compare.clone());
                    stands_for.push(Vec::new());
                    stands_for.len() - 1
                });
                stands_for[place].push((number, index));
            }
            transaction.writes.extend(member.transaction.writes.iter().cloned());
        }
        let of_members = transaction.writes.len();
        transaction.relief = members.iter().map(|member| member.transaction.relief()).min().unwrap_or_default();
        Self { transaction, stands_for, of_members }
    }

    /// Adds a quota with its new usage.
    fn charge(&mut self, office: &BatchContext, key: &StoreKey, account: &QuotaState) {
        let condition = Condition::At(account.entry.revision);
        self.transaction.compares.push(Compare { key: key.clone(), condition });
        let Live { mut object, managed_fields } = Live::stored(&account.entry);
        object.remove_meta("resourceVersion");
        let status = object.0.entry("status").or_insert_with(|| Value::Object(keelson_meta::json::Map::new()));
        status["used"] = account.used.to_value();
        let encoded = ManagedObject::new(object, managed_fields).encode(&office.quotas);
        let value = encoded.object().bytes();
        office.collection.announce(key.clone(), encoded);
        self.transaction.writes.push(Write::Put { key: key.clone(), value, expires: None });
    }

    /// Sends each write its committed revisions.
    fn tell(self, members: Vec<PendingWrite>, committed: &Committed) {
        let mut revisions = committed.revisions.iter().copied();
        for member in members {
            let own = revisions.by_ref().take(member.transaction.writes.len()).collect();
            let _gone = member.answer.send(Ok(WriteOutcome::Done(Committed { revisions: own })));
        }
    }

    /// Sends their result to the writes whose compare failed. Returns the others.
    fn tell_lost(self, members: Vec<PendingWrite>, index: usize, current: Option<&KeyValue>) -> Vec<PendingWrite> {
        let lost: HashMap<usize, usize> = self.stands_for.get(index).into_iter().flatten().copied().collect();
        let mut left = Vec::new();
        for (number, member) in members.into_iter().enumerate() {
            match lost.get(&number) {
                Some(own) => {
                    let lost = CommitError::Compare { index: *own, current: current.cloned() };
                    let _gone = member.answer.send(Ok(WriteOutcome::Lost(lost)));
                }
                None => left.push(member),
            }
        }
        left
    }
}
