//! Random operations against a simple model of a store: one map per revision.
//!
//! Operations are decoded from bytes, so that a property test can generate and shrink them.

use std::collections::BTreeMap;
use std::sync::Arc;

use keelson_meta::Revision;

use super::expiry::{at, put_until};
use super::{Factory, PREFIX, assert_compacted, drain, everything, key, read, relative, text};
use crate::key::StoreKey;
use crate::store::{CommitError, Condition, RangeRequest, Store, StoreEvent, Transaction};

/// The number of keys, small so that operations overlap.
const KEYS: u8 = 6;

/// One step of a random run.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Puts a key, with or without a compare.
    Put(u8, Guess),
    /// Puts a key that expires at this second.
    PutUntil(u8, u8),
    /// Deletes a key, present or not, with or without a compare.
    Delete(u8, Guess),
    /// Puts the first key and deletes the second, in one transaction.
    Both(u8, u8),
    /// Reads in chunks of this size at a past revision.
    Walk(u8, u8),
    /// Compacts to a revision between the oldest and the newest.
    Compact(u8),
    /// Expires up to this second.
    Expire(u8),
    /// Closes the store and opens it again.
    Reopen,
}

/// A compare that may hold or not.
#[derive(Clone, Copy, Debug)]
pub enum Guess {
    /// No compare.
    None,
    /// The key is absent.
    Absent,
    /// The key exists.
    Exists,
    /// The key is at its newest revision; for an absent key, the compare uses 1.
    Right,
    /// The key is at the store's newest revision.
    Newest,
}

impl Operation {
    /// The operation for these bytes. Every input is valid.
    pub const fn from_bytes([what, first, second]: [u8; 3]) -> Self {
        let guess = match second % 5 {
            0 => Guess::None,
            1 => Guess::Absent,
            2 => Guess::Exists,
            3 => Guess::Right,
            _ => Guess::Newest,
        };
        match what % 16 {
            0..=4 => Self::Put(first % KEYS, guess),
            5 => Self::PutUntil(first % KEYS, second % 30),
            6..=8 => Self::Delete(first % KEYS, guess),
            9 | 10 => Self::Both(first % KEYS, (first % KEYS + 1 + second % (KEYS - 1)) % KEYS),
            11 | 12 => Self::Walk(first, 1 + second % 4),
            13 => Self::Compact(first),
            14 => Self::Expire(first % 30),
            _ => Self::Reopen,
        }
    }
}

/// A fixed sequence. Engines add property tests with [`check_operations`].
pub async fn random_operations_match_the_model(factory: &mut impl Factory) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let operations: Vec<Operation> = (0..400)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let [a, b, c, ..] = state.to_be_bytes();
            Operation::from_bytes([a, b, c])
        })
        .collect();
    check_operations(factory, &operations).await;
}

/// Applies the operations to a new store and to the model. Compares the results of each step, and all content at the
/// end.
pub async fn check_operations(factory: &mut impl Factory, operations: &[Operation]) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    let model = Model {
        history: BTreeMap::from([(start, BTreeMap::new())]),
        events: Vec::new(),
        ends: BTreeMap::new(),
        oldest: start,
        writes: 0,
    };
    let mut run = Run { store, model };
    for operation in operations {
        match *operation {
            Operation::Reopen if factory.survives_reopening() => {
                // The old handle must be dropped before the store is reopened.
                let Run { store, model } = run;
                drop(store);
                run = Run { store: factory.open().await, model };
            }
            Operation::Reopen => {}
            other => run.step(other).await,
        }
        assert_eq!(run.store.current_revision().await.unwrap(), run.model.newest(), "after {operation:?}");
    }
    run.check_everything().await;
}

type Contents = BTreeMap<String, (Revision, String)>;

struct Model {
    /// The content at each revision.
    history: BTreeMap<Revision, Contents>,
    /// Every change: revision, key and value, `None` for a delete.
    events: Vec<(Revision, String, Option<String>)>,
    ends: BTreeMap<String, u8>,
    oldest: Revision,
    writes: usize,
}

impl Model {
    fn newest(&self) -> Revision {
        *self.history.keys().next_back().expect("it starts with one")
    }

    fn contents(&self) -> &Contents {
        &self.history[&self.newest()]
    }

    fn change(&mut self, revision: Revision, name: &str, value: Option<String>) {
        let mut contents = self.contents().clone();
        match &value {
            Some(value) => contents.insert(name.to_owned(), (revision, value.clone())),
            None => contents.remove(name),
        };
        self.ends.remove(name);
        self.history.insert(revision, contents);
        self.events.push((revision, name.to_owned(), value));
    }
}

struct Run {
    store: Arc<dyn Store>,
    model: Model,
}

impl Run {
    async fn step(&mut self, operation: Operation) {
        self.model.writes += 1;
        let value = format!("v{}", self.model.writes);
        match operation {
            Operation::Put(number, guess) => {
                let transaction = self.guessed(number, guess).put(key(&name(number)), value.clone());
                self.commit(transaction, &[(number, Some(value))]).await;
            }
            Operation::PutUntil(number, second) => {
                let transaction = put_until(&name(number), &value, second.into());
                self.commit(transaction, &[(number, Some(value))]).await;
                self.model.ends.insert(name(number), second);
            }
            Operation::Delete(number, guess) => {
                let transaction = self.guessed(number, guess).delete(key(&name(number)));
                self.commit(transaction, &[(number, None)]).await;
            }
            Operation::Both(put, deleted) => {
                let transaction =
                    Transaction::default().put(key(&name(put)), value.clone()).delete(key(&name(deleted)));
                self.commit(transaction, &[(put, Some(value)), (deleted, None)]).await;
            }
            Operation::Walk(which, size) => self.walk(which, size.into()).await,
            Operation::Compact(which) => self.compact(which).await,
            Operation::Expire(second) => self.expire(second).await,
            Operation::Reopen => {}
        }
    }

