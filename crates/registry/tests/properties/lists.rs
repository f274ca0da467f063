//! Chunked lists: invariants 1 to 5, 7, 8, 10, 15 and 20.
//!
//! Several walks run at once, each with its own URL, selectors and chunk sizes, on any of the servers. Meanwhile
//! objects are written, history is compacted, and servers restart or receive writes late.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::TryStreamExt as _;
use keelson_meta::ApiError;
use keelson_meta::error::ExpiredKind;
use keelson_meta::options::GetOptions;
use keelson_registry::{Caller, ListItems};
use keelson_storage::continue_token::TokenRevision;
use keelson_storage::faulty::Fault;
use keelson_storage::{ContinueToken, StoreKey, Transaction};
use keelson_teststores::EtcdServer;
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Write),
    /// Many writes, so that caches with little room forget.
    Burst(u32),
    Compact(u64, bool),
    /// Compacts revisions that the caches have not received.
    Overtake,
    Restart,
    /// Delays the writes that a server receives, or ends the delay.
    Delay(usize, Duration),
    Begin(RequestPath, Selector, usize),
    /// The next chunk of one of the walks, with a limit or without.
    Chunk {
        walk: usize,
        server: usize,
        limit: Option<usize>,
    },
    /// A whole list at this many revisions before the newest.
    Whole(RequestPath, Selector, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<usize>(), any_write()).prop_map(|(server, write)| Step::Write(server, write)),
        1 => (10..80u32).prop_map(Step::Burst),
        1 => (0..60u64, any::<bool>()).prop_map(|(back, tell)| Step::Compact(back, tell)),
        1 => Just(Step::Overtake),
        1 => Just(Step::Restart),
        2 => (any::<usize>(), any_delay()).prop_map(|(server, delay)| Step::Delay(server, delay)),
        2 => (any_place(), any_selector(), 1..6usize).prop_map(|(place, selector, limit)| {
            Step::Begin(place, selector, limit)
        }),
        8 => (any::<usize>(), any::<usize>(), prop::option::weighted(0.9, 1..8usize))
            .prop_map(|(walk, server, limit)| Step::Chunk { walk, server, limit }),
        2 => (any_place(), any_selector(), 0..80u64).prop_map(|(place, selector, back)| {
            Step::Whole(place, selector, back)
        }),
    ]
}

/// A client that lists in chunks.
#[derive(Debug)]
struct Walk {
    place: RequestPath,
    selector: Selector,
    /// The revision of the first chunk, or of the first one after a 410; not known before it.
    revision: Option<u64>,
    /// No key below this one is still to come.
    start: String,
    token: Option<String>,
    done: bool,
}

impl Walk {
    fn new(place: RequestPath, selector: Selector) -> Self {
        Self { place, selector, revision: None, start: place.prefix(), token: None, done: false }
    }

    async fn chunk(&mut self, cluster: &Cluster, model: &Model, number: usize, limit: Option<usize>) {
        let server = cluster.server(number);
        let mut query = self.selector.query();
        query += &limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        query += &self.token.as_ref().map(|token| format!("&continue={token}")).unwrap_or_default();
        match list(server, self.place, &query).await {
            Ok(page) => {
                let newest = cluster.revision().await;
                self.check(model, &page, limit, newest);
                self.done = page.token.is_none();
                self.token = page.token;
            }
            Err(error) => self.expired(cluster, &error).await,
        }
    }

