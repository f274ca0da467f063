//! Queries: sorted, counted and paged lists and groups, against a plain model that sorts and counts.
//!
//! Several walks run at once, each with its own URL, selectors, order and chunk sizes, on any of the servers. Meanwhile
//! objects are written, history is compacted, and servers restart or receive writes late. Invariants 1 to 7 and 15, in
//! any order.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use keelson_meta::ApiError;
use keelson_meta::error::ExpiredKind;
use keelson_meta::json::Value;
use keelson_meta::options::Query as Pairs;
use keelson_query::Query;
use keelson_registry::{Caller, Groups, QueryPage, Registry};
use keelson_teststores::EtcdServer;
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

/// The order of a list, each with its counterpart in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Node,
    App,
    Number,
    Revision,
}

/// The condition of a query, each with its counterpart in the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    All,
    /// By a filter.
    NumberAbove(u32),
    /// In CEL.
    NumberBelow(u32),
    /// By a filter.
    OnNode,
    /// By a filter, and an index.
    NumberIs(u32),
}

pub(crate) fn any_choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        3 => Just(Choice::All),
        1 => (0..4u32).prop_map(Choice::NumberAbove),
        1 => (0..4u32).prop_map(Choice::NumberBelow),
        1 => Just(Choice::OnNode),
        2 => (0..4u32).prop_map(Choice::NumberIs),
    ]
}

impl Choice {
    /// As a query parameter with a `&` before it, or nothing.
    pub(crate) fn query(self) -> String {
        match self {
            Self::All => String::new(),
            Self::NumberAbove(number) => format!("&keelson.io/filter=metadata.annotations.number > '{number}'"),
            Self::NumberBelow(number) => {
                format!("&keelson.io/where=int(object.metadata.annotations.number) < {number}")
            }
            Self::NumberIs(number) => {
                format!("&keelson.io/filter=metadata.annotations.number == '{number}' and exists(kind)")
            }
            Self::OnNode => "&keelson.io/filter=not not exists(.spec.nodeName)".to_owned(),
        }
    }

    pub(crate) fn holds(self, pod: &Pod) -> bool {
        match self {
            Self::All => true,
            Self::NumberAbove(number) => pod.number > number,
            Self::NumberBelow(number) => pod.number < number,
            Self::OnNode => pod.node.is_some(),
            Self::NumberIs(number) => pod.number == number,
        }
    }
}

/// An order: its sort key, and true if the largest comes first.
pub(crate) type Order = Vec<(By, bool)>;

pub(crate) fn any_order() -> impl Strategy<Value = Order> {
    let by = prop::sample::select(&[By::Node, By::App, By::Number, By::Revision][..]);
    prop::collection::vec((by, any::<bool>()), 0..3)
}

/// As query parameters, each with a `&` before it.
pub(crate) fn written(order: &Order) -> String {
    let paths = order.iter().map(|(by, descending)| {
        let path = match by {
            By::Node => ".spec.nodeName",
            By::App => "metadata.labels['app']",
            By::Number => ".metadata.annotations.number:number",
            By::Revision => ".metadata.resourceVersion",
        };
        format!("{}{path}", if *descending { "-" } else { "" })
    });
    match order.as_slice() {
        [] => "&keelson.io/count=true".to_owned(),
        _ => format!("&keelson.io/sortBy={}", paths.collect::<Vec<_>>().join(",")),
    }
}

