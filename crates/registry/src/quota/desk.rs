//! The desk of a namespace: the one place of a server where its quotas are charged.
//!
//! Writes that wait share a transaction: those of all of them, and of each quota that they are charged to. So a quota that everybody
//! uses is written once for many objects, and nobody loses a race against others of the same server; against those of other servers
//! the quota's revision is compared. Who waits drives the transaction, whoever that is: one that goes away stops nobody else.
//!
//! ORDER: the quotas are charged with what is found in a newer state of them than any that this desk has written.

use std::borrow::Cow;
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

/// How many writes share a transaction: etcd takes 128 compares, and a write has up to three.
const TOGETHER: usize = 32;
/// How many bytes they have together, unless it is one alone.
const BYTES_TOGETHER: usize = 512 * 1024;
/// How often a transaction is made anew since others were faster.
const ATTEMPTS: usize = 64;
/// How many namespaces may have a desk before those that nobody stands at are forgotten.
const FORGET_ABOVE: usize = 64;
/// How many quotas are kept as they were read.
const MOST_READ: usize = 4096;

/// What became of a write.
pub(crate) enum Settled {
    /// It has happened.
    Done(Committed),
    /// One of its own compares does not hold.
    Lost(CommitError),
    /// The limits are others now, so it is to be looked at again what it takes.
    Overtaken,
    /// The quotas make the transaction too large. The write alone is not.
    TooLargeTogether,
}

type Answer = Result<Settled, ApiError>;
type Round = Shared<BoxFuture<'static, ()>>;

/// A write that waits.
struct Member {
    transaction: Transaction,
    charges: Vec<Charge>,
    answer: oneshot::Sender<Answer>,
}

/// The desks of all namespaces, and quotas as they were read.
#[derive(Default)]
pub(crate) struct Desks {
    desks: Mutex<HashMap<String, Arc<Desk>>>,
    read: Mutex<HashMap<Arc<str>, Arc<Parsed>>>,
}

/// The desk of a namespace.
#[derive(Default)]
struct Desk {
    waiting: Mutex<Vec<Member>>,
    round: Mutex<Option<Round>>,
    /// The quotas as this desk has left them, by their keys in the store.
    left: Mutex<HashMap<StoreKey, Arc<Entry>>>,
}

/// What a round needs of the registry.
#[derive(Clone)]
struct Office {
    store: Arc<dyn Store>,
    quotas: Target,
    collection: Arc<Collection>,
}

/// A quota that is charged in a round.
struct Account {
    entry: Arc<Entry>,
    parsed: Arc<Parsed>,
    used: Amounts,
    is_charged: bool,
}

