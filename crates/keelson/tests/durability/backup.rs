//! Tests of a backup of a running server, and of a restored store with clients of the lost one.
//!
//! These clients may know later revisions than the store, and must not conclude that nothing has changed.

use keelson_testkit::ProcessServer;
use serde_json::json;
use tempfile::TempDir;

use crate::writers::{Knowledge, Writers, read};
use crate::{CONFIG_MAPS, KEELSON, items, list, name, revision, run, start};

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
        move || run(["storage", "backup", &file, "--data-dir", &lost_data])
    });
    let (done, text) = backup.await.unwrap();
    assert!(done, "{text}");
    let after_backup = list(&lost.raw(), CONFIG_MAPS, "").await;
    writers.acknowledged(160).await;
    let last = writers.finish().await;

    let (done, text) = run(["storage", "restore", file, "--data-dir", data]);
    assert!(done, "{text}");
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
