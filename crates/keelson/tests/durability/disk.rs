//! A disk that is full, fails, or gives back what was not written: what the server says, and that it does not go on as if nothing
//! were.

use std::fs;
use std::time::Duration;

use keelson_testkit::{DiskFault, FragileDisk, Raw, TestServer};
use serde_json::json;

use crate::{CONFIG_MAPS, KEELSON, PATIENCE, revision, run, start};

async fn until_ready(raw: &Raw, status: u16) -> String {
    let asked = async {
        loop {
            let answer = raw.get("/readyz?verbose").await;
            if answer.status == status {
                return answer.text();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_the_server_is_not_ready_and_recovers_when_there_is_room() {
    let builder = TestServer::builder().sqlite();
    let disk = FragileDisk::below(builder.data_dir());
    let server = builder.start().await;
    let raw = server.raw();
    until_ready(&raw, 200).await;
    disk.set(DiskFault::Full);
    let refused = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(503);
    assert_eq!(refused.header("retry-after"), "1");
    let text = until_ready(&raw, 500).await;
    assert!(text.contains("[-]etcd failed"), "{text}");
    // The check itself says why.
    let why = raw.get("/readyz/etcd").await.expect(500).text();
    assert!(why.contains("full"), "{why}");
    raw.get(CONFIG_MAPS).await.expect(200);
    disk.set(DiskFault::None);
    until_ready(&raw, 200).await;
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_sync_the_server_ends_and_says_why() {
    let builder = TestServer::builder().sqlite();
    let disk = FragileDisk::below(builder.data_dir());
    let server = builder.start().await;
    let raw = server.raw();
    disk.set(DiskFault::SyncFails);
    // It may have been written, so no client is told to write it again.
    let failed = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(504);
    assert_eq!(failed.header("retry-after"), "");
    let why = tokio::time::timeout(PATIENCE, server.failed()).await.unwrap();
    assert!(why.contains("store-writer can't make writes durable, since the disk has failed"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_is_asked_about() {
    let mut server = start().await;
    let data = server.data_dir().to_owned();
    server.terminate().await;
    let directory = data.to_str().unwrap();
    for is_empty in [false, true] {
        for name in ["keelson.db", "keelson.db-wal", "keelson.db-shm", "keelson.db-mark"] {
            let _ = fs::remove_file(data.join(name));
        }
        if is_empty {
            fs::write(data.join("keelson.db"), "").unwrap();
        }
        let (started, text) = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", directory]);
        assert!(!started && text.contains("is gone: restore a backup"), "{text}");
        assert!(data.join("keelson.db").metadata().map_or(0, |found| found.len()) == 0);
    }
    server.change(keelson_testkit::ProcessServer::builder(KEELSON).arg("--accept-loss"));
    server.restart().await;
    server.raw().get("/readyz").await.expect(200);
    // No revision is given out twice.
    let made = server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201).json();
    assert!(revision(&made) > 1_000_000_000, "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_store_is_refused_by_name_and_a_check_tells_what_it_is() {
    let mut server = start().await;
    let raw = server.raw();
    for number in 0..50 {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": "x".repeat(2000)}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let data = server.data_dir().to_owned();
    let directory = data.to_str().unwrap();
    let (whole, text) = run(["storage", "check", "--data-dir", directory]);
    assert!(whole && text.contains("is whole") && text.contains("a server is running on it"), "{text}");
    server.terminate().await;
    let file = data.join("keelson.db");
    let mut bytes = fs::read(&file).unwrap();
    let needle = format!("\"text\":\"{}", "x".repeat(2000));
    let place = bytes.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap();
    bytes[place + 1000] = b'y';
    fs::write(&file, bytes).unwrap();
    let (started, text) = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", directory]);
    assert!(!started && text.contains("/registry/configmaps/default/map-"), "{text}");
    assert!(text.contains("keelson storage check"), "{text}");
    let (whole, text) = run(["storage", "check", "--data-dir", directory]);
    assert!(!whole && text.contains("/registry/configmaps/default/map-"), "{text}");
}