    fn check(&mut self, model: &Model, page: &Page, limit: Option<usize>, newest: u64) {
        match self.revision {
            Some(pinned) => assert_eq!(page.revision, pinned, "every chunk is at the revision of the first"),
            None => assert_eq!(page.revision, newest, "a list sees every write acknowledged before it"),
        }
        self.revision = Some(page.revision);
        let mut rest = model.listed(page.revision, self.place, &self.selector);
        rest.retain(|(key, _)| *key >= self.start);
        let Some(token) = &page.token else {
            assert_eq!(page.items, rest, "without a token the list is complete");
            assert_eq!(page.remaining, None);
            return;
        };
        assert_eq!(page.items, rest[..page.items.len()], "chunks are consecutive parts of the list");
        assert!(page.items.len() <= limit.expect("only limited lists have a token"));
        let left = rest.len() - page.items.len();
        match page.remaining {
            Some(remaining) => assert!(self.selector.is_everything() && remaining == left as u64),
            None => assert!(!self.selector.is_everything(), "an unselected list counts its rest"),
        }
        let next = format!("{}{}", self.place.prefix(), start_of(token));
        assert!(next > self.start, "a chunk without items gets ahead too");
        assert!(page.items.last().is_none_or(|(key, _)| *key < next));
        assert!(rest[page.items.len()..].iter().all(|(key, _)| *key >= next));
        self.start = next;
    }

    /// The revision of the token is compacted. The error has a token for the same place.
    async fn expired(&mut self, cluster: &Cluster, error: &ApiError) {
        let pinned = self.revision.unwrap_or_else(|| panic!("a list at the newest revision ended with {error}"));
        let ApiError::Expired { message: ExpiredKind::ContinueToken, continue_token: Some(token) } = error else {
            panic!("a continued list ended with {error}");
        };
        assert!(pinned < cluster.oldest().await, "revision {pinned} is readable");
        let rest = ContinueToken::decode(token).unwrap();
        assert_eq!(rest.revision, TokenRevision::Newest);
        assert_eq!(format!("{}{}", self.place.prefix(), rest.start), self.start, "it resumes at the same key");
        self.token = Some(token.clone());
        self.revision = None;
    }
}

fn start_of(token: &str) -> String {
    ContinueToken::decode(token).unwrap().start
}

async fn whole(cluster: &Cluster, model: &Model, place: RequestPath, selector: &Selector, back: u64) {
    let newest = cluster.revision().await;
    let revision = newest.saturating_sub(back).max(1);
    let at = format!("{}&resourceVersion={revision}", selector.query());
    match list(cluster.server(0), place, &format!("{at}&resourceVersionMatch=Exact")).await {
        Ok(page) => {
            assert_eq!((page.revision, page.token), (revision, None));
            assert_eq!(page.items, model.listed(revision, place, selector));
        }
        Err(ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None }) => {
            assert!(revision < cluster.oldest().await, "revision {revision} is readable");
        }
        Err(error) => panic!("a list at {revision} ended with {error}"),
    }
    for query in [format!("{at}&resourceVersionMatch=NotOlderThan"), at, selector.query() + "&resourceVersion=0"] {
        let page = list(cluster.server(0), place, &query).await.unwrap();
        assert!(query.ends_with("=0") || page.revision >= revision);
        assert_eq!(page.items, model.listed(page.revision, place, selector));
    }
}

async fn burst(cluster: &Cluster, model: &mut Model, writes: u32) {
    for number in 0..writes {
        let pod = Pod { app: Some((number % 3) as u8), node: None, number: 1000 + number };
        let key = format!("{}/b", NAMESPACES[number as usize % NAMESPACES.len()]);
        let action = if model.newest().contains_key(&key) { Action::Merge(pod) } else { Action::Create(pod) };
        cluster.write(model, 0, &Write { key, action }).await;
    }
}

async fn walk_through(engine: Engine, settings: Settings, steps: Vec<Step>) {
    let mut cluster = Cluster::start(engine, settings).await;
    let mut model = Model::default();
    let mut walks: Vec<Walk> = Vec::new();
    burst(&cluster, &mut model, 3).await;
    for step in steps {
        match step {
            Step::Write(server, write) => cluster.write(&mut model, server, &write).await,
            Step::Burst(writes) => burst(&cluster, &mut model, writes).await,
            Step::Compact(back, tell) => cluster.compact(back, tell).await,
            Step::Overtake => {
                burst(&cluster, &mut model, 2).await;
                cluster.compact_unheard().await;
            }
            Step::Restart => cluster.restart().await,
            Step::Delay(server, delay) => cluster.delay(server, delay),
            Step::Begin(place, selector, limit) => {
                let mut walk = Walk::new(place, selector);
                walk.chunk(&cluster, &model, 0, Some(limit)).await;
                walks.push(walk);
            }
            Step::Chunk { walk, server, limit } => {
                walks.retain(|walk| !walk.done);
                let count = walks.len().max(1);
                if let Some(walk) = walks.get_mut(walk % count) {
                    walk.chunk(&cluster, &model, server, limit).await;
                }
            }
            Step::Whole(place, selector, back) => whole(&cluster, &model, place, &selector, back).await,
        }
    }
    for mut walk in walks {
        let mut chunks = 0;
        while !walk.done {
            walk.chunk(&cluster, &model, chunks, Some(1 + chunks % 4)).await;
            chunks += 1;
            assert!(chunks < 200, "a walk ends");
        }
    }
}