impl Desks {
    /// The quotas of a namespace, as the cache has them. More than a write looks at are counted and not read.
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
        let parsed = Arc::new(Parsed::of(entry));
        read.insert(entry.key.clone(), parsed.clone());
        parsed
    }

    fn desk(&self, namespace: &str) -> Arc<Desk> {
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
    /// Commits a write together with what it is charged.
    ///
    /// # Errors
    /// 403 when others were faster and there is no more room, 503 when the store is away or the quotas keep changing.
    pub(crate) async fn settle(&self, namespace: &str, transaction: Transaction, charges: &[Charge]) -> Answer {
        let quotas = self.target("", "resourcequotas")?.in_namespace(Some(namespace));
        let office = Office { store: self.store().clone(), collection: self.collection(&quotas)?, quotas };
        // Before anybody may have taken the write along.
        let _entered = self.enter(&office.quotas).await?;
        let desk = self.desks.desk(namespace);
        let (answer, mut answered) = oneshot::channel();
        desk.waiting.lock().push(Member { transaction, charges: charges.to_vec(), answer });
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

/// 503: the client may try again.
fn unsettled() -> ApiError {
    ApiError::ServiceUnavailable {
        message: "the quotas of the namespace keep changing, please try again".to_owned(),
        retry_after_seconds: Some(1),
    }
}

impl Desk {
    /// The round that is under way, or a new one of those who wait.
    fn round(self: &Arc<Self>, office: &Office) -> Round {
        let mut round = self.round.lock();
        if let Some(under_way) = round.as_ref().filter(|round| round.peek().is_none()) {
            return under_way.clone();
        }
        let members = self.take();
        // It must not hold the desk that holds it.
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

    /// Takes as many of those who wait as go into one transaction: no two write the same key.
    fn take(&self) -> Vec<Member> {
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

    /// Settles writes together: those that find no room, or lose by their own fault, are told so, and the rest goes on.
    async fn settle(&self, office: &Office, mut members: Vec<Member>) {
        for _ in 0..ATTEMPTS {
            members.retain(|member| !member.answer.is_closed());
            let mut accounts = BTreeMap::new();
            members = self.charge(office, members, &mut accounts);
            if members.is_empty() {
                return;
            }
            let written = accounts.iter().filter(|(_, account)| account.is_charged);
            let written: Vec<(StoreKey, &Account)> = written.map(|(key, account)| (key.clone(), account)).collect();
            let mut shared = Merged::of(&members);
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
                // One write that needs room has the whole transaction refused.
                Err(CommitError::Store(StoreError::Full(why))) if is_mixed(&members) => {
                    members = tell_full(members, &StoreError::Full(why));
                }
                Err(CommitError::Store(StoreError::AboveLimit { .. } | StoreError::TooLarge(_)))
                    if members.len() > 1 =>
                {
                    // The fault is of one, or of all together.
                    for member in members {
                        Box::pin(self.settle(office, vec![member])).await;
                    }
                    return;
                }
                Err(CommitError::Store(StoreError::AboveLimit { .. } | StoreError::TooLarge(_)))
                    if members.iter().all(|member| quotas_weigh_more(&member.transaction, &shared.transaction)) =>
                {
                    for member in members {
                        let _gone = member.answer.send(Ok(Settled::TooLargeTogether));
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

    /// Charges those writes for which there is room, and tells the others.
    fn charge(&self, office: &Office, members: Vec<Member>, accounts: &mut BTreeMap<StoreKey, Account>) -> Vec<Member> {
        let mut charged = Vec::new();
        for member in members {
            match self.charge_one(office, &member.charges, accounts) {
                true => charged.push(member),
                false => {
                    let _gone = member.answer.send(Ok(Settled::Overtaken));
                }
            }
        }
        charged
    }

    /// Whether the limits are those by which the charges were made.
    fn charge_one(&self, office: &Office, charges: &[Charge], accounts: &mut BTreeMap<StoreKey, Account>) -> bool {
        for Charge { quota, amounts } in charges {
            let key = StoreKey::new(format!("{}{}", office.collection.prefix(), quota.key));
            let account = match accounts.get(&key) {
                Some(account) => account,
                None => {
                    let Some(entry) = self.newest(office, &key, &quota.key) else { return false };
                    let parsed = Arc::new(Parsed::of(&entry));
                    let used = parsed.limits.used.clone();
                    &*accounts.entry(key).or_insert(Account { entry, parsed, used, is_charged: false })
                }
            };
            let (now, seen) = (&account.parsed.limits, &quota.limits);
            if now.hard != seen.hard || now.scopes != seen.scopes || now.check_room(&account.used, amounts).is_err() {
                // Whoever looks again is told why there is no room, by a state that is new enough.
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

    /// A quota as the cache has it, or as this desk has left it.
    fn newest(&self, office: &Office, key: &StoreKey, cached: &str) -> Option<Arc<Entry>> {
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

    /// Notes a quota as somebody else has left it.
    fn learn(&self, office: &Office, key: &StoreKey, current: Option<&KeyValue>) {
        let newer = current.and_then(|current| office.collection.decode(current).ok());
        let mut left = self.left.lock();
        match newer {
            Some(entry) => left.insert(key.clone(), entry),
            None => left.remove(key),
        };
    }

    /// Notes the quotas that a transaction has written.
    fn keep(&self, office: &Office, shared: &Merged, written: &[(StoreKey, &Account)], committed: &Committed) {
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

/// Returns true for writes of which some need room and some do not.
fn is_mixed(members: &[Member]) -> bool {
    let roomless = members.iter().filter(|member| member.transaction.needs_no_room()).count();
    (1..members.len()).contains(&roomless)
}

/// Answers the writes that need room in a store that is full. Returns the others.
fn tell_full(members: Vec<Member>, full: &StoreError) -> Vec<Member> {
    let (left, refused): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.transaction.needs_no_room());
    for member in refused {
        let _gone = member.answer.send(Err(store_error(full.clone())));
    }
    left
}

/// Returns true for a write that is less than half of the transaction with its quotas, by bytes or by compares.
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
    /// For each compare, which ones of which writes it stands for.
    stands_for: Vec<Vec<(usize, usize)>>,
    /// How many writes are those of members; the quotas stand behind them.
    of_members: usize,
}

impl Merged {
    fn of(members: &[Member]) -> Self {
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

    /// Adds a quota with what is used of it now.
    fn charge(&mut self, office: &Office, key: &StoreKey, account: &Account) {
        let condition = Condition::At(account.entry.revision);
        self.transaction.compares.push(Compare { key: key.clone(), condition });
        let Live { mut object, managed_fields } = Live::stored(&account.entry);
        object.remove_meta("resourceVersion");
        let status = object.0.entry("status").or_insert_with(|| Value::Object(keelson_meta::json::Map::new()));
        status["used"] = account.used.to_value();
        let encoded = ManagedObject::new(object, managed_fields.map(Cow::into_owned)).encode(&office.quotas);
        let value = encoded.object().bytes();
        office.collection.announce(key.clone(), encoded);
        self.transaction.writes.push(Write::Put { key: key.clone(), value, expires: None });
    }

    /// Tells all that their writes have happened.
    fn tell(self, members: Vec<Member>, committed: &Committed) {
        let mut revisions = committed.revisions.iter().copied();
        for member in members {
            let own = revisions.by_ref().take(member.transaction.writes.len()).collect();
            let _gone = member.answer.send(Ok(Settled::Done(Committed { revisions: own })));
        }
    }

    /// Tells those whose compare did not hold; the others are left.
    fn tell_lost(self, members: Vec<Member>, index: usize, current: Option<&KeyValue>) -> Vec<Member> {
        let lost: HashMap<usize, usize> = self.stands_for.get(index).into_iter().flatten().copied().collect();
        let mut left = Vec::new();
        for (number, member) in members.into_iter().enumerate() {
            match lost.get(&number) {
                Some(own) => {
                    let lost = CommitError::Compare { index: *own, current: current.cloned() };
                    let _gone = member.answer.send(Ok(Settled::Lost(lost)));
                }
                None => left.push(member),
            }
        }
        left
    }
}
