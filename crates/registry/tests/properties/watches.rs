//! Watches: invariants 11, 12 and 14, for watchers of any scope, some with a filter, across restarts, compactions and
//! changes of server.
//!
//! Each watcher is a client that knows the next event of the model, and keeps a copy of the list by its events. Time is
//! paused, so the end of the events is certain.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_cache::FrameKind;
use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_meta::options::Query as Pairs;
use keelson_query::Query;
use keelson_registry::{Caller, Registry, WatchOutput, WatchStream};
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

/// The silence after which a watch has no more events: longer than it waits to send events together.
const REST: Duration = Duration::from_millis(25);

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Write),
    Burst(u32),
    Compact(u64, bool),
    /// Compacts revisions that the caches have not received.
    Overtake,
    Restart,
    /// Delays the writes that a server receives, or ends the delay.
    Delay(usize, Duration),
    /// A watcher continues on another server, which may be behind.
    Move(usize, usize),
    Watch {
        place: RequestPath,
        selector: Selector,
        server: usize,
        begin: Begin,
    },
    Drain(usize),
}

#[derive(Clone, Copy, Debug)]
enum Begin {
    /// A list, then a watch from its revision.
    List,
    /// The watch sends the existing objects first.
    Streamed,
}

fn step() -> impl Strategy<Value = Step> {
    let begin = prop_oneof![Just(Begin::List), Just(Begin::Streamed)];
    let selector = (any_selector(), prop::option::weighted(0.3, 0..4u32));
    let selector = selector.prop_map(|(mut selector, above)| {
        selector.above = above;
        selector
    });
    let watch = (any_place(), selector, any::<usize>(), begin);
    prop_oneof![
        12 => (any::<usize>(), any_write()).prop_map(|(server, write)| Step::Write(server, write)),
        1 => (10..80u32).prop_map(Step::Burst),
        1 => (0..40u64, any::<bool>()).prop_map(|(back, tell)| Step::Compact(back, tell)),
        1 => Just(Step::Overtake),
        1 => Just(Step::Restart),
        2 => (any::<usize>(), any_delay()).prop_map(|(server, delay)| Step::Delay(server, delay)),
        3 => (any::<usize>(), any::<usize>()).prop_map(|(watcher, server)| Step::Move(watcher, server)),
        2 => watch.prop_map(|(place, selector, server, begin)| Step::Watch { place, selector, server, begin }),
        4 => any::<usize>().prop_map(Step::Drain),
    ]
}

/// A client that keeps a copy of what it lists and watches.
struct Watcher {
    place: RequestPath,
    selector: Selector,
    server: usize,
    begin: Begin,
    stream: Option<WatchStream>,
    /// True while the initial events are coming.
    initial: bool,
    copy: BTreeMap<String, Stored>,
    /// The revision up to which all events were received.
    seen: u64,
}

impl Watcher {
    async fn start(&mut self, cluster: &Cluster) {
        let server = cluster.server(self.server);
        self.copy.clear();
        self.initial = matches!(self.begin, Begin::Streamed);
        match self.begin {
            Begin::List => {
                (self.seen, self.copy) = self.listed(server).await;
                self.resume(cluster).await;
            }
            Begin::Streamed => {
                self.seen = 0;
                let how = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                self.open(cluster, how).await;
            }
        }
    }

    /// Resumes from the last event, as after a lost connection. A client without an event begins anew.
    async fn resume(&mut self, cluster: &Cluster) {
        if self.seen == 0 {
            return Box::pin(self.start(cluster)).await;
        }
        let how = format!("&resourceVersion={}", self.seen);
        self.open(cluster, &how).await;
    }

    async fn open(&mut self, cluster: &Cluster, how: &str) {
        let options = watch_options(&format!("{}{how}", self.selector.query()));
        let server = cluster.server(self.server);
        let (target, caller) = (pods(server, self.place.namespace()), Caller::server());
        let stream = match self.query() {
            Some(query) => server.watch_query(&target, &caller, &options, &query).await,
            None => server.watch(&target, &caller, &options).await,
        };
        self.stream = Some(stream.unwrap());
    }

    fn query(&self) -> Option<Query> {
        Query::parse(Pairs::parse(&self.selector.filter()).pairs()).unwrap()
    }

    async fn listed(&self, server: &Registry) -> (u64, BTreeMap<String, Stored>) {
        let selectors = self.selector.query();
        let Some(query) = self.query() else {
            let page = list(server, self.place, &selectors).await.unwrap();
            return (page.revision, page.items.into_iter().collect());
        };
        let target = pods(server, self.place.namespace());
        let page = server.query(&target, &Caller::server(), &options(&selectors), &query).await.unwrap();
        let entries = page.items.into_entries().await.unwrap();
        (page.revision.get(), entries.iter().map(|entry| read_entry(entry)).collect())
    }

