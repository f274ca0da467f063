//! Readers and writers at the same time on two servers: invariants 11, 12, 15 and 16. Collections are added and removed
//! meanwhile.
//!
//! The model is built afterwards from the store's own log, which the servers' caches do not make. Every list and every
//! watch must fit into that one history.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::StreamExt as _;
use futures::future::join_all;
use keelson_cache::CollectionSpec;
use keelson_codec::StoredObject;
use keelson_meta::random::SeededRandom;
use keelson_meta::{Random, Revision};
use keelson_registry::{Caller, Registry, WatchOutput, WatchStream};
use keelson_storage::Store;
use keelson_teststores::EtcdServer;

use crate::cluster::*;
use crate::model::*;
use crate::watches::read_frame;

const WRITERS: usize = 4;
const WRITES: usize = 60;
/// The number of collections that come and go, and of those in one step.
const COLLECTIONS: usize = 3000;
const COLLECTIONS_AT_ONCE: usize = 500;
const ROOT: &str = "/registry/pods/";

/// The state that the tasks share.
#[derive(Default)]
struct Progress {
    /// The newest revision acknowledged to a client.
    acknowledged: AtomicU64,
    done: AtomicBool,
}

fn random_write(random: &SeededRandom) -> Write {
    let draw = |below: u64| random.u64() % below;
    let pod = draw(6);
    let key = format!("{}/p{pod}", NAMESPACES[draw(3) as usize]);
    let some = |value: u64| (value > 0).then_some(value as u8);
    // A pod stays on its node when it is created again.
    let pod = Pod { app: some(draw(3)), node: some(pod % 3), number: draw(1000) as u32 };
    let action = match draw(10) {
        0..4 => Action::Create(pod),
        4..6 => Action::Update(pod),
        6..8 => Action::Merge(pod),
        _ => Action::Delete,
    };
    Write { key, action }
}

/// Writes at random; returns what was acknowledged with a revision.
async fn write(server: Arc<Registry>, progress: Arc<Progress>, seed: u64) -> Vec<(u64, Write)> {
    let random = SeededRandom::new(seed);
    let mut acknowledged = Vec::new();
    for _ in 0..WRITES {
        let write = random_write(&random);
        if let Ok(Some(revision)) = write.apply(&server, false).await {
            progress.acknowledged.fetch_max(revision, Ordering::SeqCst);
            acknowledged.push((revision, write));
        }
    }
    acknowledged
}

/// Walks over the list in chunks until the writers are done; returns each walk's revision and objects.
async fn walk(server: Arc<Registry>, progress: Arc<Progress>, place: RequestPath) -> Vec<(u64, Vec<(String, Stored)>)> {
    let mut walks = Vec::new();
    loop {
        let last = progress.done.load(Ordering::SeqCst);
        let acknowledged = progress.acknowledged.load(Ordering::SeqCst);
        let mut page = list(&server, place, "limit=4").await.unwrap();
        assert!(page.revision >= acknowledged, "a read sees what was acknowledged before it");
        let mut items = std::mem::take(&mut page.items);
        while let Some(token) = &page.token {
            let next = list(&server, place, &format!("limit=4&continue={token}")).await.unwrap();
            assert_eq!(next.revision, page.revision);
            page = next;
            items.append(&mut page.items);
        }
        walks.push((page.revision, items));
        if last {
            return walks;
        }
        tokio::task::yield_now().await;
    }
}

/// Adds thousands of collections to the server's cache and removes them again, until the writers are done and at least
/// once. Other collections must not notice.
async fn come_and_go(server: Arc<Registry>, progress: Arc<Progress>) {
    let spec = |number| CollectionSpec {
        prefix: format!("/registry/example.com/things{number}/"),
        fields: Vec::new(),
        dispatch: None,
        complete: None,
        typed_items: false,
    };
    let before = server.cache().stats().collections;
    loop {
        let last = progress.done.load(Ordering::SeqCst);
        let numbers: Vec<usize> = (0..COLLECTIONS).collect();
        for some in numbers.chunks(COLLECTIONS_AT_ONCE) {
            let added = server.cache().add(some.iter().copied().map(spec).collect()).await.unwrap();
            assert!(added.iter().all(|collection| collection.is_empty()));
        }
        assert_eq!(server.cache().stats().collections, before + COLLECTIONS);
        let prefixes: Vec<String> = numbers.into_iter().map(|number| spec(number).prefix).collect();
        server.cache().remove(&prefixes).await;
        assert_eq!(server.cache().stats().collections, before);
        if last {
            return;
        }
    }
}

