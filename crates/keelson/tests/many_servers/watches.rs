//! Tests of watches that resume on another server.
//!
//! Revisions belong to the store, so no event may be repeated or missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::Store;
use keelson_testkit::Raw;
use serde_json::Value;

use crate::cluster::{Cluster, SERVERS, stored_at};
use crate::engines::{Engine, on_every_engine};
use crate::{CONFIG_MAPS, Progress, STORED, items, name, next_of, revision, write};

on_every_engine!(
    inv11_watches_that_change_server_lose_and_repeat_nothing,
    a_watch_from_a_revision_that_its_server_has_not_seen_begins_behind_it,
);

/// An event: its revision, type and object name.
pub(crate) type WriterResults = (u64, String, String);

/// A client that copies the list: it lists, and then watches on one server after the other.
pub(crate) struct Watcher {
    server: usize,
    pub(crate) begun: u64,
    seen: u64,
    pub(crate) copy: BTreeMap<String, u64>,
    pub(crate) told: Vec<WriterResults>,
    moves: usize,
}

impl Watcher {
    pub(crate) async fn begin(servers: &[Raw], server: usize) -> Self {
        let list = servers[server % servers.len()].get(CONFIG_MAPS).await.expect(200).json();
        let copy = items(&list).iter().map(|object| (name(object).to_owned(), revision(object))).collect();
        let begun = revision(&list);
        Self { server, begun, seen: begun, copy, told: Vec::new(), moves: 0 }
    }

    /// Watches until `last` is created. It changes the server when its server ends, or after this number of events.
    pub(crate) async fn follow(mut self, servers: Vec<Raw>, patience: usize, last: &str) -> Self {
        loop {
            let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.seen);
            let Ok(mut stream) = servers[self.server % servers.len()].get(path).try_stream().await else {
                self.next_server();
                continue;
            };
            assert_eq!(stream.status, 200);
            for _ in 0..patience {
                let Some(event) = stream.next_json().await else { break };
                if self.apply(&event) == Some(last) {
                    return self;
                }
            }
            self.next_server();
        }
    }

    fn next_server(&mut self) {
        self.server += 1;
        self.moves += 1;
    }

    /// Applies an event. Returns the name of a created object.
    fn apply<'a>(&mut self, event: &'a Value) -> Option<&'a str> {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap();
        assert_ne!(kind, "ERROR", "nobody is told 410: {event}");
        let at = revision(object);
        assert!(at > self.seen || kind == "BOOKMARK", "{at} after {}", self.seen);
        self.seen = self.seen.max(at);
        if kind == "BOOKMARK" {
            return None;
        }
        let of = name(object);
        match kind {
            "ADDED" => assert!(self.copy.insert(of.to_owned(), at).is_none(), "{event}"),
            "MODIFIED" => assert!(self.copy.insert(of.to_owned(), at).is_some(), "{event}"),
            _ => assert!(self.copy.remove(of).is_some(), "{event}"),
        }
        self.told.push((at, kind.to_owned(), of.to_owned()));
        (kind == "ADDED").then_some(of)
    }
}

/// The events after a revision, from the store's own history.
pub(crate) async fn history(store: &dyn Store, after: u64) -> Vec<WriterResults> {
    let newest = store.current_revision().await.unwrap();
    let mut known: BTreeMap<String, u64> = stored_at(store, after).await.into_iter().collect();
    let mut tail = store.tail(Revision::new(after)).await.unwrap();
    let (mut told, mut reached) = (Vec::new(), Revision::new(after));
    while reached < newest {
        let batch = tail.next().await.unwrap().unwrap();
        reached = batch.watermark;
        for event in batch.events {
            let Some(name) = event.key.as_str().strip_prefix(STORED) else { continue };
            let at = event.revision.get();
            let before = if event.value.is_some() { known.insert(name.to_owned(), at) } else { known.remove(name) };
            let kind = match (before, event.value) {
                (None, Some(_)) => "ADDED",
                (Some(_), Some(_)) => "MODIFIED",
                (_, None) => "DELETED",
            };
            told.push((at, kind.to_owned(), name.to_owned()));
        }
    }
    told
}

async fn inv11_watches_that_change_server_lose_and_repeat_nothing(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    let progress = Arc::new(Progress::default());
    let mut watchers = Vec::new();
    for number in 0..6 {
        let watcher = Watcher::begin(&cluster.clients(), number).await;
        // Some change servers often, some only when their server ends.
        let patience = if number < 3 { 7 + number } else { usize::MAX };
        watchers.push(tokio::spawn(watcher.follow(cluster.clients(), patience, "last")));
    }
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (servers, progress) = (cluster.clients(), progress.clone());
            tokio::spawn(async move { write(&servers, &progress, writer).await })
        })
        .collect();
    for round in 0..2 * SERVERS {
        let enough = 60 * (round as u64 + 1);
        let progress = &progress;
        crate::until("writes", || async { progress.acknowledged.load(Ordering::SeqCst) >= enough }).await;
        cluster.restart(round).await;
    }
    progress.done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let last = cluster.raw(0).post(CONFIG_MAPS, &crate::config_map("last", 0)).await.expect(201).json();
    let last = revision(&last);
    for watcher in watchers {
        let watcher = watcher.await.unwrap();
        assert!(watcher.moves > 0);
        let mut expected = history(&*cluster.store, watcher.begun).await;
        expected.retain(|(at, ..)| *at <= last);
        assert_eq!(watcher.told, expected);
        assert_eq!(watcher.copy.into_iter().collect::<Vec<_>>(), cluster.stored_at(last).await);
    }
}

async fn a_watch_from_a_revision_that_its_server_has_not_seen_begins_behind_it(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    cluster.servers[1].way.set_tails(keelson_storage::faulty::Fault::Hang);
    let first = cluster.raw(0).post(CONFIG_MAPS, &crate::config_map("first", 0)).await.expect(201).json();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&first));
    let mut stream = cluster.raw(1).get(path).stream().await;
    cluster.raw(0).post(CONFIG_MAPS, &crate::config_map("second", 0)).await.expect(201);
    cluster.servers[1].way.set_tails(keelson_storage::faulty::Fault::None);
    let event = next_of(&mut stream, "second").await;
    assert_eq!(event["type"], "ADDED");
}