    /// Reads all available events, and checks them against the model.
    async fn drain(&mut self, cluster: &Cluster, model: &Model, keeps_all: bool) {
        cluster.caught_up().await;
        while let Some(stream) = &mut self.stream {
            let Ok(outputs) = tokio::time::timeout(REST, stream.next()).await else { break };
            let outputs = outputs.expect("a watch ends only at its deadline or after an error");
            let mut expected = model.told(self.seen, self.place, &self.selector).into_iter();
            for output in outputs {
                match output {
                    WatchOutput::Initial(entry) => self.initial_object(read_entry(&entry)),
                    WatchOutput::Bookmark { revision, initial_events_end } => {
                        assert!(initial_events_end && self.initial, "no minute has passed");
                        self.initial = false;
                        self.seen = revision.get();
                        let listed: BTreeMap<_, _> =
                            model.listed(self.seen, self.place, &self.selector).into_iter().collect();
                        assert_eq!(self.copy, listed);
                        expected = model.told(self.seen, self.place, &self.selector).into_iter();
                    }
                    WatchOutput::Event(kind, event) => {
                        assert!(!self.initial, "changes come after all initial objects");
                        let told = read_frame(kind, &event.frame(kind));
                        assert_eq!(Some(&told), expected.next().as_ref());
                        self.apply(told);
                    }
                    WatchOutput::Error(error) => {
                        assert_eq!(error.code(), 410, "{error}");
                        assert!(!keeps_all || self.seen < cluster.oldest().await, "{error}: nothing was lost");
                        assert!(self.stream.as_mut().unwrap().next().await.is_none(), "nothing follows an error");
                        return Box::pin(self.restart_and_drain(cluster, model, keeps_all)).await;
                    }
                }
            }
        }
        assert!(!self.initial, "the initial events end");
        assert_eq!(model.told(self.seen, self.place, &self.selector), [], "nothing is left to be told");
        let listed: BTreeMap<_, _> =
            model.listed(cluster.revision().await, self.place, &self.selector).into_iter().collect();
        assert_eq!(self.copy, listed, "the copy is the list");
    }

    async fn restart_and_drain(&mut self, cluster: &Cluster, model: &Model, keeps_all: bool) {
        self.start(cluster).await;
        self.drain(cluster, model, keeps_all).await;
    }

    fn initial_object(&mut self, (key, stored): (String, Stored)) {
        assert!(self.initial, "initial objects come first");
        assert!(self.copy.last_key_value().is_none_or(|(last, _)| *last < key), "initial objects come in key order");
        self.copy.insert(key, stored);
    }

    fn apply(&mut self, told: Told) {
        self.seen = told.stored.revision;
        let known = self.copy.contains_key(&told.key);
        match told.kind {
            "ADDED" => assert!(!known),
            _ => assert!(known),
        }
        match told.kind {
            "DELETED" => self.copy.remove(&told.key),
            _ => self.copy.insert(told.key, told.stored),
        };
    }
}

/// An event as the client reads it from the wire.
pub(crate) fn read_frame(kind: FrameKind, frame: &[u8]) -> Told {
    let mut frame: Value = serde_json::from_slice(frame).unwrap();
    let (key, stored) = read(&Object::from_value(frame["object"].take()).unwrap());
    let kind = match kind {
        FrameKind::Added => "ADDED",
        FrameKind::Modified => "MODIFIED",
        FrameKind::Deleted => "DELETED",
    };
    assert_eq!(frame["type"], kind);
    Told { kind, key, stored }
}

async fn burst(cluster: &Cluster, model: &mut Model, writes: u32) {
    for number in 0..writes {
        let pod = Pod { app: Some((number % 3) as u8), node: Some((number % 2) as u8), number: 1000 + number };
        let key = format!("{}/b", NAMESPACES[number as usize % NAMESPACES.len()]);
        let action = if model.newest().contains_key(&key) { Action::Update(pod) } else { Action::Create(pod) };
        cluster.write(model, 0, &Write { key, action }).await;
    }
}

async fn follow(settings: Settings, steps: Vec<Step>) {
    let mut keeps_all = settings.history_bytes > 0;
    // A collection added to a cache has a history from then on. For objects from before its start it reads the store's.
    let outlives_restarts = !settings.custom;
    let mut cluster = Cluster::start(Engine::Memory, settings).await;
    let mut model = Model::default();
    let mut watchers: Vec<Watcher> = Vec::new();
    burst(&cluster, &mut model, 3).await;
    for step in steps {
        match step {
            Step::Write(server, write) => cluster.write(&mut model, server, &write).await,
            Step::Burst(writes) => burst(&cluster, &mut model, writes).await,
            Step::Compact(back, tell) => cluster.compact(back, tell).await,
            Step::Overtake => {
                burst(&cluster, &mut model, 2).await;
                cluster.compact_unheard().await;
                keeps_all = false;
            }
            Step::Restart => {
                watchers.iter_mut().for_each(|watcher| watcher.stream = None);
                cluster.restart().await;
                keeps_all &= outlives_restarts;
                for watcher in &mut watchers {
                    watcher.resume(&cluster).await;
                }
            }
            Step::Delay(server, delay) => cluster.delay(server, delay),
            Step::Move(which, server) => {
                let count = watchers.len().max(1);
                if let Some(watcher) = watchers.get_mut(which % count) {
                    watcher.server = server;
                    watcher.resume(&cluster).await;
                }
            }
            Step::Watch { place, selector, server, begin } => {
                let (stream, initial, copy, seen) = (None, false, BTreeMap::new(), 0);
                let mut watcher = Watcher { place, selector, server, begin, stream, initial, copy, seen };
                watcher.start(&cluster).await;
                watchers.push(watcher);
            }
            Step::Drain(which) => {
                let count = watchers.len().max(1);
                if let Some(watcher) = watchers.get_mut(which % count) {
                    watcher.drain(&cluster, &model, keeps_all).await;
                }
            }
        }
    }
    for watcher in &mut watchers {
        watcher.drain(&cluster, &model, keeps_all).await;
    }
}