proptest! {
    #![proptest_config(cases(160))]
    #[test]
    fn joined_chunks_equal_the_list_during_concurrent_writes(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..120),
    ) {
        run_paused(walk_through(Engine::Memory, settings, steps));
    }
}

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn joined_chunks_equal_the_list_on_disk(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..80),
    ) {
        run(walk_through(Engine::Sqlite, settings, steps));
    }
}

/// A walk on stores that servers reach over the network.
async fn walk_through_on(engine: Option<Engine>, settings: Settings, steps: Vec<Step>) {
    if let Some(engine) = engine {
        walk_through(engine, settings, steps).await;
    }
}

proptest! {
    #![proptest_config(cases(6))]
    #[test]
    fn joined_chunks_equal_the_list_on_postgresql(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        run(walk_through_on(Engine::postgres(), settings, steps));
    }

    #[test]
    fn joined_chunks_equal_the_list_on_etcd(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        static OWN: OnceLock<Option<EtcdServer>> = OnceLock::new();
        run(walk_through_on(Engine::etcd(&OWN), settings, steps));
    }
}

/// A list without a limit from the store's history is streamed, and a later error ends it in the middle.
#[test]
fn inv10_a_list_from_the_store_is_read_page_by_page() {
    run_paused(async {
        let mut cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let settings = Settings { history_bytes: 0, ..Settings::default() };
        let mut model = Model::default();
        for number in 0..700 {
            let pod = Pod { app: Some((number % 2) as u8), node: None, number };
            cluster.write(&mut model, 0, &Write { key: format!("q/p{number:03}"), action: Action::Create(pod) }).await;
        }
        let (way, server) = cluster.add_server(&settings).await;
        let then = cluster.revision().await;
        burst(&cluster, &mut model, 150).await;
        cluster.caught_up().await;
        for selector in ["", "&labelSelector=app=a1"] {
            let past = format!("resourceVersion={then}&resourceVersionMatch=Exact{selector}");
            let page = server.list(&pods(&server, None), &Caller::server(), &options(&past)).await.unwrap();
            let ListItems::History(mut items) = page.items else { panic!("the cache still knows {then}") };
            let mut sizes = Vec::new();
            while let Some(entries) = items.pages.try_next().await.unwrap() {
                sizes.push(entries.len());
            }
            let all = if selector.is_empty() { 700 } else { 350 };
            assert!(sizes.len() == 2 && sizes.iter().sum::<usize>() == all, "{sizes:?}");

            let page = server.list(&pods(&server, None), &Caller::server(), &options(&past)).await.unwrap();
            way.set_calls(Fault::Error);
            assert_eq!(page.items.into_entries().await.err().unwrap().code(), 503);
            let refused = server.list(&pods(&server, None), &Caller::server(), &options(&past)).await.err().unwrap();
            assert_eq!(refused.code(), 503, "what fails at once is told at once");
            way.set_calls(Fault::None);
        }
    });
}

