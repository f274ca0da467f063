//! Tests of reads of the past: by revision and by time, of lists and single objects, within the history.
//!
//! Times are those of the server's clock, so tests wait for time to pass.

use std::time::{Duration, SystemTime};

use keelson_meta::clock::rfc3339_micro;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Writes a config map, and returns its revision.
async fn put(raw: &Raw, name: &str, value: &str) -> String {
    let map = json!({"metadata": {"name": name, "labels": {"of": "past"}}, "data": {"v": value}});
    let written = match raw.get(format!("{MAPS}/{name}")).await.status {
        404 => raw.post(MAPS, &map).await.expect(201),
        _ => raw.put(format!("{MAPS}/{name}"), &map).await.expect(200),
    };
    written.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn values(list: &Value) -> Vec<(&str, &str)> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (item["metadata"]["name"].as_str().unwrap(), item["data"]["v"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn the_past_is_read_by_revision() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let first = put(&raw, "a", "1").await;
    let second = put(&raw, "b", "1").await;
    let third = put(&raw, "a", "2").await;
    raw.delete(format!("{MAPS}/b")).await.expect(200);
    let list = async |query: String| raw.get(format!("{MAPS}?labelSelector=of%3Dpast&{query}")).await;
    let at =
        async |revision: &str, more: &str| list(format!("keelson.io/at={revision}{more}")).await.expect(200).json();
    assert_eq!(values(&at(&first, "").await), [("a", "1")]);
    assert_eq!(values(&at(&second, "").await), [("a", "1"), ("b", "1")]);
    assert_eq!(values(&at(&third, "&keelson.io/sortBy=-.data.v").await), [("a", "2"), ("b", "1")]);
    assert_eq!(at(&second, "").await["metadata"]["resourceVersion"], *second);
    let counted = at(&second, "&keelson.io/groupBy=.data.v").await;
    assert_eq!(counted["values"], json!([{"value": "1", "count": 2}]));

    let one = async |name: &str, query: String| raw.get(format!("{MAPS}/{name}?{query}")).await;
    assert_eq!(one("a", format!("keelson.io/at={second}")).await.expect(200).json()["data"]["v"], "1");
    assert_eq!(one("b", format!("keelson.io/at={third}")).await.expect(200).json()["data"]["v"], "1");
    one("b", format!("keelson.io/at={first}")).await.expect(404);
    let masked = one("a", format!("keelson.io/at={first}&keelson.io/fields=data")).await.expect(200).json();
    assert_eq!((&masked["data"]["v"], masked["metadata"].get("labels")), (&json!("1"), None));
    let bare = one("a", "keelson.io/omitManagedFields=true".to_owned()).await.expect(200).json();
    assert_eq!((&bare["data"]["v"], bare["metadata"].get("managedFields")), (&json!("2"), None));

    // A chunked list keeps the revision of its start.
    let walk = format!("limit=1&keelson.io/at={second}");
    let page = list(walk.clone()).await.expect(200).json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    put(&raw, "b", "3").await;
    let rest = list(format!("{walk}&continue={token}")).await.expect(200).json();
    assert_eq!((values(&page), values(&rest)), (vec![("a", "1")], vec![("b", "1")]));
    list(format!("limit=1&keelson.io/at={third}&continue={token}")).await.expect(400);
}

#[tokio::test]
async fn the_past_is_read_by_time() {
    let server = TestServer::start().await;
    let raw = server.raw();
    put(&raw, "a", "1").await;
    // Longer than the resolution of times, however busy the machine is.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let between = rfc3339_micro(SystemTime::now());
    tokio::time::sleep(Duration::from_millis(300)).await;
    put(&raw, "a", "2").await;
    let at = |time: &str| raw.get(format!("{MAPS}/a?keelson.io/at={}", time.replace('+', "%2B")));
    assert_eq!(at(&between).await.expect(200).json()["data"]["v"], "1");
    let now = rfc3339_micro(SystemTime::now());
    assert_eq!(at(&now).await.expect(200).json()["data"]["v"], "2");
    let listed = raw.get(format!("{MAPS}?labelSelector=of%3Dpast&keelson.io/at={between}")).await.expect(200).json();
    assert_eq!(values(&listed), [("a", "1")]);

    at("2020-01-02T03:04:05Z").await.expect(410);
    let early = at("2999-01-02T03:04:05Z").await.expect(400).json();
    assert!(early["message"].as_str().unwrap().contains("this time has not come yet"), "{early}");
    for wrong in ["0", "-1", "yesterday", "2026-01-02", "1.5"] {
        let refused = at(wrong).await.expect(400).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("keelson.io/at: a revision or a time in RFC 3339 is expected"), "{message}");
    }
    raw.get(format!("{MAPS}?keelson.io/at=5&resourceVersion=5")).await.expect(400);
    raw.get(format!("{MAPS}/a?keelson.io/at=5&resourceVersion=5")).await.expect(400);
}

#[tokio::test]
async fn compacted_revisions_are_gone_for_all_reads() {
    let server = TestServer::builder().history(Duration::from_secs(1)).start().await;
    let raw = server.raw();
    let first = put(&raw, "a", "1").await;
    let begun = std::time::Instant::now();
    // Writes continue while history expires, as in any cluster.
    loop {
        put(&raw, "b", "x").await;
        let read = raw.get(format!("{MAPS}/a?keelson.io/at={first}")).await;
        match read.status {
            200 => assert_eq!(read.json()["data"]["v"], "1"),
            _ => break drop(read.expect(410)),
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "history is never cut");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let gone = raw.get(format!("{MAPS}?keelson.io/at={first}")).await.expect(410).json();
    assert_eq!(gone["reason"], "Expired");
    raw.get(format!("{MAPS}?keelson.io/at={first}&keelson.io/sortBy=.data.v")).await.expect(410);
}
