//! Tests of watches with a query: objects that enter and leave it, their form, and followed pages.
//!
//! The registry tests with generated histories that no event is lost.

use keelson_testkit::{Raw, Stream, TestServer};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

async fn create(raw: &Raw, name: &str, rank: u32) {
    let map = json!({"metadata": {"name": name, "labels": {"of": "watched"}}, "data": {"rank": rank.to_string()}});
    raw.post(MAPS, &map).await.expect(201);
}

async fn set(raw: &Raw, name: &str, rank: u32) {
    raw.patch(format!("{MAPS}/{name}"), MERGE, &json!({"data": {"rank": rank.to_string()}})).await.expect(200);
}

async fn next(watch: &mut Stream) -> Value {
    watch.next_json().await.expect("the watch continues")
}

/// The type of an event, and the name and rank of its object.
fn event_row(event: &Value) -> (&str, &str, &str) {
    let object = &event["object"];

    (
        event["type"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap_or_default(),
        object["data"]["rank"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_watch_reports_objects_that_enter_or_leave_a_query() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (name, rank) in [("a", 1), ("b", 5), ("c", 7)] {
        create(&raw, name, rank).await;
    }
    let query = "labelSelector=of%3Dwatched&keelson.io/filter=data.rank+%3E+'4'";
    let begins = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = raw.get(format!("{MAPS}?watch=1&{begins}&{query}")).stream().await;
    assert_eq!(event_row(&next(&mut watch).await), ("ADDED", "b", "5"));
    assert_eq!(event_row(&next(&mut watch).await), ("ADDED", "c", "7"));
    let mark = next(&mut watch).await;
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    set(&raw, "a", 2).await;
    set(&raw, "a", 6).await;
    set(&raw, "b", 8).await;
    set(&raw, "c", 3).await;
    raw.delete(format!("{MAPS}/c")).await.expect(200);
    raw.delete(format!("{MAPS}/a")).await.expect(200);
    for expect in [("ADDED", "a", "6"), ("MODIFIED", "b", "8"), ("DELETED", "c", "7"), ("DELETED", "a", "6")] {
        assert_eq!(event_row(&next(&mut watch).await), expect);
    }
}

#[tokio::test]
async fn conditions_words_and_masks_work_on_watches_in_every_form() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let listed = raw.get(MAPS).await.expect(200).json();
    let from = listed["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = async |query: &str, accept: &str| {
        let accept = if accept.is_empty() { "application/json" } else { accept };
        raw.get(format!("{MAPS}?watch=1&resourceVersion={from}&{query}")).header("accept", accept).stream().await
    };
    let mut condition = watch("keelson.io/where=object.metadata.name.startsWith('web')", "").await;
    let mut words = watch("keelson.io/search=web&keelson.io/omitManagedFields=true", "").await;
    let mut masked = watch("keelson.io/fields=data.rank&labelSelector=of", "").await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut rows = watch("keelson.io/filter=metadata.name+endsWith+'1'", table).await;
    create(&raw, "other", 1).await;
    create(&raw, "web-1", 2).await;
    for watch in [&mut condition, &mut words] {
        assert_eq!(event_row(&next(watch).await), ("ADDED", "web-1", "2"));
    }
    let shown = next(&mut masked).await["object"].clone();
    assert_eq!((&shown["data"], shown["metadata"].get("labels")), (&json!({"rank": "1"}), None));
    assert_eq!(next(&mut rows).await["object"]["rows"][0]["cells"][0], "web-1");
    set(&raw, "web-1", 3).await;
    let shown = next(&mut words).await;
    assert_eq!(
        (event_row(&shown), shown["object"]["metadata"].get("managedFields")),
        (("MODIFIED", "web-1", "3"), None)
    );
    raw.get(format!("{MAPS}?watch=1&keelson.io/fields=data")).header("accept", table).await.expect(400);
    // An expensive expression ends the watch with an error.
    let costly = "[1,2,3,4,5,6,7,8].all(a,[1,2,3,4,5,6,7,8].all(b,[1,2,3,4,5,6,7,8].all(c,[1,2,3,4,5,6,7,8]\
                  .all(d,[1,2,3,4,5,6,7,8].all(e,a%2Bb%2Bc%2Bd%2Be%3E0)))))";
    let mut costly = watch(&format!("keelson.io/where={costly}"), "").await;
    let error = next(&mut costly).await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(400)), "{error}");
    assert!(costly.next_json().await.is_none());
}