/// Less than a missing value, in either direction.
fn compared<T: Ord>(one: Option<T>, other: Option<T>, descending: bool) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) if descending => other.cmp(&one),
        (Some(one), Some(other)) => one.cmp(&other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

pub(crate) fn sort(order: &Order, items: &mut [(String, Stored)]) {
    items.sort_by(|(key, one), (other_key, other)| {
        let by = order.iter().map(|(by, descending)| match by {
            By::Node => compared(one.pod.node, other.pod.node, *descending),
            By::App => compared(one.pod.app, other.pod.app, *descending),
            By::Number => compared(Some(one.pod.number), Some(other.pod.number), *descending),
            By::Revision => compared(Some(one.revision), Some(other.revision), *descending),
        });
        by.fold(Ordering::Equal, Ordering::then).then_with(|| key.cmp(other_key))
    });
}

/// A page, as a client understands it.
#[derive(Debug)]
struct Shown {
    revision: u64,
    token: Option<String>,
    remaining: Option<u64>,
    total: usize,
    items: Vec<(String, Stored)>,
}

pub(crate) fn query_of(query: &str) -> Query {
    Query::parse(Pairs::parse(query).pairs()).unwrap().expect("it has parameters of a query")
}

async fn ask(server: &Registry, place: RequestPath, query: &str) -> Result<Shown, ApiError> {
    let target = pods(server, place.namespace());
    let page = server.query(&target, &Caller::server(), &options(query), &query_of(query)).await?;
    let QueryPage { revision, continue_token, remaining, items, total, .. } = page;
    let items = items.into_entries().await?.iter().map(|entry| read_entry(entry)).collect();
    Ok(Shown { revision: revision.get(), token: continue_token, remaining, total, items })
}

async fn ask_groups(server: &Registry, place: RequestPath, query: &str) -> Result<Groups, ApiError> {
    let target = pods(server, place.namespace());
    server.query_groups(&target, &Caller::server(), &options(query), &query_of(query)).await
}

/// A client that walks through a sorted list.
#[derive(Debug)]
struct Walk {
    place: RequestPath,
    selector: Selector,
    choice: Choice,
    order: Order,
    revision: Option<u64>,
    found: Vec<(String, Stored)>,
    token: Option<String>,
    done: bool,
}

impl Walk {
    fn query(&self, limit: usize) -> String {
        let token = self.token.as_ref().map(|token| format!("&continue={token}")).unwrap_or_default();
        format!("limit={limit}{}{token}", self.query_text())
    }

    /// The query without its page.
    fn query_text(&self) -> String {
        format!("{}{}{}", self.selector.query(), self.choice.query(), written(&self.order))
    }

    /// The whole result at a revision, in any order.
    fn answer(&self, model: &Model, revision: u64) -> Vec<(String, Stored)> {
        let mut all = model.listed(revision, self.place, &self.selector);
        all.retain(|(_, stored)| self.choice.holds(&stored.pod));
        all
    }

    /// The next chunk. `forgotten` says that servers may have forgotten revisions.
    async fn chunk(&mut self, cluster: &Cluster, model: &Model, server: usize, limit: usize, forgotten: bool) {
        match ask(cluster.server(server), self.place, &self.query(limit)).await {
            Ok(page) => {
                let newest = cluster.revision().await;
                match self.revision {
                    Some(pinned) => assert_eq!(page.revision, pinned, "every chunk is at the revision of the first"),
                    None => assert_eq!(page.revision, newest, "a query sees every write acknowledged before it"),
                }
                self.revision = Some(page.revision);
                assert!(page.items.len() <= limit);
                self.found.extend(page.items);
                self.check(model, page.revision, page.total, page.remaining);
                self.done = page.token.is_none();
                self.token = page.token;
            }
            Err(error) => {
                assert!(forgotten && self.revision.is_some(), "nothing is forgotten: {error}");
                let ApiError::Expired { message: ExpiredKind::ContinueToken, continue_token: Some(token) } = error
                else {
                    panic!("a continued query ended with {error}");
                };
                self.go_on_anew(cluster, model, server, token).await;
            }
        }
    }

    fn check(&self, model: &Model, revision: u64, total: usize, remaining: Option<u64>) {
        let mut all = self.answer(model, revision);
        sort(&self.order, &mut all);
        assert_eq!(self.found, all[..self.found.len()], "chunks are consecutive parts of the sorted list");
        assert_eq!(total, all.len());
        let left = (all.len() - self.found.len()) as u64;
        assert_eq!(remaining, (left > 0).then_some(left));
    }

    /// The rest of the list as it is now, from the same place on.
    async fn go_on_anew(&mut self, cluster: &Cluster, model: &Model, server: usize, token: String) {
        self.token = Some(token);
        self.done = true;
        let page = ask(cluster.server(server), self.place, &self.query(1000)).await.unwrap();
        let mut all = self.answer(model, page.revision);
        all.push(self.found.last().expect("a token comes with objects").clone());
        // The object sent last keeps its place at that revision.
        let last = self.found.last().map(|(key, _)| format!("{key}\0"));
        let mut marked: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(place, (key, stored))| match place + 1 == all.len() {
                true => (last.clone().unwrap_or_default(), stored.clone()),
                false => (key.clone(), stored.clone()),
            })
            .collect();
        sort(&self.order, &mut marked);
        let behind = marked.iter().position(|(key, _)| Some(key) == last.as_ref()).unwrap();
        assert_eq!(page.items, marked[behind + 1..]);
        assert_eq!(page.token, None);
    }
}

/// Pages by number, at the newest revision and at a requested one.
async fn check_pages(cluster: &Cluster, model: &Model, walk: &Walk, page: usize, limit: usize) {
    let base = format!("{}&limit={limit}", walk.query_text());
    let first = ask(cluster.server(0), walk.place, &base).await.unwrap();
    let mut all = walk.answer(model, first.revision);
    sort(&walk.order, &mut all);
    let from = (page * limit).min(all.len());
    let to = (from + limit).min(all.len());
    for at in [String::new(), format!("&resourceVersion={}&resourceVersionMatch=Exact", first.revision)] {
        let query = format!("{base}&keelson.io/page={}{at}", page + 1);
        let shown = ask(cluster.server(0), walk.place, &query).await.unwrap();
        assert_eq!((shown.revision, shown.total), (first.revision, all.len()));
        assert_eq!(shown.items, all[from..to], "{query}");
        assert_eq!(shown.remaining, (to < all.len()).then(|| (all.len() - to) as u64));
        assert_eq!(shown.token.is_some(), to < all.len());
    }
}

