//! Tests of large lists whose items must be converted from the stored form, compared with small chunks.
//!
//! Several cores prepare blocks in advance, so order and ends are at risk.

use std::io::Read as _;

use flate2::read::GzDecoder;
use futures::future::join_all;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Together more than 4 MiB, from where on blocks of a list are prepared in advance.
const OBJECTS: usize = 700;
const LINE_BYTES: usize = 100;
const LINES: usize = 64;
/// Far smaller than a block.
const CHUNK: usize = 90;

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PRETTY: &str = "application/json;pretty=1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const METADATA_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const FORMS: [&str; 6] = [YAML, PROTOBUF, PRETTY, TABLE, METADATA, METADATA_IN_PROTOBUF];

async fn start() -> TestServer {
    let server = TestServer::start().await;
    let raw = server.raw().http2();
    let create = |number: usize| {
        let lines: String =
            (0..LINES).map(|line| format!("{number}: {}\n", "x".repeat(line % LINE_BYTES + 60))).collect();
        let metadata = json!({"name": format!("map-{number:04}"), "labels": {"number": number.to_string()}});
        raw.post(CONFIG_MAPS, &json!({"metadata": metadata, "data": {"lines": lines, "answer": "yes"}}))
    };
    for number in 0..OBJECTS {
        create(number).await.expect(201);
    }
    assert!(raw.get(CONFIG_MAPS).await.expect(200).body.len() > 4 << 20);
    server
}

async fn body(raw: &Raw, path: &str, form: &str, encoding: &str) -> Vec<u8> {
    let answer = raw.get(path).header("accept", form).header("accept-encoding", encoding).await.expect(200);
    assert_eq!(answer.header("content-encoding"), if encoding == "gzip" { "gzip" } else { "" });
    if encoding != "gzip" {
        return answer.body.to_vec();
    }
    let mut plain = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).unwrap();
    plain
}

/// The items of a body, with its token.
fn items(form: &str, body: &[u8]) -> (Vec<Value>, Option<String>) {
    let list = match form {
        YAML => return items_in_yaml(std::str::from_utf8(body).unwrap()),
        PROTOBUF | METADATA_IN_PROTOBUF => {
            serde_json::to_value(keelson_protobuf::decode(body).unwrap().object).unwrap()
        }
        _ => serde_json::from_slice(body).unwrap(),
    };
    if form == PRETTY {
        assert!(body == serde_json::to_vec_pretty(&list).unwrap(), "the list is not indented as one text");
    }
    let mut items = list["items"].as_array().or(list["rows"].as_array()).unwrap().clone();
    if form == TABLE {
        // The last cell is the age.
        items.iter_mut().for_each(|row| *row["cells"].as_array_mut().unwrap().last_mut().unwrap() = Value::Null);
    }
    (items, list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned))
}

fn items_in_yaml(body: &str) -> (Vec<Value>, Option<String>) {
    let rest = body.strip_prefix("apiVersion: v1\nitems:\n- ").unwrap();
    let (items, end) = rest.split_once("\nkind: ConfigMapList\n").unwrap();
    let token = end.lines().find_map(|line| line.trim().strip_prefix("continue: "));
    (items.split("\n- ").map(Value::from).collect(), token.map(str::to_owned))
}

