//! Tests of restarts after a signal and after kill -9, and of the guarantees for clients across them.
//!
//! `durability` tests durability under load.

use keelson_testkit::{ProcessServer, Raw};
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server() -> ProcessServer {
    ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).start().await
}

async fn create(raw: &Raw, number: usize) {
    let body = json!({"metadata": {"name": format!("object-{number:03}")}, "data": {"number": number.to_string()}});
    raw.post(CONFIG_MAPS, &body).await.expect(201);
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_9() {
    let mut server = server().await;
    let raw = server.raw();
    let writer = tokio::spawn(async move {
        // Writes until the server is gone. Returns the number of acknowledged writes.
        for number in 0.. {
            let body =
                json!({"metadata": {"name": format!("object-{number}")}, "data": {"number": number.to_string()}});
            match raw.post(CONFIG_MAPS, &body).try_send().await {
                Ok(answer) => assert_eq!(answer.status, 201),
                Err(_) => return number,
            }
        }
        0
    });
    while server.raw().get(format!("{CONFIG_MAPS}/object-20")).await.status != 200 {}
    server.kill().await;
    let acknowledged: usize = writer.await.unwrap();
    server.restart().await;
    let list = server.raw().get(CONFIG_MAPS).await.expect(200).json();
    let found = list["items"].as_array().unwrap().len();
    assert!(found == acknowledged || found == acknowledged + 1, "{found} found, {acknowledged} acknowledged");
    for number in 0..acknowledged {
        let object = server.raw().get(format!("{CONFIG_MAPS}/object-{number}")).await.expect(200).json();
        assert_eq!(object["data"]["number"], number.to_string());
    }
}

#[tokio::test]
async fn a_continue_token_survives_kill_9_between_two_chunks() {
    let mut server = server().await;
    let raw = server.raw();
    for number in 0..10 {
        create(&raw, number).await;
    }
    let whole = raw.get(CONFIG_MAPS).await.expect(200).json();
    let first = raw.get(format!("{CONFIG_MAPS}?limit=4")).await.expect(200).json();
    create(&raw, 5_000).await;
    server.kill().await;
    server.restart().await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = server.raw().get(format!("{CONFIG_MAPS}?limit=100&continue={token}")).await.expect(200).json();
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let chunks = [&first, &rest].into_iter().flat_map(|list| list["items"].as_array().unwrap()).collect::<Vec<_>>();
    assert_eq!(chunks, whole["items"].as_array().unwrap().iter().collect::<Vec<_>>());
}

/// A server reads its history after the start, so a watch may arrive before its history is loaded.
#[tokio::test]
async fn a_watch_continues_after_kill_9_where_it_was() {
    const OBJECTS: usize = 300;
    let mut server = server().await;
    create(&server.raw(), 0).await;
    let begun = server.raw().get(CONFIG_MAPS).await.expect(200).json();
    let begun = begun["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for number in 1..OBJECTS {
        create(&server.raw(), number).await;
    }
    server.raw().delete(format!("{CONFIG_MAPS}/object-000")).await.expect(200);
    server.kill().await;
    server.restart().await;
    let mut watch = server.raw().get(format!("{CONFIG_MAPS}?watch=true&resourceVersion={begun}")).stream().await;
    for number in 1..OBJECTS {
        let event = watch.next_json().await.unwrap();
        assert_eq!(event["type"], "ADDED", "{event}");
        assert_eq!(event["object"]["metadata"]["name"], format!("object-{number:03}"));
    }
    let event = watch.next_json().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("object-000")));
}

#[tokio::test]
async fn a_signal_ends_watches_cleanly_and_the_process_with_success() {
    let mut server = server().await;
    let raw = server.raw();
    let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=true")).stream().await;
    create(&raw, 1).await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    let (status, end) = tokio::join!(server.terminate(), watch.next_chunk());
    assert!(status.success(), "{status}; the log:\n{}", server.log());
    assert_eq!(end.expect("the stream is ended, not broken"), None);
}
