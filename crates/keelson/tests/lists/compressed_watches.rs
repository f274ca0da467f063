//! Tests of watches with initial events for clients that accept gzip (KEP-3157): one gzip member, read event by event.
//!
//! Go's and Rust's HTTP clients read such a body while it arrives. Clients in pages read websockets, which are never
//! compressed.

use keelson_meta::Release;
use keelson_testkit::{Call, HANDSHAKE, Raw, Stream, TestServer};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan&labelSelector=of%3Dwatched";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

async fn create(raw: &Raw, name: &str, bytes: usize) {
    let map = json!({"metadata": {"name": name, "labels": {"of": "watched"}}, "data": {"text": "0123456789abcdef".repeat(bytes / 16)}});
    raw.post(MAPS, &map).await.expect(201);
}

fn compressed(call: Call) -> Call {
    call.header("accept-encoding", "gzip")
}

async fn begin(call: Call) -> Stream {
    let stream = compressed(call).stream().await;
    assert_eq!(stream.status, 200);
    assert_eq!([&stream.headers["content-encoding"], &stream.headers["vary"]], ["gzip", "Accept-Encoding"]);
    stream.gunzip()
}

/// The type of an event and the name of its object.
fn kind_and_name(event: &Value) -> (&str, &str) {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    (event["type"].as_str().unwrap(), name)
}

#[tokio::test]
async fn each_event_of_a_compressed_watch_arrives_at_once() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, "a", 20_000).await;
    create(&raw, "b", 600_000).await;
    for client in [raw.clone(), raw.http2()] {
        let mut watch = begin(client.get(WATCH)).await;
        let mut names = Vec::new();
        loop {
            let event = watch.next_json().await.unwrap();
            if event["type"] == "BOOKMARK" {
                assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
                break;
            }
            names.push(kind_and_name(&event).1.to_owned());
        }
        assert_eq!(names, ["a", "b"]);
        // The next change follows once this one has arrived, so no event waits for another.
        for size in [16, 200_000] {
            create(&raw, "c", size).await;
            let event = watch.next_json().await.unwrap();
            assert_eq!(kind_and_name(&event), ("ADDED", "c"));
            assert_eq!(event["object"]["data"]["text"].as_str().unwrap().len(), size);
            raw.delete(format!("{MAPS}/c")).await.expect(200);
            assert_eq!(kind_and_name(&watch.next_json().await.unwrap()), ("DELETED", "c"));
        }
    }
}

/// The whole body of a watch as text.
async fn body(mut stream: Stream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(chunk) = stream.next_chunk().await.unwrap() {
        body.extend_from_slice(&chunk);
    }
    body
}

#[tokio::test]
async fn a_compressed_watch_has_the_events_of_a_plain_one_in_fewer_bytes() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for number in 0..50 {
        create(&raw, &format!("m{number:02}"), 4_000).await;
    }
    let path = format!("{WATCH}&timeoutSeconds=1");
    for accept in ["application/json", "application/vnd.kubernetes.protobuf", METADATA] {
        let call = || raw.get(&path).header("accept", accept);
        let (plain, packed) = tokio::join!(call().stream(), compressed(call()).stream());
        assert_eq!(packed.headers["content-type"], plain.headers["content-type"]);
        assert!(!plain.headers.contains_key("content-encoding"));
        let (plain, text, sent) =
            tokio::join!(body(plain), body(packed.gunzip()), async { body(compressed(call()).stream().await).await });
        assert!(plain == text, "{accept}: {} bytes and {}", plain.len(), text.len());
        assert!(sent.len() * 4 < plain.len(), "{accept}: {} bytes of {}", sent.len(), plain.len());
    }
    // Rows contain ages, so that bodies differ.
    let mut table = begin(raw.get(&path).header("accept", TABLE)).await;
    let row = table.next_json().await.unwrap();
    assert_eq!((&row["object"]["kind"], &row["object"]["rows"][0]["cells"][0]), (&json!("Table"), &json!("m00")));
    let none = begin(raw.get(path.replace("configmaps", "secrets"))).await;
    let events = body(none).await;
    assert!(events.starts_with(b"{\"type\":\"BOOKMARK\""), "{}", String::from_utf8_lossy(&events));
}

#[tokio::test]
async fn other_watches_are_plain() {
    let check = async |server: &TestServer, path: &str, accepted: &str, is_packed: bool| {
        let watch = server.raw().get(path).header("accept-encoding", accepted).stream().await;
        assert_eq!(watch.headers.contains_key("content-encoding"), is_packed, "{path} {accepted}");
        let mut watch = if is_packed { watch.gunzip() } else { watch };
        assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    };
    let server = TestServer::start().await;
    create(&server.raw(), "a", 16).await;
    check(&server, WATCH, "gzip", true).await;
    check(&server, WATCH, "deflate, gzip", true).await;
    check(&server, WATCH, "gzip;q=0", false).await;
    check(&server, WATCH, "identity", false).await;
    // A watch without a revision begins with the existing objects, and its end is shown to clients with bookmarks.
    check(&server, &format!("{MAPS}?watch=true&allowWatchBookmarks=true"), "gzip", true).await;
    check(&server, &format!("{MAPS}?watch=true&resourceVersion=0"), "gzip", false).await;
    check(&server, &WATCH.replace("allowWatchBookmarks=true&", ""), "gzip", false).await;
    let before = server.raw().get(MAPS).await.expect(200).json()["metadata"]["resourceVersion"].clone();
    create(&server.raw(), "b", 16).await;
    let later = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={}", before.as_str().unwrap());
    check(&server, &later, "gzip", false).await;
    let fields = [&HANDSHAKE[..], &[("accept-encoding", "gzip")]].concat();
    let mut socket = server.raw().websocket(WATCH, &fields).await;
    assert_eq!((socket.status, socket.header("content-encoding")), (101, ""));
    assert_eq!(socket.next_json().await["type"], "ADDED");
    let older = TestServer::builder().emulating(Release::V1_36).start().await;
    create(&older.raw(), "a", 16).await;
    check(&older, WATCH, "gzip", false).await;
    let off = TestServer::builder()
        .configure(|config| drop(config.registry.gates.set(&[("WatchListCompression".to_owned(), false)]).unwrap()))
        .start()
        .await;
    create(&off.raw(), "a", 16).await;
    check(&off, WATCH, "gzip", false).await;
}

#[tokio::test]
async fn a_stopping_server_completes_a_compressed_watch() {
    let mut server = TestServer::start().await;
    let mut watch = begin(server.raw().get(WATCH)).await;
    while watch.next_json().await.unwrap()["type"] != "BOOKMARK" {}
    let (_, rest) = tokio::join!(server.stop(), async {
        let mut rest = Vec::new();
        while let Some(chunk) = watch.next_chunk().await.unwrap() {
            rest.push(chunk);
        }
        rest
    });
    assert!(rest.is_empty(), "{rest:?}");
}
