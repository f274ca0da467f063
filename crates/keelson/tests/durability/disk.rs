//! Tests of a disk that is full, fails, or returns corrupt data: the server's errors, and that it does not continue
//! regardless.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use keelson_testkit::{Answer, Call, DiskFault, FragileDisk, Raw, TestServer};
use serde_json::{Value, json};

use crate::{CONFIG_MAPS, KEELSON, PATIENCE, revision, run, start};

async fn until_ready(raw: &Raw, status: u16) -> String {
    let response = async {
        loop {
            let answer = raw.get("/readyz?verbose").await;
            if answer.status == status {
                return answer.text();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, response).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_makes_the_server_unready_until_freed() {
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
    // The check itself gives the reason.
    let why = raw.get("/readyz/etcd").await.expect(500).text();
    assert!(why.contains("full"), "{why}");
    raw.get(CONFIG_MAPS).await.expect(200);
    disk.set(DiskFault::None);
    until_ready(&raw, 200).await;
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201);
}

/// The size of the small disk, in bytes.
const SMALL_DISK: u64 = 64 * 1024 * 1024;

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(400_000)}})
}

/// A server on a small disk, which others may fill too.
async fn on_small_disk() -> (TestServer, FragileDisk) {
    let builder = TestServer::builder().sqlite();
    let disk = FragileDisk::below(builder.data_dir());
    disk.set(DiskFault::Room(SMALL_DISK));
    let known = Arc::new(disk.clone());
    (builder.configure(|config| config.store_room.disk = known).start().await, disk)
}

async fn metric(raw: &Raw, name: &str) -> f64 {
    let metrics = raw.get("/metrics").await.expect(200).text();
    let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("{name} is not measured")).rsplit(' ').next().unwrap().parse().unwrap()
}

