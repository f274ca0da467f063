//! Tests of a server with a failed part: it names the part, is no longer live, and ends. It does not continue
//! partially.
//!
//! Each essential part is made to fail once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keelson_server::{StoreConfig, Switches};
use keelson_storage::faulty::{FaultyStore, Panic};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{PostgresServer, ProcessServer, TestServer};
use serde_json::json;
use tempfile::TempDir;

/// The longest time until a failure is noticed, and until the server has ended.
const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server on a store that can be made to panic. All its parts soon have work to do.
async fn server() -> (TestServer, FaultyStore) {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let server = TestServer::builder()
        .shared_store(Arc::new(store.clone()))
        .history(Duration::from_secs(1))
        .configure(|config| {
            config.server_id = "server-a".to_owned();
            config.identity_interval = Duration::from_millis(100);
            config.controllers = Default::default();
        })
        .start()
        .await;
    (server, store)
}

/// Checks that the server notices the failure of `task`, fails `/livez` with its name, and still stops in order.
async fn check(mut server: TestServer, task: &str) {
    let told =
        tokio::time::timeout(PATIENCE, server.failed()).await.unwrap_or_else(|_| panic!("{task} died unnoticed"));
    assert!(told.starts_with(&format!("fatal: {task} has panicked: configured to panic at ")), "{told}");
    let raw = server.raw();
    let live = raw.get("/livez").await.expect(500).text();
    assert!(live.contains(&format!("[-]task/{task} failed: reason withheld\n")), "{live}");
    assert!(!live.contains("task/listener") && live.ends_with("livez check failed\n"), "{live}");
    raw.get(format!("/livez/task/{task}")).await.expect(500);
    raw.get("/livez/task/listener").await.expect(200);
    // The health checks of kube-apiserver whose work this task did fail too, and no others.
    for (hook, of) in [
        ("generic-apiserver-start-informers", "cache-tail"),
        ("start-kube-apiserver-identity-lease-controller", "identity"),
        ("crd-informer-synced", "custom-resources"),
    ] {
        let expected = if of == task { 500 } else { 200 };
        raw.get(format!("/livez/poststarthook/{hook}")).await.expect(expected);
    }
    tokio::time::timeout(PATIENCE, server.stop()).await.unwrap_or_else(|_| panic!("it does not stop without {task}"));
}

#[tokio::test]
async fn livez_lists_all_running_tasks() {
    let (server, _) = server().await;
    let raw = server.raw();
    for task in [
        "cache-tail",
        "cache-check",
        "store-probe",
        "compactor",
        "identity",
        "leader-election",
        "listener",
        "kubernetes-service",
        "clusterrole-aggregation-controller",
        "bootstrap",
    ] {
        assert_eq!(raw.get(format!("/livez/task/{task}")).await.status, 200, "{task}");
    }
}

/// The watchdog names a task that blocks a runtime thread, for as long as it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_blocked_task_makes_the_server_unready_until_it_yields() {
    let (server, _) = server().await;
    let raw = server.raw();
    let until_ready = async |expected: u16| {
        let reached = async {
            while raw.get("/readyz").await.status != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("/readyz does not become {expected}"));
    };
    until_ready(200).await;
    server.running().supervisor().stall("compactor", Duration::from_secs(5));
    until_ready(500).await;
    let ready = raw.get("/readyz").await.text();
    let reason = raw.get("/readyz/runtime").await;
    // On a slow machine the task may have ended in between.
    if reason.status == 500 {
        assert!(
            reason.text().starts_with("internal server error: compactor has held a thread for "),
            "{}",
            reason.text()
        );
    }
    assert!(ready == "ok" || ready.contains("[-]runtime failed: reason withheld\n"), "{ready}");
    assert!(!ready.contains("[-]task"), "{ready}");
    raw.get("/livez").await.expect(200);
    until_ready(200).await;
    let metrics = raw.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("keelson_held_threads 0"), "{metrics}");
    assert!(!metrics.contains("keelson_thread_holds_total 0"), "{metrics}");
}

/// A user who runs a server without nodes keeps the pods there.
#[tokio::test]
async fn pods_of_missing_nodes_are_deleted_only_if_enabled() {
    for (asked, expected) in [("*", false), ("*,pod-garbage-collector-controller", true)] {
        let switches = Switches::parse(asked.split(',')).unwrap();
        let server = TestServer::builder().configure(|config| config.controllers = switches).start().await;
        let raw = server.raw();
        // Controllers start one after the other, this one last.
        while raw.get("/livez/task/namespace-controller").await.status != 200 {
            tokio::task::yield_now().await;
        }
        let runs = raw.get("/livez/task/pod-garbage-collector-controller").await.status == 200;
        assert_eq!(runs, expected, "{asked}");
    }
}

#[tokio::test]
async fn a_tail_that_dies_ends_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Tail);
    store.commit(Transaction::default().put(StoreKey::new("/elsewhere"), "news")).await.unwrap();
    check(server, "cache-tail").await;
}

#[tokio::test]
async fn a_compactor_that_dies_ends_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Expire);
    check(server, "compactor").await;
}

#[tokio::test]
async fn an_identity_that_dies_ends_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Write("/registry/leases/kube-system/server-a".to_owned()));
    check(server, "identity").await;
}

#[tokio::test]
async fn an_election_that_dies_ends_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Write("/registry/leases/kube-system/keelson-controllers".to_owned()));
    check(server, "leader-election").await;
}

#[tokio::test]
async fn a_controller_that_dies_ends_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Write("/registry/serviceaccounts/watched/".to_owned()));
    server.raw().post("/api/v1/namespaces", &json!({"metadata": {"name": "watched"}})).await.expect(201);
    check(server, "serviceaccount-controller").await;
}