proptest! {
    #![proptest_config(cases(160))]
    #[test]
    fn a_list_and_a_watch_from_its_revision_lose_and_repeat_nothing(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 20..120),
    ) {
        run_paused(follow(settings, steps));
    }
}

/// Leaving a selection is DELETED with the content that was selected, at the revision of the change.
#[test]
fn objects_that_leave_a_selection_are_deleted_with_old_content() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        let of = |app, number| Pod { app: Some(app), node: Some(1), number };
        let write = |action| Write { key: "q/a".to_owned(), action };
        cluster.write(&mut model, 0, &write(Action::Create(of(1, 7)))).await;
        let options = watch_options("&fieldSelector=spec.nodeName=n1&labelSelector=app=a1");
        let mut watch =
            cluster.server(0).watch(&pods(cluster.server(0), None), &Caller::server(), &options).await.unwrap();
        assert!(matches!(watch.next().await.unwrap()[..], [WatchOutput::Initial(_)]));
        cluster.write(&mut model, 0, &write(Action::Merge(of(2, 8)))).await;
        let outputs = watch.next().await.unwrap();
        let [WatchOutput::Event(kind, event)] = &outputs[..] else { panic!("one event is expected") };
        let stored = Stored { revision: cluster.revision().await, pod: of(1, 7) };
        let expected = Told { kind: "DELETED", key: "q/a".to_owned(), stored };
        assert_eq!(read_frame(*kind, &event.frame(*kind)), expected);
    });
}

/// A watch may start at a future revision, and gets no events up to it.
#[test]
fn a_watch_from_the_future_begins_there() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        let begin = cluster.revision().await + 3;
        let query = format!("&resourceVersion={begin}&allowWatchBookmarks=true");
        let (server, options) = (cluster.server(0), watch_options(&query));
        let mut watch = server.watch(&pods(server, None), &Caller::server(), &options).await.unwrap();
        for number in 0..6 {
            let pod = Pod { app: None, node: None, number };
            let action = if number == 0 { Action::Create(pod) } else { Action::Merge(pod) };
            cluster.write(&mut model, 0, &Write { key: "q/a".to_owned(), action }).await;
        }
        let mut told = Vec::new();
        while told.len() < 3 {
            for output in watch.next().await.unwrap() {
                let WatchOutput::Event(kind, event) = output else { panic!("only changes are told") };
                told.push(read_frame(kind, &event.frame(kind)));
            }
        }
        assert_eq!(told, model.told(begin, RequestPath::Everywhere, &Selector::default()));
    });
}

/// A watch holds memory for its initial objects until the last of them is sent, and not for later events.
#[test]
fn a_watch_frees_its_snapshot_after_the_initial_events() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
        let mut model = Model::default();
        for number in 0..3 {
            let action = Action::Create(Pod { app: None, node: None, number });
            cluster.write(&mut model, 0, &Write { key: format!("q/p{number}"), action }).await;
        }
        let server = cluster.server(0);
        let begin = |query: &str| {
            let options = watch_options(query);
            async move { server.watch(&pods(server, None), &Caller::server(), &options).await.unwrap() }
        };
        for bookmarks in ["", "&allowWatchBookmarks=true"] {
            let query = format!("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan{bookmarks}");
            let held = std::sync::Arc::new(());
            let mut watch = begin(&query).await.holding(held.clone());
            let mut told = 0;
            while told < 3 {
                assert_eq!(std::sync::Arc::strong_count(&held), 2, "{told} of 3 are told");
                told += watch.next().await.unwrap().len();
            }
            // Behind them it rests, without a bookmark or after it.
            while tokio::time::timeout(REST, watch.next()).await.is_ok() {}
            assert_eq!(std::sync::Arc::strong_count(&held), 1, "{query}");
        }
        let held = std::sync::Arc::new(());
        let _watch = begin("&resourceVersion=1").await.holding(held.clone());
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "it tells nothing of what existed");
    });
}
