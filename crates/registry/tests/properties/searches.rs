//! Searches through an index against searches that scan every object, while objects are written.
//!
//! Of two servers on one store, one has an index for every search and the other never has one. For any query, revision,
//! order and chunk size, both return the same objects in the same order. Invariants 1 to 3.

use keelson_meta::Object;
use keelson_meta::json::json;
use keelson_meta::options::CreateOptions;
use keelson_registry::{Caller, QueryPage, Registry, Target};
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;
use crate::queries::query_of;

/// Words that are alike, and some that are not.
const WORDS: [&str; 8] = ["web", "website", "checkout", "chekcout", "checkuot", "cache", "a", "n1"];

/// A pod for searches.
#[derive(Clone, Debug)]
struct SearchedPod {
    name: String,
    tier: Option<String>,
    image: String,
}

impl SearchedPod {
    fn object(&self, namespace: &str) -> Object {
        let object = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": self.name.as_str(), "namespace": namespace, "labels": {"tier": self.tier.as_deref().unwrap_or("none")}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": self.image.as_str()}]},
        });
        Object::from_value(object).unwrap()
    }
}

/// The query of both servers.
#[derive(Clone, Debug)]
struct SearchQuery {
    place: RequestPath,
    query: String,
    /// The index of a revision in the history.
    revision: usize,
    limit: usize,
}

#[derive(Clone, Debug)]
enum Step {
    /// The object replaces the existing one.
    Put(usize, SearchedPod),
    Remove(usize, String),
    Ask(SearchQuery),
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 1..3).prop_map(|words| words.join("-"))
}

fn any_query() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
        1 => text(),
        1 => Just("heckou".to_owned()),
        1 => Just("CHCKOUT".to_owned()),
        1 => Just("nothing".to_owned()),
    ];
    let words = prop::collection::vec(word, 1..3).prop_map(|words| words.join("+"));
    let rest = prop::sample::select(
        &[
            "",
            "",
            "",
            "&labelSelector=tier+notin+(web,none)",
            "&keelson.io/sortBy=-metadata.name",
            "&keelson.io/filter=metadata.name+contains+'a'",
            "&keelson.io/where=object.metadata.name.size()+>+4",
        ][..],
    );
    (words, rest).prop_map(|(words, rest)| format!("keelson.io/search={words}{rest}"))
}

fn step() -> impl Strategy<Value = Step> {
    let found = (text(), prop::option::of(text()), text());
    let found = found.prop_map(|(name, tier, image)| SearchedPod { name, tier, image });
    let asked = (any_place(), any_query(), any::<usize>(), 1..6usize);
    prop_oneof![
        5 => (0..3usize, found).prop_map(|(namespace, found)| Step::Put(namespace, found)),
        2 => (0..3usize, text()).prop_map(|(namespace, name)| Step::Remove(namespace, name)),
        4 => asked.prop_map(|(place, query, revision, limit)| Step::Ask(SearchQuery { place, query, revision, limit })),
    ]
}

/// The keys of a page, with its totals.
async fn page(server: &Registry, place: RequestPath, query: &str) -> (Vec<String>, usize, Option<String>) {
    let target = pods(server, place.namespace());
    let page = server.query(&target, &Caller::server(), &options(query), &query_of(query)).await.unwrap();
    let QueryPage { continue_token, items, total, .. } = page;
    let keys = items.into_entries().await.unwrap().iter().map(|entry| entry.key.to_string()).collect();
    (keys, total, continue_token)
}

async fn check(cluster: &Cluster, revisions: &[u64], asked: &SearchQuery) {
    cluster.caught_up().await;
    let SearchQuery { place, query, revision, limit } = asked;
    let at = format!("&resourceVersion={}&resourceVersionMatch=Exact", revisions[revision % revisions.len()]);
    let (expected, total, _) = page(cluster.server(1), *place, &format!("{query}{at}")).await;
    assert_eq!(total, expected.len());
    let (mut found, of_first, mut token) = page(cluster.server(0), *place, &format!("{query}{at}&limit={limit}")).await;
    assert_eq!(of_first, total, "{asked:?}");
    while let Some(next) = token {
        let (more, of_next, then) =
            page(cluster.server(0), *place, &format!("{query}&limit={limit}&continue={next}")).await;
        assert_eq!(of_next, total, "{asked:?}");
        found.extend(more);
        token = then;
    }
    assert_eq!(found, expected, "{asked:?}");
}

