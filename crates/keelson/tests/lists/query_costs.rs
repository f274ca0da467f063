//! Tests of the cost of queries that are cheap for one object and too expensive for all.
//!
//! Limits for one object are tested with the other refusals of queries.

use keelson_testkit::TestServer;
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A pattern from each object is compiled for each, which is cheap for one object and takes seconds for all.
#[tokio::test]
async fn the_cost_limit_of_a_condition_covers_all_objects_together() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for number in 0..700 {
        let (name, pattern) = (format!("map-{number}"), format!("{number}-{}", "a?".repeat(500)));
        raw.post(CONFIG_MAPS, &json!({"metadata": {"name": name}, "data": {"k": pattern}})).await.expect(201);
    }
    let refused = raw.get(format!("{CONFIG_MAPS}?keelson.io/where=object.data.k.matches(object.data.k)"));
    let refused = refused.await.expect(400).json();
    let message = refused["message"].as_str().unwrap();
    let expected = "keelson.io/where: the expression costs more than it may for all objects together; choose fewer by";
    assert!(message.starts_with(expected), "{message}");
    let one = format!("{CONFIG_MAPS}?keelson.io/where=object.data.k.matches('^69')");
    assert_eq!(raw.get(one).await.expect(200).header("keelson-total-count"), "11");
}

/// The document of such values held a thread of requests for seconds.
#[tokio::test]
async fn groups_and_matches_of_large_texts_are_refused() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for number in 0..8 {
        let (text, field) = (format!("{number}{}", "x".repeat(700_000)), "y".repeat(253));
        let data = json!({"k": text, field: "found"});
        raw.post(CONFIG_MAPS, &json!({"metadata": {"name": format!("map-{number}")}, "data": data})).await.expect(201);
    }
    let groups = format!("{CONFIG_MAPS}?keelson.io/groupBy=.data.k");
    let refused = raw.get(&groups).await.expect(400).json();
    let message = "keelson.io/groupBy: the values have over 4 MiB: request fewer with limit";
    assert_eq!(refused["message"], message);
    let some = raw.get(format!("{groups}&limit=3")).header("accept", "application/yaml").await.expect(200);
    assert!(some.body.len() > 2_100_000, "{} bytes", some.body.len());
    let matches = raw.get(format!("{CONFIG_MAPS}?keelson.io/search=map&keelson.io/matches=true")).await.expect(200);
    assert_eq!(matches.json()["items"].as_array().unwrap().len(), 8);
}