async fn check_groups(cluster: &Cluster, model: &Model, place: RequestPath, selector: &Selector, choice: Choice) {
    let query = format!("{}{}&keelson.io/groupBy=.spec.nodeName", selector.query(), choice.query());
    let groups = ask_groups(cluster.server(0), place, &query).await.unwrap();
    let mut counted: BTreeMap<Option<u8>, usize> = BTreeMap::new();
    for (_, stored) in model.listed(groups.revision.get(), place, selector) {
        if choice.holds(&stored.pod) {
            *counted.entry(stored.pod.node).or_default() += 1;
        }
    }
    let mut expected: Vec<(Option<Value>, usize)> =
        counted.iter().map(|(node, count)| (node.map(|node| Value::from(format!("n{node}"))), *count)).collect();
    // Groups without a value follow others of their size.
    expected.sort_by_key(|(value, count)| (Reverse(*count), value.is_none()));
    assert_eq!(groups.total, expected.len());
    assert_eq!(groups.groups.into_iter().map(|group| (group.value, group.count)).collect::<Vec<_>>(), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Write),
    Compact(u64, bool),
    Restart,
    Delay(usize, Duration),
    Begin(RequestPath, Selector, Choice, Order, usize),
    Chunk { walk: usize, server: usize, limit: usize },
    Page { walk: usize, page: usize, limit: usize },
    Groups(RequestPath, Selector, Choice),
}

fn step() -> impl Strategy<Value = Step> {
    let begin = (any_place(), any_selector(), any_choice(), any_order(), 1..6usize);
    prop_oneof![
        10 => (any::<usize>(), any_write()).prop_map(|(server, write)| Step::Write(server, write)),
        1 => (0..60u64, any::<bool>()).prop_map(|(back, tell)| Step::Compact(back, tell)),
        1 => Just(Step::Restart),
        1 => (any::<usize>(), any_delay()).prop_map(|(server, delay)| Step::Delay(server, delay)),
        3 => begin.prop_map(|(place, selector, choice, order, limit)| Step::Begin(place, selector, choice, order, limit)),
        8 => (any::<usize>(), any::<usize>(), 1..8usize)
            .prop_map(|(walk, server, limit)| Step::Chunk { walk, server, limit }),
        2 => (any::<usize>(), 0..5usize, 1..5usize).prop_map(|(walk, page, limit)| Step::Page { walk, page, limit }),
        2 => (any_place(), any_selector(), any_choice())
            .prop_map(|(place, selector, choice)| Step::Groups(place, selector, choice)),
    ]
}