    fn guessed(&self, number: u8, guess: Guess) -> Transaction {
        let right = self.model.contents().get(&name(number)).map_or(Revision::new(1), |(revision, _)| *revision);
        let condition = match guess {
            Guess::None => return Transaction::default(),
            Guess::Absent => Condition::Absent,
            Guess::Exists => Condition::Exists,
            Guess::Right => Condition::At(right),
            Guess::Newest => Condition::At(self.model.newest()),
        };
        Transaction::default().when(key(&name(number)), condition)
    }

    async fn commit(&mut self, transaction: Transaction, changes: &[(u8, Option<String>)]) {
        let failing = transaction.compares.first().filter(|compare| {
            let current = self.model.contents().get(&relative(&compare.key));
            !compare.condition.holds(current.map(|(revision, _)| *revision))
        });
        let failing = failing.map(|compare| relative(&compare.key));
        match (self.store.commit(transaction).await, failing) {
            (Ok(committed), None) => {
                for (revision, (number, value)) in committed.revisions.into_iter().zip(changes) {
                    if value.is_some() || self.model.contents().contains_key(&name(*number)) {
                        self.model.change(revision, &name(*number), value.clone());
                    }
                }
            }
            (Err(CommitError::Compare { index: 0, current }), Some(failing)) => {
                let current = current.map(|found| (found.revision, text(&found.value)));
                assert_eq!(current.as_ref(), self.model.contents().get(&failing));
            }
            (outcome, expected) => panic!("{outcome:?}, though the failing key is {expected:?}"),
        }
    }

    async fn walk(&self, which: u8, size: usize) {
        let revisions: Vec<Revision> = self.model.history.range(self.model.oldest..).map(|(at, _)| *at).collect();
        let revision = revisions[usize::from(which) % revisions.len()];
        let mut found = Contents::new();
        let mut from = key("");
        loop {
            let to = StoreKey::prefix_end(PREFIX);
            let request = RangeRequest { from, to, revision: Some(revision), limit: Some(size) };
            let page = self.store.range(request).await.unwrap();
            for entry in &page.entries {
                let earlier = found.insert(relative(&entry.key), (entry.revision, text(&entry.value)));
                assert_eq!(earlier, None, "a key was repeated");
            }
            if !page.more {
                break;
            }
            from = StoreKey::new(format!("{}\0", page.entries.last().expect("more follows a full chunk").key));
        }
        assert_eq!(found, self.model.history[&revision], "at revision {revision} in chunks of {size}");
    }

    async fn compact(&mut self, which: u8) {
        let (oldest, newest) = (self.model.oldest.get(), self.model.newest().get());
        let to = Revision::new(oldest + (newest - oldest) * u64::from(which) / 255);
        self.store.compact(to).await.unwrap();
        self.model.oldest = to.max(self.model.oldest);
    }

    async fn expire(&mut self, second: u8) {
        let due: Vec<String> =
            self.model.ends.iter().filter(|(_, end)| **end <= second).map(|(name, _)| name.clone()).collect();
        let before = self.model.newest();
        assert_eq!(self.store.expire(at(second.into())).await.unwrap(), due.len());
        let after = self.store.current_revision().await.unwrap();
        let mut tail = self.store.tail(before).await.unwrap();
        let mut events = drain(&mut tail, before, after).await;
        assert!(events.iter().all(|event| event.value.is_none()));
        events.sort_by(|left, right| left.key.cmp(&right.key));
        assert_eq!(events.iter().map(|event| relative(&event.key)).collect::<Vec<_>>(), due);
        events.sort_by_key(|event| event.revision);
        for event in events {
            self.model.change(event.revision, &relative(&event.key), None);
        }
    }

    async fn check_everything(&self) {
        let store = &*self.store;
        let oldest = self.model.oldest;
        for (revision, contents) in self.model.history.range(oldest..) {
            let page = read(store, Some(*revision)).await;
            let found: Contents =
                page.entries.iter().map(|entry| (relative(&entry.key), (entry.revision, text(&entry.value)))).collect();
            assert_eq!(&found, contents, "at revision {revision}");
        }
        for (revision, _) in self.model.history.range(store.oldest_revision().await.unwrap()..oldest) {
            assert_compacted(store.range(everything(Some(*revision))).await, *revision, oldest);
        }
        let mut tail = store.tail(oldest).await.unwrap();
        let events = drain(&mut tail, oldest, self.model.newest()).await;
        let told: Vec<_> = events.iter().map(plain).collect();
        let expected: Vec<_> = self.model.events.iter().filter(|(at, ..)| *at > oldest).cloned().collect();
        assert_eq!(told, expected);
        for number in 0..KEYS {
            let found = store.get(&key(&name(number))).await.unwrap().map(|found| (found.revision, text(&found.value)));
            assert_eq!(found.as_ref(), self.model.contents().get(&name(number)));
        }
    }
}

fn plain(event: &StoreEvent) -> (Revision, String, Option<String>) {
    (event.revision, relative(&event.key), event.value.as_ref().map(text))
}

/// Names whose order differs between bytes and path segments.
fn name(number: u8) -> String {
    ["q-b/x", "q/x", "q/x-", "q", "Q/y", "é"][usize::from(number % KEYS)].to_owned()
}