/// A server on a new PostgreSQL database; `None` if there is no PostgreSQL.
async fn server_on_postgres(database: &str) -> Option<TestServer> {
    let store = StoreConfig::parse(&PostgresServer::shared()?.create_database(database)).unwrap();
    Some(TestServer::builder().configure(|config| config.store = store).start().await)
}

#[tokio::test]
async fn a_postgresql_writer_that_dies_ends_the_server() {
    let Some(server) = server_on_postgres("without_writer").await else { return };
    server.running().supervisor().kill("store-writer");
    let write = server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}}));
    let answer = tokio::time::timeout(PATIENCE, write.into_future()).await.expect("a write does not wait for the dead");
    assert!(answer.status >= 500, "{}", answer.status);
    check(server, "store-writer").await;
}

#[tokio::test]
async fn a_postgresql_feed_that_dies_ends_the_server() {
    let Some(server) = server_on_postgres("without_feed").await else { return };
    server.running().supervisor().kill("store-feed");
    check(server, "store-feed").await;
}

/// Without its listener a server cannot answer health checks, so it does not look live.
#[tokio::test]
async fn a_listener_that_dies_ends_the_server() {
    let (mut server, _) = server().await;
    let known = server.raw();
    known.get("/livez").await.expect(200);
    server.running().supervisor().kill("listener");
    let told = tokio::time::timeout(PATIENCE, server.failed()).await.expect("it died unnoticed");
    assert!(told.starts_with("fatal: listener has panicked: configured to panic at "), "{told}");
    for raw in [known, server.raw()] {
        assert!(raw.get("/livez").try_send().await.is_err(), "nobody answers");
    }
    tokio::time::timeout(PATIENCE, server.stop()).await.expect("it stops without its listener");
}

/// The thread that accepts connections is part of the listener. No other part would notice that clients can't connect.
#[tokio::test]
async fn a_process_that_can_not_accept_connections_ends() {
    let directory = TempDir::new().unwrap();
    let broken = directory.path().join("broken");
    let mut server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson"))
        .env("LD_PRELOAD", shim(directory.path(), DOOR_SHIM))
        .env("KEELSON_TEST_DOOR_FAILS", &broken)
        .start()
        .await;
    std::fs::write(&broken, "").unwrap();
    // Wakes the thread. From then on no connection is accepted.
    let answer = server.raw().get("/livez").try_send().await;
    assert_eq!(server.ended().await.code(), Some(1));
    let log = server.log();
    let fatal = "fatal: listener has panicked: unexpected error when polling the I/O driver";
    assert!(log.contains(&format!("\nkeelson: {fatal}")), "{answer:?}\n{log}");
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(fatal)), "{log}");
}

/// A request that panics gets 500 and affects no other.
#[tokio::test]
async fn a_request_that_panics_does_not_end_the_server() {
    let (server, store) = server().await;
    store.panic_at(Panic::Write("/registry/configmaps/default/bad".to_owned()));
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "bad"}})).await.expect(500);
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "good"}})).await.expect(201);
    raw.get("/livez").await.expect(200);
}

/// The replacement for fsync and fdatasync: they fail as long as a file exists.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int refused(void) {
    const char *file = getenv("KEELSON_TEST_SYNC_FAILS");
    if (!file || access(file, F_OK)) return 0;
    errno = EIO;
    return 1;
}
int fsync(int fd) { return refused() ? -1 : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return refused() ? -1 : (int)syscall(SYS_fdatasync, fd); }
"#;

/// The replacement for epoll_wait: it fails in the thread that accepts connections as long as a file exists.
const DOOR_SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int epoll_wait(int epfd, struct epoll_event *events, int most, int timeout) {
    char name[16] = "";
    const char *file = getenv("KEELSON_TEST_DOOR_FAILS");
    prctl(PR_GET_NAME, name);
    int ready = (int)syscall(SYS_epoll_pwait, epfd, events, most, timeout, NULL, 8);
    if (file && !strcmp(name, "keelson-door") && !access(file, F_OK)) {
        errno = EBADF;
        return -1;
    }
    return ready;
}
"#;

/// Compiles the replacement with the C compiler that the build needs anyway.
fn shim(directory: &Path, text: &str) -> PathBuf {
    let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
    std::fs::write(&source, text).unwrap();
    let compiler =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiler.unwrap().success(), "the shim does not compile");
    library
}

/// After a failed sync the outcome of a write is unknown, so the process must not continue.
#[tokio::test]
async fn a_disk_that_does_not_sync_ends_the_process() {
    let directory = TempDir::new().unwrap();
    let broken = directory.path().join("broken");
    let mut server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson"))
        .env("LD_PRELOAD", shim(directory.path(), SHIM))
        .env("KEELSON_TEST_SYNC_FAILS", &broken)
        .start()
        .await;
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "before"}})).await.expect(201);
    std::fs::write(&broken, "").unwrap();
    if let Ok(answer) = raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "after"}})).try_send().await {
        assert!(answer.status >= 500, "{}", answer.status);
    }
    assert_eq!(server.ended().await.code(), Some(1));
    let fatal = "fatal: store-writer can't make writes durable, since the disk has failed: disk I/O error";
    let log = server.log();
    assert!(!log.contains('\u{1b}'), "no colours where nobody sees them:\n{log}");
    assert!(log.contains(&format!("\nkeelson: {fatal}")), "it says so last:\n{log}");
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(fatal)), "and when it happens:\n{log}");
    std::fs::remove_file(&broken).unwrap();
    server.restart().await;
    server.raw().get(format!("{CONFIG_MAPS}/before")).await.expect(200);
}
