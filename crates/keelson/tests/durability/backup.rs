//! Tests of a backup of a running server, and of a restored store with clients of the lost one.
//!
//! Clients may know later revisions than the restored store, and must not conclude that nothing has changed.

use std::process::Stdio;
use std::time::Duration;

use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use keelson_testkit::ProcessServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::writers::{Knowledge, Writers, read};
use crate::{CONFIG_MAPS, KEELSON, items, list, name, revision, run, start};

/// The content of a store whose backup takes longer than the delivery of a signal: 40 MB.
const OBJECTS: usize = 4000;
const BATCH: usize = 100;
const OBJECT_BYTES: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_serves_the_same_objects_at_higher_revisions() {
    let lost = start().await;
    let directory = TempDir::new().unwrap();
    let (file, data) = (directory.path().join("copy.db"), directory.path().join("data"));
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());

    let writers = Writers::start(&lost.raw(), CONFIG_MAPS, &Knowledge::default(), 11);
    writers.acknowledged(80).await;
    let fixed = json!({"metadata": {"name": "fixed"}, "data": {"number": "1"}});
    let fixed = lost.raw().post(CONFIG_MAPS, &fixed).await.expect(201).json();
    let before = list(&lost.raw(), CONFIG_MAPS, "limit=3").await;
    let lost_data = lost.data_dir().to_str().unwrap().to_owned();
    let backup = tokio::task::spawn_blocking({
        let file = file.to_owned();
        move || run(["storage", "backup", &file, "--data-dir", &lost_data, "--output", "json"])
    });
    let (done, text) = backup.await.unwrap();
    assert!(done, "{text}");
    let after_backup = list(&lost.raw(), CONFIG_MAPS, "").await;
    writers.acknowledged(160).await;
    let last = writers.finish().await;

    let (done, restoring) = run(["storage", "restore", file, "--data-dir", data, "--output", "json"]);
    assert!(done, "{restoring}");
    check_summaries(&text, &restoring);
    let server = ProcessServer::builder(KEELSON).data_dir(data).start().await;
    let raw = server.raw();
    let restored = list(&raw, CONFIG_MAPS, "").await;
    assert!(revision(&restored) > last.newest, "no client sees a smaller revision than before");
    assert_eq!(raw.get(format!("{CONFIG_MAPS}/fixed")).await.expect(200).json(), fixed);
    check_one_moment(&lost, &restored, revision(&before), revision(&after_backup)).await;

    check_old_clients(&server, &before).await;
    let body = json!({"metadata": {"name": "new"}});
    let created = raw.post(CONFIG_MAPS, &body).await.expect(201).json();
    assert!(revision(&created) > revision(&restored));
}