/// Reads lines up to the next state of the page.
async fn change(watch: &mut Stream) -> (Vec<(String, String)>, Value) {
    let mut events = Vec::new();
    loop {
        let line = next(watch).await;
        if line["type"] == "PAGE" {
            return (events, line["object"].clone());
        }
        let (kind, name, _) = event_row(&line);
        events.push((kind.to_owned(), name.to_owned()));
    }
}

#[tokio::test]
async fn a_live_page_reports_objects_that_enter_leave_or_move() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (name, rank) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        create(&raw, name, rank).await;
    }
    let page = "labelSelector=of&limit=3&keelson.io/sortBy=.data.rank:number";
    let mut watch = raw.get(format!("{MAPS}?watch=1&{page}")).stream().await;
    let (events, shown) = change(&mut watch).await;
    let names: Vec<&str> = events.iter().map(|(_, name)| &**name).collect();
    assert_eq!((names, &events[0].0), (vec!["a", "b", "c"], &"ADDED".to_owned()));
    let keys = |names: &[&str]| json!(names.iter().map(|name| format!("default/{name}")).collect::<Vec<_>>());
    assert_eq!((&shown["kind"], &shown["apiVersion"]), (&json!("Page"), &json!("keelson.io/v1alpha1")));
    assert_eq!((&shown["keys"], &shown["totalCount"]), (&keys(&["a", "b", "c"]), &json!(4)));
    assert_eq!(shown["metadata"]["remainingItemCount"], 1);
    let from = shown["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    set(&raw, "a", 9).await;
    let (events, shown) = change(&mut watch).await;
    let event = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    assert_eq!(events, [event("DELETED", "a"), event("ADDED", "d")]);
    assert_eq!(shown["keys"], keys(&["b", "c", "d"]));
    assert_eq!([&shown["entered"], &shown["left"], &shown["moved"]], [&keys(&["d"]), &keys(&["a"]), &keys(&[])]);

    set(&raw, "b", 5).await;
    let (events, shown) = change(&mut watch).await;
    assert_eq!((events, &shown["keys"]), (vec![event("MODIFIED", "b")], &keys(&["c", "d", "b"])));
    assert_eq!(shown["moved"], keys(&["b"]));

    // After the page: only the number of objects changes.
    create(&raw, "e", 90).await;
    let (events, shown) = change(&mut watch).await;
    assert_eq!((events.len(), &shown["totalCount"], &shown["keys"]), (0, &json!(5), &keys(&["c", "d", "b"])));

    // From a page that its client already has.
    let mut later = raw.get(format!("{MAPS}?watch=1&{page}&resourceVersion={from}")).stream().await;
    let (events, shown) = change(&mut later).await;
    assert_eq!(events, [event("DELETED", "a"), event("ADDED", "d"), event("MODIFIED", "b")]);
    assert_eq!(shown["keys"], keys(&["c", "d", "b"]));
    let second = raw.get(format!("{MAPS}?watch=1&{page}&keelson.io/page=2")).stream();
    let (events, shown) = change(&mut second.await).await;
    assert_eq!(events, [event("ADDED", "a"), event("ADDED", "e")]);
    assert_eq!((&shown["totalCount"], shown["metadata"].get("remainingItemCount")), (&json!(5), None));

    let protobuf = raw.get(format!("{MAPS}?watch=1&{page}")).header("accept", "application/vnd.kubernetes.protobuf");
    protobuf.await.expect(400);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut rows = raw.get(format!("{MAPS}?watch=1&{page}")).header("accept", table).stream().await;
    assert_eq!(next(&mut rows).await["object"]["rows"][0]["cells"][0], "c");
}
