//! Bookmarks: invariant 13, and when they are due.
//!
//! Time passes only while all tasks wait.

use std::time::Duration;

use keelson_meta::Object;
use keelson_meta::json::json;
use keelson_meta::options::CreateOptions;
use keelson_registry::{Caller, WatchOutput};
use proptest::prelude::*;
use tokio::time::Instant;

use crate::cluster::*;
use crate::model::*;
use crate::watches::read_frame;

/// Seconds between two bookmarks.
const INTERVAL: u64 = 60;
/// Seconds before the deadline at which the last one is sent.
const BEFORE_DEADLINE: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    Pod(Write),
    /// An object of another kind: nothing for the watchers, but the server's revision moves.
    Elsewhere,
}

/// A bookmark that a watcher received, with its second.
#[derive(Clone, Debug, PartialEq)]
enum ReceivedBookmark {
    Initial(String),
    Told(Told),
    Bookmark { second: u64, revision: u64, ends_initial: bool },
    End { second: u64 },
}

async fn hear(cluster: &Cluster, place: RequestPath, query: &str) -> tokio::task::JoinHandle<Vec<ReceivedBookmark>> {
    let (server, options) = (cluster.server(0), watch_options(query));
    let mut watch = server.watch(&pods(server, place.namespace()), &Caller::server(), &options).await.unwrap();
    let begun = Instant::now();
    tokio::spawn(async move {
        let mut heard = Vec::new();
        while let Some(outputs) = watch.next().await {
            let second = begun.elapsed().as_secs();
            heard.extend(outputs.into_iter().map(|output| match output {
                WatchOutput::Initial(entry) => ReceivedBookmark::Initial(entry.key.to_string()),
                WatchOutput::Event(kind, event) => ReceivedBookmark::Told(read_frame(kind, &event.frame(kind))),
                WatchOutput::Bookmark { revision, initial_events_end } => {
                    ReceivedBookmark::Bookmark { second, revision: revision.get(), ends_initial: initial_events_end }
                }
                WatchOutput::Error(error) => panic!("{error}"),
            }));
        }
        heard.push(ReceivedBookmark::End { second: begun.elapsed().as_secs() });
        heard
    })
}

/// The seconds at which the server's revision changed.
type Timeline = Vec<(u64, u64)>;

/// The expected bookmarks, for each interval: those that are due and have a new revision.
fn expected(
    model: &Model,
    timeline: &Timeline,
    place: RequestPath,
    selector: &Selector,
    lasts: u64,
) -> Vec<ReceivedBookmark> {
    let begin = timeline[0].1;
    let mut heard: Vec<ReceivedBookmark> =
        model.listed(begin, place, selector).into_iter().map(|(key, _)| ReceivedBookmark::Initial(key)).collect();
    heard.push(ReceivedBookmark::Bookmark { second: 0, revision: begin, ends_initial: true });
    let told = model.told(begin, place, selector);
    let second_of = |revision: u64| timeline.iter().find(|(_, at)| *at >= revision).unwrap().0;
    let mut told = told.into_iter().filter(|told| second_of(told.stored.revision) < lasts).peekable();
    let mut sent = begin;
    let last = lasts - BEFORE_DEADLINE;
    let due = (1..).map(|number| number * INTERVAL).take_while(|second| *second < last).chain([last]);
    for second in due {
        while let Some(next) = told.next_if(|told| second_of(told.stored.revision) < second) {
            sent = next.stored.revision;
            heard.push(ReceivedBookmark::Told(next));
        }
        let newest = timeline.iter().rev().find(|(at, _)| *at < second).unwrap().1;
        if newest > sent {
            heard.push(ReceivedBookmark::Bookmark { second, revision: newest, ends_initial: false });
            sent = newest;
        }
    }
    heard.extend(told.map(ReceivedBookmark::Told));
    heard.push(ReceivedBookmark::End { second: lasts });
    heard
}

async fn schedule(place: RequestPath, selector: Selector, lasts: u64, steps: Vec<(u64, Step)>) {
    let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
    let mut model = Model::default();
    for key in ["q/a", "q-b/a", "q1/x"] {
        let pod = Pod { app: Some(1), node: Some(1), number: 0 };
        cluster.write(&mut model, 0, &Write { key: key.to_owned(), action: Action::Create(pod) }).await;
    }
    let begin = cluster.revision().await;
    let mut timeline = vec![(0, begin)];
    let first = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let query = format!("{}&timeoutSeconds={lasts}{first}", selector.query());
    let with = hear(&cluster, place, &format!("{query}&allowWatchBookmarks=true")).await;
    let without = hear(&cluster, place, &query).await;
    // Writes fall into the middle of a second, bookmarks on its start.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut second = 0;
    for (number, (pause, step)) in steps.into_iter().enumerate() {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        second += pause;
        match step {
            Step::Pod(write) => cluster.write(&mut model, 0, &write).await,
            Step::Elsewhere => create_configmap(&cluster, number).await,
        }
        timeline.push((second, cluster.revision().await));
    }
    let expected = expected(&model, &timeline, place, &selector, lasts);
    assert_eq!(with.await.unwrap(), expected);
    let unmarked: Vec<ReceivedBookmark> =
        expected.into_iter().filter(|heard| !matches!(heard, ReceivedBookmark::Bookmark { .. })).collect();
    assert_eq!(without.await.unwrap(), unmarked, "who does not ask for bookmarks gets none");
}

async fn create_configmap(cluster: &Cluster, number: usize) {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("c{number}"), "namespace": "q"},
    });
    let (object, target) = (Object::from_value(object).unwrap(), target("configmaps", Some("q")));
    cluster.server(0).create(&target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![any_write().prop_map(Step::Pod), Just(Step::Elsewhere)]
}

proptest! {
    #![proptest_config(cases(96))]
    #[test]
    fn a_bookmark_comes_when_due_and_nothing_at_or_below_it_follows(
        place in any_place(),
        selector in any_selector(),
        lasts in 3..400u64,
        steps in prop::collection::vec((1..50u64, step()), 0..20),
    ) {
        run_paused(schedule(place, selector, lasts, steps));
    }
}
