//! Reads from mirrors: the same objects and revisions as at the source, and queries that the source need not know.
//!
//! A response from a mirror has the header `Keelson-Lag`.

use std::time::Duration;

use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::lab::{Gateway, as_user, create_maps, names, source};

const MAPS: &str = "/api/v1/namespaces/data/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn words(name: &str) -> Value {
    let plural = format!("{name}s");
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": name, "kind": "Word"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "additionalPrinterColumns": [{"name": "Length", "type": "integer", "jsonPath": ".spec.length"}],
            }],
        },
    })
}

/// The items of a list.
fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_tables_are_those_of_the_source() {
    let source = source().start().await;
    create_maps(&source, "data", 40).await;
    let gateway = Gateway::before(&source).await;
    let direct = source.raw();
    for query in
        ["", "?labelSelector=third%3Dtrue", "?fieldSelector=metadata.name%3Dm0007", "?limit=7", "?resourceVersion=0"]
    {
        for prefix in [MAPS, "/api/v1/configmaps"] {
            let path = format!("{prefix}{query}");
            let (here, there) = (gateway.get(&path).await.expect(200), direct.get(&path).await.expect(200));
            assert!(!here.header("keelson-lag").is_empty(), "{path} is not answered from the mirror");
            let (here, there) = (here.json(), there.json());
            assert_eq!(items(&here), items(&there), "{path}");
            assert_eq!(here["metadata"]["remainingItemCount"], there["metadata"]["remainingItemCount"], "{path}");
        }
    }
    for resource in ["nodes", "namespaces", "pods", "services", "serviceaccounts", "events"] {
        let path = format!("/api/v1/{resource}");
        let (here, there) = (gateway.get(&path).await.expect(200), direct.get(&path).await.expect(200));
        assert!(!here.header("keelson-lag").is_empty(), "{path}");
        assert_eq!(items(&here.json()), items(&there.json()), "{path}");
        let (here, there) = (gateway.get(&path).header("accept", TABLE), direct.get(&path).header("accept", TABLE));
        let (here, there) = (here.await.expect(200).json(), there.await.expect(200).json());
        assert_eq!(here["columnDefinitions"], there["columnDefinitions"], "{path}");
        assert_eq!(here["rows"].as_array().unwrap().len(), there["rows"].as_array().unwrap().len(), "{path}");
    }
    // Secrets are not mirrored.
    assert_eq!(gateway.get("/api/v1/secrets").await.expect(200).header("keelson-lag"), "");
    gateway.stop().await;
}

