//! Clients that write until the server is gone, and record its acknowledgements.
//!
//! The writers never retry, so that each response belongs to one write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keelson_meta::Random;
use keelson_meta::random::SeededRandom;
use keelson_testkit::{Answer, Raw};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{CUSTOM_MAPS, items, name, revision};

const CLIENTS: usize = 12;

/// The state of an object, as far as writers care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterState {
    /// The resourceVersion of the write; `None` when the server ended before it responded.
    pub(crate) revision: Option<u64>,
    pub(crate) number: u64,
}

/// The clients' knowledge of the objects after the server is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    /// The last acknowledged state, without deleted objects.
    pub(crate) acknowledged: BTreeMap<String, WriterState>,
    /// Writes without an answer, which may have happened or not. `None` is a deletion.
    pub(crate) asked: BTreeMap<String, Option<WriterState>>,
    /// The greatest acknowledged revision.
    pub(crate) newest: u64,
}

/// Running clients.
pub(crate) struct Writers {
    clients: Vec<JoinHandle<Knowledge>>,
    acknowledgements: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
}

impl Writers {
    /// Starts clients on objects of their own in a collection that has the `known` ones.
    pub(crate) fn start(raw: &Raw, path: &'static str, known: &Knowledge, seed: u64) -> Self {
        let (acknowledgements, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let clients = (0..CLIENTS).map(|number| {
            let own = format!("c{number}-");
            let mine = known.acknowledged.iter().filter(|(name, _)| name.starts_with(&own));
            let client = Client {
                raw: raw.clone(),
                path,
                random: SeededRandom::new(seed + number as u64),
                knowledge: Knowledge {
                    acknowledged: mine.map(|(name, written)| (name.clone(), *written)).collect(),
                    ..Knowledge::default()
                },
                own,
            };
            tokio::spawn(client.run(acknowledgements.clone(), enough.clone()))
        });
        Self { clients: clients.collect(), acknowledgements, enough }
    }

    /// Waits until this many writes have been acknowledged.
    pub(crate) async fn acknowledged(&self, count: usize) {
        while self.acknowledgements.load(Ordering::SeqCst) < count {
            assert!(!self.clients.iter().all(JoinHandle::is_finished), "the clients go on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets each client end after its current write, unless the server ends it first.
    pub(crate) async fn finish(self) -> Knowledge {
        self.enough.store(true, Ordering::SeqCst);
        let mut all = Knowledge::default();
        for client in join_all(self.clients).await {
            let knowledge = client.unwrap();
            all.acknowledged.extend(knowledge.acknowledged);
            all.asked.extend(knowledge.asked);
            all.newest = all.newest.max(knowledge.newest);
        }
        all
    }
}

struct Client {
    raw: Raw,
    /// The collection.
    path: &'static str,
    random: SeededRandom,
    knowledge: Knowledge,
    /// The prefix of its objects' names.
    own: String,
}

impl Client {
    async fn run(mut self, acknowledgements: Arc<AtomicUsize>, enough: Arc<AtomicBool>) -> Knowledge {
        while !enough.load(Ordering::SeqCst) && self.write().await {
            acknowledgements.fetch_add(1, Ordering::SeqCst);
        }
        self.knowledge
    }

    /// Creates, replaces or deletes one of its objects. Returns true if the server answered.
    async fn write(&mut self) -> bool {
        let name = format!("{}{}", self.own, self.random.u64() % 12);
        let known = self.knowledge.acknowledged.get(&name).copied();
        let number = self.random.u64() % 1_000_000;
        let mut body = json!({
            "metadata": {"name": name, "labels": {"odd": (number % 2 == 1).to_string()}},
            "data": {"number": number.to_string(), "ballast": "x".repeat((number % 5000) as usize)},
        });
        let path = format!("{}/{name}", self.path);
        if self.path == CUSTOM_MAPS
            && let Some(revision) = known.and_then(|known| known.revision)
        {
            // Replacing a custom resource needs its resourceVersion.
            body["metadata"]["resourceVersion"] = json!(revision.to_string());
        }
        let (call, asked) = match (known.is_some(), self.random.u64() % 4) {
            (false, _) => (self.raw.post(self.path, &body), Some(number)),
            (true, 0) => (self.raw.delete(path), None),
            (true, _) => (self.raw.put(path, &body), Some(number)),
        };
        let asked = asked.map(|number| WriterState { revision: None, number });
        match call.try_send().await {
            Ok(answer) => self.note(name, asked, &answer),
            Err(_) => {
                self.knowledge.asked.insert(name, asked);
                return false;
            }
        }
        true
    }

    fn note(&mut self, name: String, asked: Option<WriterState>, answer: &Answer) {
        assert!(answer.status < 300, "{name}: {}", answer.text());
        let Some(asked) = asked else {
            self.knowledge.acknowledged.remove(&name);
            return;
        };
        let revision = revision(&answer.json());
        self.knowledge.newest = self.knowledge.newest.max(revision);
        self.knowledge.acknowledged.insert(name, WriterState { revision: Some(revision), ..asked });
    }
}

impl Knowledge {
    /// Checks that the server has the acknowledged objects with their resourceVersions, and unanswered writes
    /// completely or not at all. Returns the state found.
    pub(crate) fn check(&self, list: &Value) -> Self {
        let found: BTreeMap<String, WriterState> = read(list);
        let names = found.keys().chain(self.acknowledged.keys()).chain(self.asked.keys());
        for name in names {
            let (found, before) = (found.get(name), self.acknowledged.get(name));
            if found == before {
                continue;
            }
            let asked = self.asked.get(name).unwrap_or_else(|| panic!("{name}: {found:?} instead of {before:?}"));
            assert_eq!(found.map(|it| it.number), asked.map(|it| it.number), "{name} was {before:?}");
        }
        Self { newest: self.newest.max(revision(list)), acknowledged: found, asked: BTreeMap::new() }
    }
}

/// The writers' objects in a list. Each must be complete.
pub(crate) fn read(list: &Value) -> BTreeMap<String, WriterState> {
    let own = items(list).iter().filter(|object| name(object).starts_with('c'));
    own.map(|object| {
        let number: u64 = object["data"]["number"].as_str().unwrap().parse().unwrap();
        assert_eq!(object["data"]["ballast"].as_str().unwrap().len() as u64, number % 5000, "an object is whole");
        (name(object).to_owned(), WriterState { revision: Some(revision(object)), number })
    })
    .collect()
}