async fn walk_through(engine: Engine, settings: Settings, steps: Vec<Step>) {
    let mut forgotten = settings.history_bytes == 0;
    let mut cluster = Cluster::start(engine, settings).await;
    let mut model = Model::default();
    let mut walks: Vec<Walk> = Vec::new();
    for number in 0..4 {
        let pod = Pod { app: Some(number), node: None, number: number.into() };
        let write = Write { key: format!("{}/b", NAMESPACES[usize::from(number) % 3]), action: Action::Create(pod) };
        if number < 3 {
            cluster.write(&mut model, 0, &write).await;
        }
    }
    for step in steps {
        match step {
            Step::Write(server, write) => cluster.write(&mut model, server, &write).await,
            Step::Compact(back, tell) => {
                forgotten = true;
                cluster.compact(back, tell).await;
            }
            Step::Restart => {
                forgotten = true;
                cluster.restart().await;
            }
            Step::Delay(server, delay) => cluster.delay(server, delay),
            Step::Begin(place, selector, choice, order, limit) => {
                let (found, token) = (Vec::new(), None);
                let mut walk = Walk { place, selector, choice, order, revision: None, found, token, done: false };
                walk.chunk(&cluster, &model, 0, limit, forgotten).await;
                walks.push(walk);
            }
            Step::Chunk { walk, server, limit } => {
                walks.retain(|walk| !walk.done);
                let count = walks.len().max(1);
                if let Some(walk) = walks.get_mut(walk % count) {
                    walk.chunk(&cluster, &model, server, limit, forgotten).await;
                }
            }
            Step::Page { walk, page, limit } => {
                let count = walks.len().max(1);
                if let Some(walk) = walks.get(walk % count) {
                    check_pages(&cluster, &model, walk, page, limit).await;
                }
            }
            Step::Groups(place, selector, choice) => check_groups(&cluster, &model, place, &selector, choice).await,
        }
    }
    for mut walk in walks {
        let mut chunks = 0;
        while !walk.done {
            walk.chunk(&cluster, &model, chunks, 1 + chunks % 4, forgotten).await;
            chunks += 1;
            assert!(chunks < 200, "a walk ends");
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn joined_chunks_equal_the_sorted_list_during_concurrent_writes(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..100),
    ) {
        run_paused(walk_through(Engine::Memory, settings, steps));
    }
}

proptest! {
    #![proptest_config(cases(4))]
    #[test]
    fn joined_chunks_equal_the_sorted_list_on_disk(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..60),
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
    #![proptest_config(cases(4))]
    #[test]
    fn joined_chunks_equal_the_sorted_list_on_postgresql(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        run(walk_through_on(Engine::postgres(), settings, steps));
    }

    #[test]
    fn joined_chunks_equal_the_sorted_list_on_etcd(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        static OWN: OnceLock<Option<EtcdServer>> = OnceLock::new();
        run(walk_through_on(Engine::etcd(&OWN), settings, steps));
    }
}

/// Without writes in between no object is scanned again. With a few writes, at most the changed objects are.
#[test]
fn known_results_are_not_scanned_again() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        let server = cluster.server(0);
        let pod = |number| Pod { app: None, node: None, number };
        for number in 0..200 {
            let write = Write { key: format!("q/p{number}"), action: Action::Create(pod(number)) };
            cluster.write(&mut model, 0, &write).await;
        }
        let target = pods(server, None);
        let looked_at = async |query: &str| {
            let page = server.query(&target, &Caller::server(), &options(query), &query_of(query)).await.unwrap();
            (page.looked_at, page.continue_token)
        };
        let sorted = "limit=10&keelson.io/sortBy=.metadata.annotations.number:number";
        let (first, token) = looked_at(sorted).await;
        assert_eq!(first, 200);
        assert_eq!(looked_at(&format!("{sorted}&keelson.io/page=20")).await.0, 0);
        for number in [7, 9] {
            let write = Write { key: format!("q/p{number}"), action: Action::Merge(pod(1000)) };
            cluster.write(&mut model, 0, &write).await;
        }
        assert_eq!(looked_at(sorted).await.0, 2);
        let next = format!("{sorted}&continue={}", token.unwrap());
        assert_eq!(looked_at(&next).await.0, 0, "the snapshot of the first chunk has its order still");
        assert_eq!(looked_at("keelson.io/count=true&limit=5").await.0, 0);
    });
}

/// A filter that requires a value finds its objects in an index, after a few queries that the index would have helped.
#[test]
fn frequent_queries_are_indexed() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        let server = cluster.server(0);
        let write = |number: u32, action| Write { key: format!("q/p{number}"), action };
        for number in 0..300 {
            let pod = Pod { app: None, node: Some((number % 3) as u8), number };
            cluster.write(&mut model, 0, &write(number, Action::Create(pod))).await;
        }
        let target = pods(server, None);
        let looked_at = async |path: &str, value: &str| {
            let query = format!("keelson.io/filter={path} == '{value}'");
            let page = server.query(&target, &Caller::server(), &options(&query), &query_of(&query)).await.unwrap();
            (page.looked_at, page.total)
        };
        let label = "metadata.annotations['number']";
        assert_eq!(looked_at(label, "1").await, (300, 1));
        assert_eq!(looked_at(label, "2").await, (300, 1));
        assert_eq!(looked_at(label, "3").await, (301, 1), "the index is made");
        assert_eq!(looked_at(label, "4").await, (1, 1));
        let pod = Pod { app: None, node: None, number: 4 };
        cluster.write(&mut model, 0, &write(7, Action::Merge(pod))).await;
        assert_eq!(looked_at(label, "5").await, (2, 1), "one change, and one that is found");
        assert_eq!(looked_at(label, "none").await, (0, 0));
        // Labels are indexed in any case.
        assert_eq!(looked_at("metadata.labels.app", "a1").await, (0, 0));
    });
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings { indexed: true, ..Settings::default() }).await;
        let mut model = Model::default();
        for number in 0..5 {
            let pod = Pod { app: None, node: None, number };
            cluster.write(&mut model, 0, &Write { key: format!("q/p{number}"), action: Action::Create(pod) }).await;
        }
        let (server, query) = (cluster.server(0), "keelson.io/filter=metadata.annotations.number == '2'");
        let page = server.query(&pods(server, None), &Caller::server(), &options(query), &query_of(query)).await;
        assert_eq!(page.unwrap().looked_at, 6, "what the operator names is indexed from the first query on");
    });
}
