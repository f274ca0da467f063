//! Live pages: the first page with its changes equals the page of a plain model, at every revision sent.
//!
//! Each page is a client that keeps a copy by its events. Time is paused, so the end of the events is certain.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_registry::{Caller, LiveOutput, LivePage, PageChange, WatchOutput};
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;
use crate::queries::*;
use crate::watches::read_frame;

/// The silence after which a live page has no more events.
const REST: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
struct PageQuery {
    place: RequestPath,
    selector: Selector,
    choice: Choice,
    order: Order,
    page: usize,
    limit: usize,
}

impl PageQuery {
    fn query(&self) -> String {
        let (limit, page) = (self.limit, self.page + 1);
        let order = written(&self.order);
        format!("&limit={limit}&keelson.io/page={page}{}{}{order}", self.selector.query(), self.choice.query())
    }

    /// The page of a revision, and how many objects there are in all.
    fn page(&self, model: &Model, revision: u64) -> (Vec<(String, Stored)>, usize) {
        let mut all = model.listed(revision, self.place, &self.selector);
        all.retain(|(_, stored)| self.choice.holds(&stored.pod));
        sort(&self.order, &mut all);
        let total = all.len();
        (all.into_iter().skip(self.page * self.limit).take(self.limit).collect(), total)
    }
}

struct Follower {
    asked: PageQuery,
    live: LivePage,
    /// The objects of the page, and their keys in order.
    copy: BTreeMap<String, Stored>,
    keys: Vec<String>,
}

impl Follower {
    async fn begin(cluster: &Cluster, model: &Model, asked: PageQuery, from: Option<u64>) -> Self {
        let (copy, keys) = match from {
            None => Default::default(),
            Some(revision) => {
                let (page, _) = asked.page(model, revision);
                let keys = page.iter().map(|(key, _)| key.clone()).collect();
                (page.into_iter().collect(), keys)
            }
        };
        let from = from.map(|revision| format!("&resourceVersion={revision}")).unwrap_or_default();
        let (server, query) = (cluster.server(0), format!("{}{from}", asked.query()));
        let target = pods(server, asked.place.namespace());
        let live = server.watch_page(&target, &Caller::server(), &watch_options(&query), &query_of(&query)).await;
        Self { asked, live: live.unwrap(), copy, keys }
    }

    async fn drain(&mut self, cluster: &Cluster, model: &Model) {
        cluster.caught_up().await;
        while let Ok(output) = tokio::time::timeout(REST, self.live.next()).await {
            match output.expect("a live page ends only at its deadline or after an error") {
                LiveOutput::Objects(outputs) => outputs.into_iter().for_each(|output| self.apply(output)),
                LiveOutput::Page(change) => self.check(model, &change),
            }
        }
        let (page, _) = self.asked.page(model, cluster.revision().await);
        assert_eq!(self.copy, page.iter().cloned().collect(), "the copy is the page");
        assert_eq!(self.keys, page.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
    }

    fn apply(&mut self, output: WatchOutput) {
        match output {
            WatchOutput::Initial(entry) => {
                let (key, stored) = read_entry(&entry);
                assert!(self.copy.insert(key, stored).is_none(), "what enters was not there");
            }
            WatchOutput::Event(kind, event) => {
                let told = read_frame(kind, &event.frame(kind));
                let known = match told.kind {
                    "DELETED" => self.copy.remove(&told.key),
                    _ => self.copy.insert(told.key, told.stored),
                };
                assert!(known.is_some(), "what changes or leaves was there");
            }
            WatchOutput::Bookmark { .. } | WatchOutput::Error(_) => panic!("nothing is lost"),
        }
    }

    fn check(&mut self, model: &Model, change: &PageChange) {
        let (page, total) = self.asked.page(model, change.revision.get());
        let behind = (self.asked.page * self.asked.limit + page.len()).min(total);
        assert_eq!((change.total, change.remaining), (total, total - behind));
        assert_eq!(self.copy, page.iter().cloned().collect(), "the copy is the page at the revision that is told");
        let names = |keys: &[std::sync::Arc<str>]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let now: Vec<String> = page.into_iter().map(|(key, _)| key).collect();
        assert_eq!(names(&change.keys), now);
        let (entered, left, moved) = (names(&change.entered), names(&change.left), names(&change.moved));
        assert_eq!(entered, now.iter().filter(|key| !self.keys.contains(key)).cloned().collect::<Vec<_>>());
        assert_eq!(left, self.keys.iter().filter(|key| !now.contains(key)).cloned().collect::<Vec<_>>());
        let stayed = |keys: &[String]| {
            let others = [&entered, &left, &moved];
            keys.iter().filter(|key| others.iter().all(|known| !known.contains(key))).cloned().collect::<Vec<_>>()
        };
        assert_eq!(stayed(&self.keys), stayed(&now), "what has not moved keeps its order");
        self.keys = now;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    Follow(PageQuery, bool),
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let asked = (any_place(), any_selector(), any_choice(), any_order(), 0..3usize, 1..5usize);
    let asked = asked.prop_map(|(place, selector, choice, order, page, limit)| PageQuery {
        place,
        selector,
        choice,
        order,
        page,
        limit,
    });
    prop_oneof![
        10 => any_write().prop_map(Step::Write),
        2 => (asked, any::<bool>()).prop_map(|(asked, known)| Step::Follow(asked, known)),
        3 => any::<usize>().prop_map(Step::Drain),
    ]
}

async fn follow(steps: Vec<Step>) {
    let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
    let mut model = Model::default();
    let mut pages: Vec<Follower> = Vec::new();
    for step in steps {
        match step {
            Step::Write(write) => cluster.write(&mut model, 0, &write).await,
            Step::Follow(asked, known) => {
                let from = known.then_some(cluster.revision().await);
                pages.push(Follower::begin(&cluster, &model, asked, from).await);
            }
            Step::Drain(which) => {
                let count = pages.len().max(1);
                if let Some(page) = pages.get_mut(which % count) {
                    page.drain(&cluster, &model).await;
                }
            }
        }
    }
    for page in &mut pages {
        page.drain(&cluster, &model).await;
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn a_live_page_is_the_page_at_every_revision_that_it_reports(steps in prop::collection::vec(step(), 20..100)) {
        run_paused(follow(steps));
    }
}