async fn walk(raw: &Raw, form: &str) -> Vec<Value> {
    let (mut found, mut path) = (Vec::new(), format!("{CONFIG_MAPS}?limit={CHUNK}"));
    loop {
        let (chunk, token) = items(form, &body(raw, &path, form, "identity").await);
        assert!(chunk.len() <= CHUNK);
        found.extend(chunk);
        let Some(token) = token else { return found };
        path = format!("{CONFIG_MAPS}?limit={CHUNK}&continue={token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_list_has_the_items_of_its_chunks_in_every_form() {
    let server = start().await;
    let raw = server.raw();
    for form in FORMS {
        let expected = walk(&raw, form).await;
        assert_eq!(expected.len(), OBJECTS, "{form}");
        for (raw, encoding) in [(raw.clone(), "identity"), (raw.clone(), "gzip"), (raw.http2(), "gzip")] {
            let (found, token) = items(form, &body(&raw, CONFIG_MAPS, form, encoding).await);
            assert!(token.is_none() && found == expected, "{form} in {encoding}: {} items", found.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_at_once_and_lists_given_up_leave_each_other_whole() {
    let server = start().await;
    let raw = server.raw().http2();
    let mut given_up = Vec::new();
    for form in FORMS {
        let mut list = raw.get(CONFIG_MAPS).header("accept", form).stream().await;
        list.next_chunk().await.unwrap().expect("the list begins");
        given_up.push(list);
    }
    let expected = body(&raw, CONFIG_MAPS, PROTOBUF, "identity").await;
    drop(given_up);
    let lists = (0..8).map(|_| {
        let raw = server.raw();
        async move { body(&raw, CONFIG_MAPS, PROTOBUF, "identity").await }
    });
    assert!(join_all(lists).await.into_iter().all(|list| list == expected));
}

/// A list is sent from a snapshot. If its client does not read, the snapshot retains replaced objects. The server
/// aborts the list when these take too much memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_aborted_if_their_snapshot_retains_too_much_memory() {
    const OBJECT_BYTES: usize = 200_000;
    let object = |number: usize, letter: &str| json!({"metadata": {"name": format!("wide-{number}")}, "data": {"text": letter.repeat(OBJECT_BYTES)}});
    let narrow = |limit: u64| {
        TestServer::builder().configure(move |config| {
            config.pinned_bytes = limit;
            config.unread = std::time::Duration::from_secs(600);
        })
    };
    for (limit, is_cut) in [(10 * OBJECT_BYTES as u64, true), (1000 * OBJECT_BYTES as u64, false)] {
        let server = narrow(limit).start().await;
        let raw = server.raw();
        for number in 0..100 {
            raw.post(CONFIG_MAPS, &object(number, "a")).await.expect(201);
        }
        let mut list = raw.http2().get(CONFIG_MAPS).stream().await;
        assert!(list.next_chunk().await.unwrap().is_some());
        for number in 0..20 {
            raw.put(format!("{CONFIG_MAPS}/wide-{number}"), &object(number, "b")).await.expect(200);
        }
        let cut = "keelson_lists_aborted_total";
        let count = || async { raw.get("/metrics").await.expect(200).text().contains(&format!("\n{cut} 1.0\n")) };
        while is_cut && !count().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let rest = async {
            while let Some(chunk) = list.next_chunk().await? {
                assert!(!chunk.is_empty());
            }
            Ok::<_, anyhow::Error>(())
        };
        assert_eq!(rest.await.is_err(), is_cut, "{limit}");
        assert_eq!(count().await, is_cut, "{limit}");
    }
}

/// A protobuf list starts with its length. Objects that only the store has are therefore read twice instead of being
/// kept in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_lists_of_old_revisions_are_read_from_the_store() {
    const SCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let server = TestServer::builder().configure(|config| config.history_bytes = 0).start().await;
    let raw = server.raw();
    for number in 0..30 {
        let metadata = json!({ "name": format!("map-{number:02}") });
        raw.post(CONFIG_MAPS, &json!({ "metadata": metadata, "data": { "all": "x".repeat(700_000) } }))
            .await
            .expect(201);
    }
    for number in 0..3 {
        let target = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
        let spec = json!({ "maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50 + number });
        raw.post(SCALERS, &json!({ "metadata": { "name": format!("s{number}") }, "spec": spec })).await.expect(201);
    }
    let mut known = Vec::new();
    for path in [CONFIG_MAPS, SCALERS] {
        let list = raw.get(format!("{path}?limit=1")).await.expect(200).json();
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        let then = format!("{path}?resourceVersion={revision}&resourceVersionMatch=Exact");
        let list = raw.get(then.as_str()).header("accept", PROTOBUF).await.expect(200).body;
        known.push((path, then, list));
    }
    // More changes than the cache keeps under any setting.
    for (path, name) in [(CONFIG_MAPS, "small"), (SCALERS, "s0")] {
        if path == CONFIG_MAPS {
            raw.post(path, &json!({ "metadata": { "name": name } })).await.expect(201);
        }
        for number in 0..200 {
            let newer = json!({ "metadata": { "annotations": { "number": number.to_string() } } });
            raw.patch(format!("{path}/{name}"), "application/merge-patch+json", &newer).await.expect(200);
        }
    }
    for (path, then, expected) in known {
        let list = raw.get(then).header("accept", PROTOBUF).await.expect(200).body;
        assert!(list == expected, "{path}: {} bytes, {} then", list.len(), expected.len());
    }
    let metrics = raw.get("/metrics").await.expect(200).text();
    let from_store = metrics.lines().find(|line| line.starts_with("keelson_lists_from_store_total "));
    assert_eq!(from_store, Some("keelson_lists_from_store_total 2.0"), "the cache has forgotten it");
}

/// The number of flow control seats for reads of administrators, without this request's own.
async fn seats(raw: &Raw) -> u64 {
    let series = r#"apiserver_flowcontrol_current_executing_seats{priority_level="exempt",flow_schema="exempt"} "#;
    let metrics = raw.get("/metrics").await.expect(200).text();
    let taken = metrics.lines().find_map(|line| line.strip_prefix(series)).expect("the level is reported");
    taken.parse::<f64>().unwrap() as u64 - 1
}

/// The start of a watch costs the server as much as a list. After that a watch needs no seats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_has_the_seats_of_a_list_during_initial_events() {
    /// More than the connections buffer for a client that does not read.
    const LARGE_OBJECTS: usize = 24;
    // Long enough that no seat is lent during the test.
    let server = TestServer::builder().configure(|config| config.unread = std::time::Duration::from_secs(600));
    let server = server.start().await;
    let raw = server.raw().http2();
    for number in 0..LARGE_OBJECTS {
        let body = json!({"metadata": {"name": format!("large-{number:02}")}, "data": {"text": "x".repeat(900_000)}});
        raw.post(CONFIG_MAPS, &body).await.expect(201);
    }
    assert_eq!(seats(&raw).await, 0);
    let unread = raw.get(CONFIG_MAPS).stream().await;
    let of_a_list = seats(&raw).await;
    assert!(of_a_list > 4, "{of_a_list} for {LARGE_OBJECTS} large objects");
    drop(unread);
    while seats(&raw).await > 0 {}

    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = raw.get(format!("{CONFIG_MAPS}?{initial}")).stream().await;
    assert_eq!(seats(&raw).await, of_a_list);
    for _ in 0..LARGE_OBJECTS {
        assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    }
    let mark = watch.next_json().await.unwrap();
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(seats(&raw).await, 0, "it goes on without");

    // Events after a revision are not initial ones.
    let revision = mark["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut later = raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={revision}")).stream().await;
    assert_eq!(seats(&raw).await, 0);
    raw.delete(format!("{CONFIG_MAPS}/large-00")).await.expect(200);
    for watch in [&mut watch, &mut later] {
        assert_eq!(watch.next_json().await.unwrap()["type"], "DELETED");
    }
    // An aborted watch returns its seats.
    let unread = raw.get(format!("{CONFIG_MAPS}?{initial}")).stream().await;
    assert!(seats(&raw).await > 0);
    drop(unread);
    while seats(&raw).await > 0 {}
}