/// Backup and restore print the progress of each stage as lines, and both print the same content of the backup.
fn check_summaries(backup: &str, restore: &str) {
    let lines = |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let (backup, restore) = (lines(backup), lines(restore));
    for (lines, command) in [(&backup, "backup"), (&restore, "restore")] {
        let stages: Vec<_> =
            lines.iter().filter(|line| line["command"] == command && line["done"] == line["total"]).collect();
        let mut names: Vec<_> = stages.iter().map(|line| line["stage"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["checksum", "copying", "verifying"], "{lines:?}");
        assert!(stages.iter().all(|line| line["total"].as_u64() > Some(0) && line["unit"] != ""), "{stages:?}");
    }
    let (backup, restore) = (backup.last().unwrap(), restore.last().unwrap());
    for part in ["file", "bytes", "objects", "revision", "sha256"] {
        assert!(!backup[part].is_null(), "{backup}");
        assert_eq!(backup[part], restore[part], "{part}");
    }
    assert_eq!(restore["checksumCompared"], true);
    assert!(restore["restoredRevision"].as_u64() > backup["revision"].as_u64());
}

/// SIGINT and SIGTERM end a backup in order: no file is left, and the exit code is that of the signal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_backup_leaves_no_file() {
    let (data, directory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    {
        let store = SqliteStore::open(SqliteConfig::directory(data.path())).unwrap();
        for batch in 0..OBJECTS / BATCH {
            let mut all = Transaction::default();
            for number in 0..BATCH {
                let key = format!("/registry/configmaps/default/{batch}-{number}");
                all = all.put(StoreKey::new(key), "x".repeat(OBJECT_BYTES));
            }
            store.commit(all).await.unwrap();
        }
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (file, partial) = (directory.path().join("copy.db"), directory.path().join("copy.db.partial"));
        let mut backup = std::process::Command::new(KEELSON);
        backup.args(["storage", "backup"]).arg(&file).arg("--data-dir").arg(data.path());
        let mut backup = backup.stderr(Stdio::piped()).spawn().unwrap();
        while !partial.exists() {
            assert_eq!(backup.try_wait().unwrap(), None, "it ended before it was interrupted");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kill_process(Pid::from_child(&backup), signal).unwrap();
        let ended = backup.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{text}");
        assert!(text.ends_with("keelson: interrupted: no backup was written\n"), "{text}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

/// A killed restore leaves a partial store, which no start takes for an empty one. The next restore replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_interrupted_is_refused_and_given_again() {
    let server = start().await;
    server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "kept"}})).await.expect(201);
    let directory = TempDir::new().unwrap();
    let (file, data) = (directory.path().join("copy.db"), directory.path().join("data"));
    let (name, data_dir) = (file.to_str().unwrap(), data.to_str().unwrap());
    let (done, text) = run(["storage", "backup", name, "--data-dir", server.data_dir().to_str().unwrap()]);
    assert!(done, "{text}");
    std::fs::create_dir(&data).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for (name, content) in
        [("keelson.db.partial", &whole[..whole.len() / 2]), ("keelson.db.partial-journal", &whole[..100])]
    {
        std::fs::write(data.join(name), content).unwrap();
    }
    let (started, text) = run(["serve", "--bind", "127.0.0.1:0", "--data-dir", data_dir]);
    assert!(!started && text.contains("did not finish: give `keelson storage restore` again"), "{text}");
    assert!(!data.join("keelson.db").exists() && !data.join("pki").exists());
    let (done, text) = run(["storage", "restore", name, "--data-dir", data_dir]);
    assert!(done, "{text}");
    let restored = ProcessServer::builder(KEELSON).data_dir(&data).start().await;
    restored.raw().get(format!("{CONFIG_MAPS}/kept")).await.expect(200);
    assert!(!data.join("keelson.db.partial-journal").exists());
}

/// The restored objects are those of one revision of the lost server during the backup.
async fn check_one_moment(lost: &ProcessServer, restored: &serde_json::Value, earliest: u64, latest: u64) {
    let restored = read(restored);
    for at in earliest..=latest {
        let then = list(&lost.raw(), CONFIG_MAPS, &format!("resourceVersion={at}&resourceVersionMatch=Exact")).await;
        if read(&then) == restored {
            return;
        }
    }
    panic!("the copy is of no moment between {earliest} and {latest}");
}

/// Earlier watches and lists get an error that their history is gone, with a way to continue.
async fn check_old_clients(server: &ProcessServer, before: &serde_json::Value) {
    let raw = server.raw();
    let token = before["metadata"]["continue"].as_str().unwrap();
    let gone = raw.get(format!("{CONFIG_MAPS}?limit=500&continue={token}")).await.expect(410).json();
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let rest = list(&raw, CONFIG_MAPS, &format!("limit=500&continue={token}")).await;
    let last = name(items(before).last().unwrap());
    assert!(!items(&rest).is_empty() && items(&rest).iter().all(|object| name(object) > last));
    let query = format!("watch=1&resourceVersion={}", revision(before));
    let mut watch = raw.get(format!("{CONFIG_MAPS}?{query}")).stream().await;
    let event = watch.next_json().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.next_json().await, None);
}

#[tokio::test]
async fn a_restore_leaves_a_directory_alone_that_holds_a_store() {
    let server = start().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("copy.db");
    let (file, data) = (file.to_str().unwrap(), server.data_dir().to_str().unwrap());
    assert!(run(["storage", "backup", file, "--data-dir", data]).0);
    let (done, text) = run(["storage", "restore", file, "--data-dir", data]);
    assert!(!done && text.contains("is in use by another keelson server"), "{text}");
    server.raw().get("/readyz").await.expect(200);
    let other = directory.path().join("other");
    let other = other.to_str().unwrap();
    assert!(run(["storage", "restore", file, "--data-dir", other]).0);
    let (done, text) = run(["storage", "restore", file, "--data-dir", other]);
    assert!(!done && text.contains("holds a store (keelson.db): move it away"), "{text}");
}
