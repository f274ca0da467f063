//! Tests of stopping a server as an operator does, and of a second one started on its data by mistake.
//!
//! The second one must not harm the first, and both must report the problem clearly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use keelson_testkit::{ProcessServer, Raw, Stream};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{CONFIG_MAPS, KEELSON, items, run, start};

/// Far more in total than sockets and connections buffer.
const OBJECTS: usize = 60;
const OBJECT_BYTES: usize = 400_000;

#[tokio::test]
async fn a_second_server_on_the_same_data_is_refused_in_a_sentence() {
    let server = start().await;
    let kubeconfig = std::fs::read(server.kubeconfig()).unwrap();
    let data = server.data_dir().to_str().unwrap();
    let (started, text) = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]);
    assert!(!started);
    let sentence = format!("the data directory {data} is in use by another keelson server (process ");
    assert!(text.contains(&sentence), "{text}");
    assert!(text.contains(&server.pid().unwrap().to_string()), "{text}");
    assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
    assert_eq!(std::fs::read(server.kubeconfig()).unwrap(), kubeconfig, "clients of the first still find it");
    server.raw().get("/readyz").await.expect(200);
}

/// Keys and kubeconfig belong to the first server, wherever the second keeps its objects.
#[tokio::test]
async fn a_second_server_with_another_store_leaves_the_data_directory_alone() {
    let elsewhere = TempDir::new().unwrap();
    let sqlite = format!("sqlite:{}", elsewhere.path().display());
    let of_memory = ProcessServer::builder(KEELSON).arg("--store").arg("memory:").start().await;
    for first in [start().await, of_memory] {
        let before = files_of(first.data_dir());
        for store in ["memory:", &sqlite, "sqlite"] {
            let data = first.data_dir().to_str().unwrap();
            let other = ["serve", "--bind", "127.0.0.1:0", "--data-dir", data, "--store", store];
            let (started, text) = match store {
                "sqlite" => run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data]),
                _ => run(other),
            };
            let is_told = text.contains("is in use by another keelson server (process ")
                // A server in memory has left keys without a store.
                || store == "sqlite" && text.contains("kept its objects in memory")
                // The other store is empty, and the first server keeps objects.
                || store == sqlite && text.contains(" holds none: name that store with --store");
            assert!(!started && is_told, "{store}: {text}");
            assert_eq!(files_of(first.data_dir()), before, "{store}");
        }
        first.raw().get("/readyz").await.expect(200);
    }
    assert!(!elsewhere.path().join("pki").exists());
}

/// The files by which clients know a server.
fn files_of(data: &Path) -> Vec<(PathBuf, String)> {
    let keys = std::fs::read_dir(data.join("pki")).unwrap().map(|entry| entry.unwrap().path());
    let others = ["kubeconfig", "keelson.store", "keelson.lock"].map(|name| data.join(name));
    let mut files: Vec<_> =
        keys.chain(others).map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap())).collect();
    files.sort();
    files
}

async fn fill(raw: &Raw) {
    let posts = stream::iter(0..OBJECTS).map(|number| {
        let ballast = "x".repeat(OBJECT_BYTES);
        let body = json!({"metadata": {"name": format!("large-{number:03}")}, "data": {"ballast": ballast}});
        let raw = raw.clone();
        async move { raw.post(CONFIG_MAPS, &body).await.expect(201) }
    });
    posts.buffer_unordered(4).collect::<Vec<_>>().await;
}

/// Reads a body slowly to its end.
async fn read_slowly(mut list: Stream) -> Value {
    let mut body = Vec::new();
    while let Some(chunk) = list.next_chunk().await.expect("the list is not cut off") {
        body.extend_from_slice(&chunk);
        if body.len() % 7 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    serde_json::from_slice(&body).expect("the list is whole")
}

/// Waits until the server accepts no new requests.
async fn stopping(raw: &Raw) {
    while raw.clone().get("/readyz").try_send().await.is_ok_and(|answer| answer.status == 200) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_lets_slow_lists_end_and_closes_watches() {
    let mut server = start().await;
    let raw = server.raw();
    fill(&raw).await;
    let identity = |raw: &Raw| raw.get(CONFIG_MAPS).header("accept-encoding", "identity");
    let mut lists = Vec::new();
    for client in [raw.clone(), raw.http2()] {
        lists.push(identity(&client).stream().await);
    }
    let mut watch = raw
        .get(format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"))
        .stream()
        .await;
    let reading = async {
        stopping(&raw).await;
        assert_eq!(watch.next_chunk().await.expect("the watch is ended, not broken"), None);
        for list in lists {
            assert_eq!(items(&read_slowly(list).await).len(), OBJECTS);
        }
    };
    let (status, ()) = tokio::join!(server.terminate(), reading);
    assert!(status.success(), "{status}; the log:\n{}", server.log());
    server.restart().await;
    let again = server.raw().get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json();
    assert_eq!(again["metadata"]["remainingItemCount"], OBJECTS - 1);
}