async fn until_metric(raw: &Raw, name: &str, wanted: f64) {
    let asked = async {
        while metric(raw, name).await != wanted {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{name} does not become {wanted}"));
}

/// Creates objects until the store is full. Returns their number and the refusal.
async fn fill(raw: &Raw) -> (usize, Answer) {
    for number in 0..400 {
        let answer = settled(|| raw.post(CONFIG_MAPS, &large(&format!("full-{number}")))).await;
        if answer.status != 201 {
            return (number, answer);
        }
    }
    panic!("the disk takes more than it has");
}

fn check_refusal(refused: Answer) {
    // No client retries it automatically.
    assert_eq!(refused.header("retry-after"), "");
    let status = refused.expect(507).json();
    assert_eq!(status["reason"], "InsufficientStorage", "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("the store is full: ") && message.contains("delete objects"), "{message}");
}

/// From a full disk back to a working one, without an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_is_left_by_deleting() {
    let (server, disk) = on_small_disk().await;
    let raw = server.raw();
    until_ready(&raw, 200).await;
    // Updates of one object fill nothing: their history is compacted early.
    raw.post(CONFIG_MAPS, &large("one")).await.expect(201);
    for number in 0..300 {
        let patch = json!({"data": {"number": number.to_string()}});
        raw.patch(format!("{CONFIG_MAPS}/one"), "application/merge-patch+json", &patch).await.expect(200);
    }
    assert!(metric(&raw, "keelson_store_history_cuts_total").await > 0.0);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    raw.post(CONFIG_MAPS, &held).await.expect(201);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    raw.post(lease, &json!({"metadata": {"name": "node"}, "spec": {"holderIdentity": "a"}})).await.expect(201);

    let (count, refused) = fill(&raw).await;
    assert!(count > 40, "{count} objects fill the disk");
    check_refusal(refused);
    let merge = "application/merge-patch+json";
    check_refusal(settled(|| raw.patch(format!("{CONFIG_MAPS}/one"), merge, &json!({"data": {"more": "x"}}))).await);
    assert_eq!(metric(&raw, "keelson_store_full").await, 1.0);
    let why = raw.get("/readyz/store").await.expect(200).text();
    assert!(why.starts_with("ok\nwarning: the store is full: ") && why.contains("delete objects"), "{why}");
    assert!(until_ready(&raw, 200).await.contains("warn: store has a warning: ask /readyz/store"));
    // The write that meets the full disk, and triggers the release of the reserve, gets a retryable error.
    settled(|| raw.post(CONFIG_MAPS, &large("full-1"))).await.expect(409);
    settled(|| raw.patch(format!("{CONFIG_MAPS}/one"), merge, &json!({"data": {"text": "small"}}))).await.expect(200);
    // The server answers, is ready, keeps nodes alive, and completes deletions.
    until_ready(&raw, 200).await;
    raw.get(format!("{CONFIG_MAPS}/full-1")).await.expect(200);
    settled(|| raw.patch(format!("{lease}/node"), merge, &json!({"spec": {"holderIdentity": "b"}}))).await.expect(200);
    settled(|| raw.delete(format!("{CONFIG_MAPS}/held"))).await.expect(200);
    settled(|| raw.patch(format!("{CONFIG_MAPS}/held"), merge, &json!({"metadata": {"finalizers": null}})))
        .await
        .expect(200);
    raw.get(format!("{CONFIG_MAPS}/held")).await.expect(404);

    let before = keelson_storage::Disk::room(&disk, server.data_dir()).unwrap().free;
    for number in 0..count {
        settled(|| raw.delete(format!("{CONFIG_MAPS}/full-{number}"))).await.expect(200);
    }
    until_metric(&raw, "keelson_store_full", 0.0).await;
    settled(|| raw.post(CONFIG_MAPS, &large("new"))).await.expect(201);
    let freed = async {
        while keelson_storage::Disk::room(&disk, server.data_dir()).unwrap().free < before + SMALL_DISK / 4 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the disk gets its room back");
}

/// Sends a request, and repeats it while the store asks for that: it has just released its reserve, or is removing
/// replaced versions.
async fn settled(call: impl Fn() -> Call) -> Answer {
    let asked = async {
        loop {
            let answer = call().await;
            if answer.status != 503 {
                return answer;
            }
            assert_eq!(answer.header("retry-after"), "1");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the store takes or refuses the request")
}

/// The number of objects whose deletion starts when the budget is used up.
const LATE: usize = 10;

async fn make_late(raw: &Raw) {
    for number in 0..LATE {
        let late = json!({"metadata": {"name": format!("late-{number}"), "finalizers": ["example.com/hold", "example.com/wait"]}});
        raw.post(CONFIG_MAPS, &late).await.expect(201);
    }
}

/// Deletions start when the budget is used up, and each that ends makes room for the steps of another.
async fn check_deletions_go_on(raw: &Raw) {
    let merge = "application/merge-patch+json";
    for number in 0..LATE {
        settled(|| raw.delete(format!("{CONFIG_MAPS}/late-{number}"))).await.expect(200);
        let marked = raw.get(format!("{CONFIG_MAPS}/late-{number}")).await.expect(200).json();
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    }
    settled(|| raw.delete(format!("{CONFIG_MAPS}/full-0"))).await.expect(200);
    for finalizers in [json!(["example.com/wait"]), json!(null)] {
        for number in 0..LATE {
            let step = json!({"metadata": {"finalizers": finalizers}});
            settled(|| raw.patch(format!("{CONFIG_MAPS}/late-{number}"), merge, &step)).await.expect(200);
        }
    }
    raw.get(format!("{CONFIG_MAPS}/late-0")).await.expect(404);
}

/// Upkeep stops growing a full store before the room for deletions is used up.
async fn check_upkeep_is_bounded(server: &TestServer) {
    const HELD: usize = 40;
    let (raw, merge) = (server.raw(), "application/merge-patch+json");
    until_ready(&raw, 200).await;
    let small = |name: &str| json!({"metadata": {"name": name}, "data": {"text": "x".repeat(1000)}});
    raw.post(CONFIG_MAPS, &small("small")).await.expect(201);
    for number in 0..HELD {
        let held = json!({"metadata": {"name": format!("held-{number}"), "finalizers": ["example.com/hold"]}});
        raw.post(CONFIG_MAPS, &held).await.expect(201);
    }
    make_late(&raw).await;
    let nodes = "/api/v1/namespaces/kube-node-lease";
    let hard = json!({"count/configmaps": "100", "count/leases.coordination.k8s.io": "100"});
    let quota = json!({"metadata": {"name": "count"}, "spec": {"hard": hard}});
    raw.post(format!("{nodes}/resourcequotas"), &quota).await.expect(201);
    let none = json!({"count/configmaps": "0", "count/leases.coordination.k8s.io": "0"});
    let counted = json!({"status": {"hard": quota["spec"]["hard"], "used": none}});
    raw.patch(format!("{nodes}/resourcequotas/count/status"), merge, &counted).await.expect(200);

    let (count, _) = fill(&raw).await;
    check_refusal(settled(|| raw.patch(format!("{CONFIG_MAPS}/small"), merge, &json!({"data": {"more": "x"}}))).await);
    check_refusal(settled(|| raw.post("/api/v1/namespaces/kube-system/configmaps", &small("new"))).await);
    // Writes that share a quota do not share a refusal.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let pairs = (0..20).map(|number| async move {
        let raw = server.raw();
        let config_map = small(&format!("new-{number}"));
        let lease = json!({"metadata": {"name": format!("node-{number}")}, "spec": {"holderIdentity": "a"}});
        let (refused, made) = tokio::join!(
            settled(|| raw.post(format!("{nodes}/configmaps"), &config_map)),
            settled(|| raw.post(leases, &lease))
        );
        check_refusal(refused);
        made.expect(201);
    });
    futures::future::join_all(pairs).await;

    for number in 0..HELD {
        settled(|| raw.delete(format!("{CONFIG_MAPS}/held-{number}"))).await.expect(200);
    }
    let grown = async {
        for key in 0.. {
            for number in 0..HELD {
                let more = json!({"data": {format!("more-{key}"): "x".repeat(7000)}});
                // Repeated while replaced versions are removed, so that each round adds as much.
                let answer = settled(|| raw.patch(format!("{CONFIG_MAPS}/held-{number}"), merge, &more)).await;
                if answer.status != 200 {
                    return (key, answer);
                }
            }
        }
        unreachable!("the loop ends with a refusal");
    };
    let (rounds, refused) = tokio::time::timeout(PATIENCE, grown).await.expect("growth has an end");
    assert!(rounds <= 10, "{rounds} rounds of 280 KB");
    check_refusal(refused);
    check_deletions_go_on(&raw).await;
    for number in 0..HELD {
        let free = json!({"metadata": {"finalizers": null}});
        settled(|| raw.patch(format!("{CONFIG_MAPS}/held-{number}"), merge, &free)).await.expect(200);
    }
    for number in 1..count {
        settled(|| raw.delete(format!("{CONFIG_MAPS}/full-{number}"))).await.expect(200);
    }
    until_metric(&raw, "keelson_store_full", 0.0).await;
    settled(|| raw.post(CONFIG_MAPS, &large("new"))).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_on_a_full_disk_is_bounded() {
    check_upkeep_is_bounded(&on_small_disk().await.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_at_a_quota_is_bounded() {
    let builder = TestServer::builder().sqlite();
    let bounded = builder.configure(|config| {
        config.store_room.quota = Some(24 * 1024 * 1024);
        config.store_room.reserve = Some(0);
    });
    check_upkeep_is_bounded(&bounded.start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_on_a_full_disk_and_is_left_by_deleting() {
    let (mut server, disk) = on_small_disk().await;
    // The bootstrap objects exist already.
    until_ready(&server.raw(), 200).await;
    let (count, _) = fill(&server.raw()).await;
    let free = keelson_storage::Disk::room(&disk, server.data_dir()).unwrap().free;
    fs::write(server.data_dir().join("of-others"), vec![0; usize::try_from(free).unwrap()]).unwrap();
    server.restart().await;
    let raw = server.raw();
    until_ready(&raw, 200).await;
    // The log emptied by the stop leaves a variable amount of room.
    let mut count = count;
    let refused = loop {
        let answer = settled(|| raw.post(CONFIG_MAPS, &large(&format!("full-{count}")))).await;
        if answer.status != 201 {
            break answer;
        }
        count += 1;
    };
    check_refusal(refused);
    for number in 0..count {
        settled(|| raw.delete(format!("{CONFIG_MAPS}/full-{number}"))).await.expect(200);
    }
    until_metric(&raw, "keelson_store_full", 0.0).await;
    settled(|| raw.post(CONFIG_MAPS, &large("new"))).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_ends_the_server_with_a_reason() {
    let builder = TestServer::builder().sqlite();
    let disk = FragileDisk::below(builder.data_dir());
    let server = builder.start().await;
    let raw = server.raw();
    disk.set(DiskFault::SyncFails);
    // The object may have been written, so no client gets a retryable error.
    let failed = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(504);
    assert_eq!(failed.header("retry-after"), "");
    let why = tokio::time::timeout(PATIENCE, server.failed()).await.unwrap();
    assert!(why.contains("store-writer can't make writes durable, since the disk has failed"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_store_needs_accept_loss() {
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
    // No revision is used twice.
    let made = server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await.expect(201).json();
    assert!(revision(&made) > 1_000_000_000, "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_named_by_server_and_storage_check() {
    let mut server = start().await;
    let raw = server.raw();
    for number in 0..50 {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": "x".repeat(2000)}});
        raw.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let data = server.data_dir().to_owned();
    let directory = data.to_str().unwrap();
    let (whole, text) = run(["storage", "check", "--data-dir", directory]);
    assert!(whole && text.contains("is whole") && text.contains("a server uses the store"), "{text}");
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