/// A list is pointers into what the cache holds: an unselected one is a range of it, a selected one shares its entries.
#[test]
fn a_list_holds_no_copy_of_an_object() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        burst(&cluster, &mut model, 90).await;
        let server = cluster.server(0);
        for query in ["", "limit=2", "resourceVersion=0"] {
            let page = server.list(&pods(server, None), &Caller::server(), &options(query)).await.unwrap();
            assert!(matches!(page.items, ListItems::Range { .. }), "{query}");
        }
        let page =
            server.list(&pods(server, None), &Caller::server(), &options("labelSelector=all&limit=2")).await.unwrap();
        let ListItems::Chosen(entries) = page.items else { panic!("a selected list is chosen entry by entry") };
        let collection = server.cache().collection(&keelson_builtin::key_prefix("", "pods").unwrap()).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(entries.iter().all(|entry| Arc::ptr_eq(entry, &collection.get(&entry.key).unwrap())));
    });
}

/// A list from the store's history leaves out values that are no objects, as the cache does.
#[test]
fn lists_from_the_store_equal_lists_from_the_cache() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings { history_bytes: 0, ..Settings::default() }).await;
        let mut model = Model::default();
        burst(&cluster, &mut model, 30).await;
        let server = cluster.server(0);
        let prefix = keelson_builtin::key_prefix("", "pods").unwrap();
        let broken = Transaction::default().put(StoreKey::new(format!("{prefix}q/0-broken")), "not an object");
        cluster.store().commit(broken).await.unwrap();
        let now = list(server, RequestPath::Everywhere, "").await.unwrap();
        burst(&cluster, &mut model, 150).await;

        let past = format!("resourceVersion={}&resourceVersionMatch=Exact", now.revision);
        let from_store = server.counters().lists_from_store();
        let whole = list(server, RequestPath::Everywhere, &past).await.unwrap();
        assert_eq!(whole.items, now.items);
        let chunk = list(server, RequestPath::Everywhere, &format!("{past}&limit=1")).await.unwrap();
        assert_eq!(chunk.items, now.items[..1]);
        assert_eq!(server.counters().lists_from_store(), from_store + 2, "the cache has forgotten the revision");
    });
}

/// Discovery has componentstatuses as a readable resource. This server has no components, so the list is empty.
#[test]
fn collections_without_objects_are_empty() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let (server, statuses) = (cluster.server(0), target("componentstatuses", None));
        let page = server.list(&statuses, &Caller::server(), &options("limit=5")).await.unwrap();
        assert_eq!((page.revision.get(), page.continue_token), (cluster.revision().await, None));
        assert!(page.items.into_entries().await.unwrap().is_empty());
        let missing =
            server.get(&statuses, "scheduler", &Caller::server(), &GetOptions::default()).await.err().unwrap();
        assert_eq!(missing.to_string(), "componentstatuses \"scheduler\" not found");
        let bindings = target("bindings", Some("q"));
        assert_eq!(server.list(&bindings, &Caller::server(), &options("")).await.err().unwrap().code(), 405);
    });
}

/// A selection that finds nothing within the scan limit ends the chunk with no items and a token. The list still
/// completes.
#[test]
fn a_scan_that_finds_nothing_ends_a_chunk_without_items() {
    run(async {
        let cluster = Cluster::start(Engine::Memory, Settings { scan: 2, ..Settings::default() }).await;
        let mut model = Model::default();
        for name in ["a", "b", "x", "z"] {
            for namespace in NAMESPACES {
                let pod = Pod { app: (name == "z").then_some(1), node: None, number: 0 };
                let key = format!("{namespace}/{name}");
                cluster.write(&mut model, 0, &Write { key, action: Action::Create(pod) }).await;
            }
        }
        let (mut chunks, mut empty, mut found, mut token) = (0, 0, Vec::new(), String::new());
        loop {
            let query = format!("labelSelector=app&limit=5{token}");
            let page = list(cluster.server(0), RequestPath::Everywhere, &query).await.unwrap();
            chunks += 1;
            empty += usize::from(page.items.is_empty());
            found.extend(page.items.into_iter().map(|(key, _)| key));
            let Some(next) = page.token else { break };
            token = format!("&continue={next}");
        }
        assert_eq!(found, ["q-b/z", "q/z", "q1/z"]);
        assert!(chunks >= 6 && empty >= 3, "{chunks} chunks, {empty} of them empty");
    });
}