/// Mirrored resources are compressed here, and others by the source.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_watches_pass_with_each_event() {
    let source = source().start().await;
    let direct = source.raw();
    create_maps(&source, "data", 40).await;
    let gateway = Gateway::before(&source).await;
    for resource in ["configmaps", "secrets"] {
        let objects = format!("/api/v1/namespaces/data/{resource}");
        let create = async |name: &str| {
            let object = json!({"metadata": {"name": name, "labels": {"of": "watched"}}});
            direct.post(&objects, &object).await.expect(201);
        };
        create("a").await;
        let path = format!(
            "{objects}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &labelSelector=of%3Dwatched"
        );
        let watch = gateway.get(&path).header("accept-encoding", "gzip").stream().await;
        assert_eq!([&watch.headers["content-encoding"], &watch.headers["vary"]], ["gzip", "Accept-Encoding"]);
        let mut watch = watch.gunzip();
        let mut next = async || watch.next_json().await.unwrap();
        assert_eq!(next().await["object"]["metadata"]["name"], "a", "{resource}");
        assert_eq!(next().await["type"], "BOOKMARK");
        create("b").await;
        assert_eq!(next().await["object"]["metadata"]["name"], "b", "{resource}");
        assert!(!gateway.get(&path).stream().await.headers.contains_key("content-encoding"));
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_sort_search_count_and_page() {
    let source = source().start().await;
    create_maps(&source, "data", 60).await;
    let gateway = Gateway::before(&source).await;
    let mut ranks: Vec<usize> = (0..60).map(|number| (number * 7919) % 10_000).collect();
    ranks.sort_unstable();
    let page = gateway.get(format!("{MAPS}?keelson.io/sortBy=data.rank&limit=10&keelson.io/page=2")).await.expect(200);
    assert_eq!(page.header("keelson-total-count"), "60");
    let page = page.json();
    let shown: Vec<usize> =
        items(&page).iter().map(|item| item["data"]["rank"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(shown, ranks[10..20]);
    for query in ["search=m0042", "sortBy=-data.rank&limit=20", "where=object.data.text.endsWith('7')"] {
        let path = format!("{MAPS}?keelson.io/{query}");
        let (here, there) =
            (gateway.get(&path).await.expect(200).json(), source.raw().get(&path).await.expect(200).json());
        assert!(!items(&here).is_empty(), "{path}");
        assert_eq!(items(&here), items(&there), "{path}");
    }
    // The page that announces queries is the gateway's own.
    gateway.get("/apis/keelson.io/v1alpha1").await.expect(200);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_lists_at_one_and_watches_at_the_other() {
    let source = source().start().await;
    create_maps(&source, "data", 3).await;
    let gateway = Gateway::before(&source).await;
    let direct = source.raw();
    let revision = |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let (here, there) = (gateway.get(MAPS).await.expect(200).json(), direct.get(MAPS).await.expect(200).json());
    let watch = |from: &str| format!("{MAPS}?watch=1&resourceVersion={from}");
    let mut here_from_there = gateway.get(watch(&revision(&there))).stream().await;
    let mut there_from_here = direct.get(watch(&revision(&here))).stream().await;
    for round in 0..20 {
        let change = json!({"data": {"round": round.to_string()}});
        direct.patch(format!("{MAPS}/m0001"), crate::MERGE, &change).await.expect(200);
        let (here, there) = (here_from_there.next_json().await, there_from_here.next_json().await);
        assert_eq!(here, there, "round {round}");
        assert_eq!(here.unwrap()["object"]["data"]["round"], round.to_string());
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_visible_to_the_next_read() {
    let source = source().start().await;
    create_maps(&source, "data", 1).await;
    let gateway = Gateway::before(&source).await;
    let begun = std::time::Instant::now();
    for number in 0..30 {
        let name = format!("w{number:02}");
        let sent = gateway.raw().post(MAPS, &json!({"metadata": {"name": name}}));
        as_user(sent, "root").await.expect(201);
        let list = gateway.get(format!("{MAPS}?limit=500")).await.expect(200);
        assert_eq!(list.header("keelson-as-of"), "");
        assert!(names(&list.json()).contains(&name), "{name}");
        let gone = as_user(gateway.raw().delete(format!("{MAPS}/{name}")), "root");
        gone.await.expect(200);
        assert!(!names(&gateway.get(MAPS).await.expect(200).json()).contains(&name), "{name}");
    }
    // A consistent read needs no bookmark of the source's own time.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    // A revision of another resource is reached too.
    let pods = gateway.get("/api/v1/pods").await.expect(200).json();
    let from = pods["metadata"]["resourceVersion"].as_str().unwrap();
    gateway.get(format!("{MAPS}?resourceVersion={from}&resourceVersionMatch=NotOlderThan")).await.expect(200);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_clients_share_one_watch_at_the_source() {
    let source = source().start().await;
    create_maps(&source, "data", 3).await;
    let gateway = Gateway::before(&source).await;
    let mut watches = Vec::new();
    for _ in 0..25 {
        watches.push(gateway.get(format!("{MAPS}?watch=1&resourceVersion=0")).stream().await);
    }
    let open = async || {
        let metrics = source.raw().get("/metrics").await.expect(200).text();
        let of_maps = |line: &&str| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains("\"configmaps\"")
                && line.contains("WATCH")
        };
        metrics
            .lines()
            .filter(of_maps)
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum::<f64>()
    };
    // The second one is for the config map with the source's authorities.
    assert!(open().await <= 2., "{} watches", open().await);
    source.raw().patch(format!("{MAPS}/m0001"), crate::MERGE, &json!({"data": {"a": "b"}})).await.expect(200);
    for watch in &mut watches {
        watch.next_json().await.expect("each watch gets the event");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_come_with_their_columns_and_go() {
    let source = source().start().await;
    let gateway = Gateway::before(&source).await;
    let direct = source.raw();
    let (path, objects) =
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/words");
    let words = words("word");
    direct.post(path, &words).await.expect(201);
    crate::until(&direct, &format!("{path}/words.example.com"), |found| {
        found["status"]["conditions"].as_array().is_some_and(|all| all.len() > 1)
    })
    .await;
    for (name, length) in [("b", 2), ("a", 11), ("c", 3)] {
        let word = json!({"apiVersion": "example.com/v1", "kind": "Word", "metadata": {"name": name}, "spec": {"length": length}});
        direct.post(objects, &word).await.expect(201);
    }
    let mirrored = gateway
        .until(&format!("{objects}?keelson.io/sortBy=-spec.length"), |answer| {
            answer.status == 200 && !answer.header("keelson-lag").is_empty()
        })
        .await;
    assert_eq!(names(&mirrored.json()), ["a", "c", "b"]);
    let table = gateway.get(objects).header("accept", TABLE).await.expect(200).json();
    assert_eq!(table["columnDefinitions"][1]["name"], "Length");
    // Another column is shown soon after the definition has changed.
    let columns =
        json!([{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns/0/name", "value": "Size"}]);
    direct.patch(format!("{path}/words.example.com"), "application/json-patch+json", &columns).await.expect(200);
    let shown = async {
        loop {
            let table = gateway.get(objects).header("accept", TABLE).await.json();
            if table["columnDefinitions"][1]["name"] == "Size" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, shown).await.expect("the new column is shown in time");
    let mut watch = gateway.get(format!("{objects}?watch=1&resourceVersion=0")).stream().await;
    for _ in 0..3 {
        watch.next_json().await.expect("the three objects");
    }
    direct.delete(format!("{path}/words.example.com")).await.expect(200);
    gateway.until(objects, |answer| answer.status == 404).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_through_a_gateway() {
    let source: TestServer = source().start().await;
    create_maps(&source, "data", 5).await;
    let gateway = Gateway::before(&source).await;
    let kubectl = |args: &[&str]| gateway.endpoint.kubectl(args);
    let shown = kubectl(&["get", "configmaps", "-n", "data", "--no-headers"]).await.ok();
    assert_eq!(shown.lines().count(), 5, "{shown}");
    kubectl(&["create", "configmap", "-n", "data", "new", "--from-literal=a=b"]).await.ok();
    kubectl(&["label", "configmap", "-n", "data", "new", "k=v"]).await.ok();
    let shown = kubectl(&["get", "configmaps", "-n", "data", "-l", "k=v", "-o", "name"]).await.ok();
    assert_eq!(shown.trim(), "configmap/new");
    kubectl(&["delete", "configmap", "-n", "data", "new"]).await.ok();
    let explained = kubectl(&["explain", "pods.spec"]).await.ok();
    assert!(explained.contains("containers"), "{explained}");
    gateway.stop().await;
}
