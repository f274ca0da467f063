//! Tests of chunked lists that get every chunk from another server.
//!
//! A continue token must mean the same on all servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use keelson_testkit::Raw;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::engines::{Engine, on_every_engine};
use crate::{CONFIG_MAPS, Progress, items, name, revision, write};

pub(crate) const OBJECTS: usize = 20_000;
const CHUNK: usize = 500;
/// The number of chunks between two restarts of servers.
const RESTART_EVERY: usize = 12;

on_every_engine!(
    inv01_a_walk_that_changes_server_at_each_chunk_is_one_snapshot,
    inv07_a_walk_across_a_compaction_goes_on_behind_what_it_has_on_any_server,
    a_token_of_a_faster_server_is_waited_for,
);

/// A client that lists in chunks.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) revision: Option<u64>,
    pub(crate) found: Vec<Value>,
    token: String,
}

impl Walk {
    /// Reads the next chunk. Returns true if the list is complete.
    async fn chunk(&mut self, raw: &Raw) -> bool {
        self.try_chunk(raw).await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Reads the next chunk from a server that may be gone. An error changes nothing.
    pub(crate) async fn try_chunk(&mut self, raw: &Raw) -> anyhow::Result<bool> {
        let next = if self.token.is_empty() { String::new() } else { format!("&continue={}", self.token) };
        let page = raw.get(format!("{CONFIG_MAPS}?limit={CHUNK}{next}")).try_send().await?.expect(200).json();
        let pinned = *self.revision.get_or_insert_with(|| revision(&page));
        assert_eq!(revision(&page), pinned, "every chunk is at the revision of the first");
        assert!(items(&page).len() <= CHUNK);
        self.found.extend_from_slice(items(&page));
        self.token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        Ok(self.token.is_empty())
    }
}

pub(crate) fn keys(objects: &[Value]) -> Vec<(String, u64)> {
    objects.iter().map(|object| (name(object).to_owned(), revision(object))).collect()
}

async fn inv01_a_walk_that_changes_server_at_each_chunk_is_one_snapshot(engine: Engine) {
    let cluster = Arc::new(Cluster::filled(engine, OBJECTS).await);
    let progress = Arc::new(Progress::default());
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (servers, progress) = (cluster.clients(), progress.clone());
            tokio::spawn(async move { write(&servers, &progress, writer).await })
        })
        .collect();
    let (mut walk, mut chunks, mut restarts) = (Walk::default(), 0, 0);
    while !walk.chunk(&cluster.raw(chunks)).await {
        chunks += 1;
        if chunks % RESTART_EVERY == 0 {
            cluster.restart(restarts).await;
            restarts += 1;
        }
    }
    let at = walk.revision.unwrap();
    assert!(restarts >= 3 && chunks >= OBJECTS / CHUNK - 1);
    assert_eq!(keys(&walk.found), cluster.stored_at(at).await, "the walk is what the store holds at {at}");
    let exact = format!("{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=Exact");
    let whole = cluster.raw(1).get(exact).await.expect(200).json();
    assert!(walk.found == items(&whole), "the walk is the whole list, byte for byte");
    progress.done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let written = progress.acknowledged.load(Ordering::SeqCst);
    assert!(written > 50, "there were writers: {written}");
}

async fn inv07_a_walk_across_a_compaction_goes_on_behind_what_it_has_on_any_server(engine: Engine) {
    let cluster = Cluster::filled(engine, 3000).await;
    let mut walk = Walk::default();
    for chunk in 0..3 {
        assert!(!walk.chunk(&cluster.raw(chunk)).await);
    }
    let last = name(walk.found.last().unwrap()).to_owned();
    // One object is deleted before the position of the list and one is created, and the same after the position.
    for (gone, new) in [("00-object-00000", "00-new"), ("99-object-00099", "99-new")] {
        cluster.raw(0).delete(format!("{CONFIG_MAPS}/{gone}")).await.expect(200);
        cluster.raw(1).post(CONFIG_MAPS, &crate::config_map(new, 0)).await.expect(201);
    }
    let newest = cluster.store.current_revision().await.unwrap();
    cluster.store.compact(newest).await.unwrap();
    // A running server may still have the snapshot in memory; a restarted one does not.
    cluster.restart(2).await;
    let path = format!("{CONFIG_MAPS}?limit={CHUNK}&continue={}", walk.token);
    let expired = cluster.raw(2).get(path).await.expect(410).json();
    assert_eq!(expired["reason"], "Expired");
    let mut rest = Walk { token: expired["metadata"]["continue"].as_str().unwrap().to_owned(), ..Walk::default() };
    let mut chunks = 0;
    while !rest.chunk(&cluster.raw(chunks)).await {
        chunks += 1;
    }
    let at = rest.revision.unwrap();
    assert!(at >= newest.get());
    let mut expected = cluster.stored_at(at).await;
    expected.retain(|(name, _)| *name > last);
    assert_eq!(keys(&rest.found), expected, "the rest begins behind the last object of the walk");
    assert!(expected.iter().any(|(name, _)| name == "99-new"));
}

/// The first chunk comes from a server that has seen a write that the other servers have not.
async fn a_token_of_a_faster_server_is_waited_for(engine: Engine) {
    let cluster = Cluster::filled(engine, 1000).await;
    for slow in [1, 2] {
        cluster.servers[slow].way.set_tails(keelson_storage::faulty::Fault::Hang);
    }
    cluster.raw(0).post(CONFIG_MAPS, &crate::config_map("50-new", 0)).await.expect(201);
    let mut walk = Walk::default();
    assert!(!walk.chunk(&cluster.raw(0)).await);
    let at = walk.revision.unwrap();
    let path = format!("{CONFIG_MAPS}?limit={CHUNK}&continue={}", walk.token);
    let behind = cluster.raw(1).get(path).await.expect(504).json();
    assert_eq!(behind["reason"], "Timeout", "{behind}");
    // A server that catches up while the request waits answers it.
    let mended = async {
        tokio::task::yield_now().await;
        cluster.servers[2].way.set_tails(keelson_storage::faulty::Fault::None);
    };
    let raw = cluster.raw(2);
    let (done, ()) = tokio::join!(walk.chunk(&raw), mended);
    assert!(!done);
    while !walk.chunk(&cluster.raw(0)).await {}
    assert_eq!(keys(&walk.found), cluster.stored_at(at).await);
}
