//! Sources that fail: restarts, revisions that are compacted, and servers that are away.
//!
//! A stopped source keeps its address, so that the gateway finds it again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use keelson_gateway::SourceSettings;
use keelson_testkit::TestServer;
use serde_json::json;

use super::lab::{Gateway, create_maps, names, source};

const MAPS: &str = "/api/v1/namespaces/data/configmaps";

/// Stops a server, which keeps its address for the next start.
async fn stop(source: &mut TestServer) {
    let address = source.running().addr();
    source.change(|config| config.bind = address);
    source.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_source_is_served_stale_and_followed_again() {
    let mut source = source().sqlite().start().await;
    create_maps(&source, "data", 3).await;
    let gateway = Gateway::before(&source).await;
    // Rights that were decided before remain known for a time, and the administrator's are in the token.
    let before = gateway.get(MAPS).await.expect(200).json();
    let from = before["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = gateway.get(format!("{MAPS}?watch=1&resourceVersion={from}")).stream().await;
    stop(&mut source).await;
    let begun = Instant::now();
    let stale = gateway.until(MAPS, |answer| !answer.header("keelson-as-of").is_empty()).await.expect(200);
    assert_eq!(names(&stale.json()), ["m0000", "m0001", "m0002"]);
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let sorted = gateway.get(format!("{MAPS}?keelson.io/sortBy=-metadata.name&limit=1")).await.expect(200);
    assert_eq!(names(&sorted.json()), ["m0002"]);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    source.restart().await;
    create_maps(&source, "late", 1).await;
    source.raw().post(MAPS, &json!({"metadata": {"name": "new"}})).await.expect(201);
    let event = watch.next_json().await.expect("the watch goes on");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("new")));
    let back = gateway.until(MAPS, |answer| answer.header("keelson-as-of").is_empty()).await.expect(200);
    assert_eq!(names(&back.json()), ["m0000", "m0001", "m0002", "new"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_before_its_source_serves_when_the_source_does() {
    let mut source = source().sqlite().start().await;
    create_maps(&source, "data", 2).await;
    stop(&mut source).await;
    let gateway = Gateway::starting(&source).await;
    assert_eq!(gateway.get(MAPS).await.status, 503);
    source.restart().await;
    let served = gateway.until(MAPS, |answer| answer.status == 200 && !answer.header("keelson-lag").is_empty()).await;
    assert_eq!(names(&served.json()), ["m0000", "m0001"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_loaded_again_when_its_revision_was_compacted() {
    let mut source = source().sqlite().history(Duration::from_secs(1)).start().await;
    create_maps(&source, "data", 3).await;
    let gateway = Gateway::before(&source).await;
    let before = gateway.get(MAPS).await.expect(200).json();
    let from = before["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = gateway.get(format!("{MAPS}?watch=1&resourceVersion={from}")).stream().await;
    // The gateway sees nothing of what happens at another address.
    let address = source.running().addr();
    source.change(|config| config.bind = ([127, 0, 0, 1], 0).into());
    source.stop().await;
    source.restart().await;
    source.raw().delete(format!("{MAPS}/m0001")).await.expect(200);
    source.raw().post(MAPS, &json!({"metadata": {"name": "new"}})).await.expect(201);
    let compacted = async {
        loop {
            source.raw().patch(format!("{MAPS}/new"), crate::MERGE, &json!({"data": {"a": "b"}})).await.expect(200);
            let mut old = source.raw().get(format!("{MAPS}?watch=1&resourceVersion={from}")).stream().await;
            if old.next_json().await.is_some_and(|event| event["type"] == "ERROR") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, compacted).await.expect("the history ends");
    source.change(|config| config.bind = address);
    source.stop().await;
    source.restart().await;
    let back =
        gateway.until(MAPS, |answer| answer.header("keelson-as-of").is_empty() && answer.text().contains("new")).await;
    assert_eq!(names(&back.json()), ["m0000", "m0002", "new"]);
    // The watches of the gateway cannot show the changes in between.
    let last = watch.next_json().await.expect("an event");
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)), "{last}");
    gateway.stop().await;
}

/// Copies the keys of a server, so that another one has its name.
fn copy_keys(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("pki")).unwrap();
    for file in fs::read_dir(from.join("pki")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join("pki").join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_went_back_is_mirrored_again() {
    let mut first = source().start().await;
    create_maps(&first, "data", 80).await;
    let gateway = Gateway::before(&first).await;
    let newest =
        |list: &serde_json::Value| list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let before = newest(&gateway.get(MAPS).await.expect(200).json());
    let address = first.running().addr();
    let second = source();
    copy_keys(first.data_dir(), second.data_dir());
    first.stop().await;
    let second = second.configure(move |config| config.bind = address).start().await;
    create_maps(&second, "data", 2).await;
    let now = gateway
        .until(MAPS, |answer| {
            answer.status == 200
                && !answer.header("keelson-lag").is_empty()
                && answer.header("keelson-as-of").is_empty()
        })
        .await;
    let now = now.json();
    assert_eq!(names(&now), ["m0000", "m0001"]);
    assert!(newest(&now) < before, "{} is not below {before}", newest(&now));
    gateway.stop().await;
}

/// The number of config maps that lists of a server have returned.
async fn listed(source: &TestServer) -> f64 {
    let metrics = source.raw().get("/metrics").await.expect(200).text();
    let of_maps = |line: &&str| {
        line.starts_with("apiserver_cache_list_returned_objects_total{") && line.contains("\"configmaps\"")
    };
    metrics.lines().filter(of_maps).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_is_loaded_by_one_stream() {
    let source = source().start().await;
    create_maps(&source, "data", 700).await;
    let before = listed(&source).await;
    let gateway = Gateway::before(&source).await;
    let list = gateway.get(MAPS).await.expect(200);
    assert!(!list.header("keelson-lag").is_empty());
    assert_eq!(list.json()["items"], source.raw().get(MAPS).await.expect(200).json()["items"]);
    // Pages of the list would return all objects. Reads of the newest revision return one each.
    let direct = 700.;
    let pages = listed(&source).await - before - direct;
    assert!(pages < 100., "{pages} objects were listed");
    // The watch continues where the stream ended.
    source.raw().delete(format!("{MAPS}/m0000")).await.expect(200);
    source.raw().post(MAPS, &json!({"metadata": {"name": "new"}})).await.expect(201);
    let names = names(&gateway.get(MAPS).await.expect(200).json());
    assert_eq!((names.len(), &*names[0], &*names[699]), (700, "m0001", "new"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_gateway_continues_where_it_was() {
    let source = source().start().await;
    // Three pages of 500.
    create_maps(&source, "data", 1100).await;
    let settings = || vec![SourceSettings::new("one", source.kubeconfig())];
    let gateway = Gateway::of(settings()).await;
    gateway.loaded().await;
    let before = gateway.get(format!("{MAPS}?limit=1")).await.expect(200).json();
    assert_eq!(before["metadata"]["remainingItemCount"], 1099);
    let directory = gateway.stop().await;
    source.raw().delete(format!("{MAPS}/m0000")).await.expect(200);
    source.raw().post(MAPS, &json!({"metadata": {"name": "new"}})).await.expect(201);
    let before = listed(&source).await;
    let gateway = Gateway::in_directory(directory, settings()).await;
    gateway.loaded().await;
    let asked = listed(&source).await - before;
    assert!(asked < 100., "a restart listed {asked} objects");
    let list = gateway.get(MAPS).await.expect(200);
    assert!(!list.header("keelson-lag").is_empty());
    let names = names(&list.json());
    assert_eq!((names.len(), &*names[0], &*names[1099]), (1100, "m0001", "new"));
    let directory = gateway.stop().await;

    // A directory of another cluster is not used.
    let other = super::lab::source().start().await;
    create_maps(&other, "data", 1).await;
    let gateway = Gateway::in_directory(directory, vec![SourceSettings::new("one", other.kubeconfig())]).await;
    let list = gateway.until(MAPS, |answer| answer.status == 200 && !answer.header("keelson-lag").is_empty()).await;
    assert_eq!(super::lab::names(&list.json()), ["m0000"]);
    gateway.stop().await;
}