async fn remove(cluster: &Cluster, namespace: &str, name: &str) {
    let server = cluster.server(0);
    let named = Target { name: Some(name.to_owned()), ..pods(server, Some(namespace)) };
    let removed = server.delete(&named, name, &Caller::server(), &at_once()).await;
    assert!(removed.map_or_else(|error| error.code() == 404, |_| true));
}

async fn search_through(steps: Vec<Step>) {
    let mut cluster = Cluster::start(Engine::Memory, Settings { search_from: 0, ..Settings::default() }).await;
    cluster.add_server(&Settings { search_from: usize::MAX, ..Settings::default() }).await;
    let mut revisions = vec![cluster.revision().await];
    for step in steps {
        match step {
            Step::Put(namespace, found) => {
                let (namespace, server) = (NAMESPACES[namespace], cluster.server(0));
                remove(&cluster, namespace, &found.name).await;
                let target = pods(server, Some(namespace));
                let object = fitted(&target, found.object(namespace));
                server.create(&target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
            }
            Step::Remove(namespace, name) => remove(&cluster, NAMESPACES[namespace], &name).await,
            Step::Ask(asked) => check(&cluster, &revisions, &asked).await,
        }
        revisions.push(cluster.revision().await);
    }
    for words in WORDS {
        let query = format!("keelson.io/search={words}");
        let asked = SearchQuery { place: RequestPath::Everywhere, query, revision: revisions.len() - 1, limit: 7 };
        check(&cluster, &revisions, &asked).await;
    }
}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn the_search_index_agrees_with_a_scan_of_all_objects(steps in prop::collection::vec(step(), 10..80)) {
        run_paused(search_through(steps));
    }
}

/// A new word costs reading the objects written since the last search, and nothing else. The memory of the index is
/// reported, and freed with its history.
#[test]
fn a_new_word_is_found_without_a_look_at_the_objects() {
    run_paused(async {
        let cluster = Cluster::start(Engine::Memory, Settings { search_from: 200, ..Settings::default() }).await;
        let mut model = Model::default();
        let server = cluster.server(0);
        let pod = |number: u32| Pod { app: Some((number % 3) as u8), node: None, number };
        let write = |number: u32, action| Write { key: format!("q/p{number}"), action };
        let looked_at = async |namespace: Option<&str>, query: &str| {
            let query = format!("limit=5&keelson.io/search={query}");
            let target = pods(server, namespace);
            let page = server.query(&target, &Caller::server(), &options(&query), &query_of(&query)).await.unwrap();
            (page.looked_at, page.total)
        };
        for number in 0..199 {
            cluster.write(&mut model, 0, &write(number, Action::Create(pod(number)))).await;
        }
        assert_eq!(looked_at(None, "p19").await, (199, 10), "a few objects need no index");
        assert_eq!(looked_at(None, "p18").await, (199, 11));
        for number in 199..300 {
            cluster.write(&mut model, 0, &write(number, Action::Create(pod(number)))).await;
        }
        assert_eq!(looked_at(None, "p29").await, (300, 11), "the index is made");
        assert_eq!(looked_at(None, "p28").await, (0, 11));
        assert_eq!(looked_at(Some("q"), "p27").await, (0, 11));
        assert_eq!(looked_at(Some("q-b"), "p27").await, (0, 0), "there is nothing to look at");
        for number in [7, 9] {
            cluster.write(&mut model, 0, &write(number, Action::Delete)).await;
        }
        cluster.write(&mut model, 0, &write(300, Action::Create(pod(300)))).await;
        assert_eq!(looked_at(None, "p30").await, (3, 2), "one from before and one that is new");
        assert_eq!(looked_at(None, "p7").await, (0, 10));
        let bytes = || server.cache().stats().view_bytes;
        assert!(bytes() > 10_000, "the index counts: {}", bytes());
        cluster.write(&mut model, 0, &write(301, Action::Create(pod(301)))).await;
        cluster.compact(0, true).await;
        assert_eq!(bytes(), 0, "what is of a past that is over is let go");
        assert_eq!(looked_at(None, "p30").await, (300, 3));
    });
}