/// Lists, and watches from there on.
async fn begin(server: &Registry, place: RequestPath) -> (u64, WatchStream) {
    let begun = list(server, place, "").await.unwrap().revision;
    let query = format!("&resourceVersion={begun}&allowWatchBookmarks=true");
    (begun, server.watch(&pods(server, place.namespace()), &Caller::server(), &watch_options(&query)).await.unwrap())
}

/// The events of a watcher until the last pod of each of its namespaces is created.
async fn follow(mut stream: WatchStream, place: RequestPath) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    let mut ends = if place == RequestPath::Everywhere { NAMESPACES.len() } else { 1 };
    while ends > 0 {
        for output in stream.next().await.expect("the watch lasts") {
            match output {
                WatchOutput::Event(kind, event) => told.push(read_frame(kind, &event.frame(kind))),
                WatchOutput::Initial(_) | WatchOutput::Bookmark { .. } => panic!("nothing of the kind is due"),
                WatchOutput::Error(error) => panic!("{error}"),
            }
            ends -= usize::from(told.last().is_some_and(|told| told.key.ends_with("/last")));
        }
    }
    told
}

/// The history as the store's log has it.
async fn history(store: &dyn Store) -> Model {
    let newest = store.current_revision().await.unwrap();
    let mut tail = store.tail(store.oldest_revision().await.unwrap()).await.unwrap();
    let mut model = Model::default();
    let mut reached = Revision::ZERO;
    while reached < newest {
        let batch = tail.next().await.unwrap().unwrap();
        reached = batch.watermark;
        for event in batch.events {
            let Some(key) = event.key.as_str().strip_prefix(ROOT) else { continue };
            let pod = event.value.map(|value| Pod::read(&StoredObject::parse(value).unwrap().decode(event.revision)));
            model.record(event.revision.get(), key, pod);
        }
    }
    model
}

async fn readers_beside_writers(engine: Engine) {
    let cluster = Cluster::start(engine, Settings { servers: 2, ..Settings::default() }).await;
    let progress = Arc::new(Progress::default());
    let places = [RequestPath::Everywhere, RequestPath::Namespace("q"), RequestPath::Namespace("q-b")];
    let mut watchers = Vec::new();
    for (number, place) in places.iter().cycle().take(6).enumerate() {
        let (begun, stream) = begin(cluster.server(number), *place).await;
        watchers.push((begun, *place, tokio::spawn(follow(stream, *place))));
    }
    let walkers: Vec<_> = places
        .into_iter()
        .enumerate()
        .map(|(number, place)| tokio::spawn(walk(cluster.server(number).clone(), progress.clone(), place)))
        .collect();
    let writers = (0..WRITERS)
        .map(|number| tokio::spawn(write(cluster.server(number).clone(), progress.clone(), 7 + number as u64)));
    let coming: Vec<_> =
        (0..2).map(|number| tokio::spawn(come_and_go(cluster.server(number).clone(), progress.clone()))).collect();
    let acknowledged: Vec<_> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    for namespace in NAMESPACES {
        let pod = Pod { app: None, node: None, number: 0 };
        let last = Write { key: format!("{namespace}/last"), action: Action::Create(pod) };
        last.apply(cluster.server(0), false).await.unwrap();
    }
    progress.done.store(true, Ordering::SeqCst);

    join_all(coming).await.into_iter().for_each(Result::unwrap);
    let model = history(&**cluster.store()).await;
    for (revision, write) in acknowledged {
        let (Action::Create(pod) | Action::Update(pod) | Action::Merge(pod)) = &write.action else { continue };
        let written = model.at(revision).get(&write.key).cloned();
        assert_eq!(written, Some(Stored { revision, pod: pod.clone() }), "{write:?}");
    }
    for (walker, place) in join_all(walkers).await.into_iter().zip(places) {
        for (revision, items) in walker.unwrap() {
            assert_eq!(items, model.listed(revision, place, &Selector::default()), "{place:?} at {revision}");
        }
    }
    for (begun, place, watcher) in watchers {
        assert_eq!(watcher.await.unwrap(), model.told(begun, place, &Selector::default()));
    }
}

#[test]
fn lists_and_watches_beside_writers_are_all_of_one_history() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(readers_beside_writers(Engine::Memory));
    runtime.block_on(readers_beside_writers(Engine::Sqlite));
    if let Some(engine) = Engine::postgres() {
        runtime.block_on(readers_beside_writers(engine));
    }
    static OWN: OnceLock<Option<EtcdServer>> = OnceLock::new();
    if let Some(engine) = Engine::etcd(&OWN) {
        runtime.block_on(readers_beside_writers(engine));
    }
}
