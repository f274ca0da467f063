//! Start and end of servers: ready at once, several side by side, no remains after a drop, a stop and a panic.
//!
//! A server has ended when its port can be bound again.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use keelson_test::{Form, Keelson};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use crate::{config_maps, create};

async fn start() -> Keelson {
    Keelson::builder().form(Form::Embedded).start().await.expect("a server starts")
}

fn is_free(url: &str) -> bool {
    TcpListener::bind(url.trim_start_matches("https://")).is_ok()
}

fn server_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process has threads").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("keelson-")).collect()
}

#[tokio::test]
async fn a_server_is_ready_and_has_what_every_cluster_has() {
    let server = start().await;
    let ready = server.client().request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await;
    assert_eq!(ready.unwrap(), "ok");
    let namespaces: Api<Namespace> = Api::all(server.client());
    let found = namespaces.list(&ListParams::default()).await.unwrap();
    assert!(found.items.iter().any(|namespace| namespace.metadata.name.as_deref() == Some("kube-system")));
}

#[tokio::test]
async fn servers_side_by_side_share_nothing() {
    let (first, second) = tokio::join!(start(), start());
    assert_ne!(first.url(), second.url());
    create(&config_maps(first.client()), "a").await;
    assert!(config_maps(second.client()).get_opt("a").await.unwrap().is_none());
    // Each server has its own authority, which the other does not trust.
    let mut config = first.config();
    config.cluster_url = second.url().parse().unwrap();
    let stranger = kube::Client::try_from(config).unwrap();
    assert!(stranger.apiserver_version().await.is_err());
}

#[tokio::test]
async fn a_server_outlives_the_runtime_of_the_test_that_started_it() {
    let server = std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(start())).join().unwrap();
    assert!(server.client().apiserver_version().await.is_ok());
}

#[tokio::test]
async fn nothing_is_left_of_a_server_whose_test_panics() {
    let server = start().await;
    let (url, file) = (server.url(), server.kubeconfig().unwrap());
    assert!(file.exists() && !is_free(&url));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _server = server;
        std::panic::resume_unwind(Box::new("a failed test"));
    }));
    assert!(panicked.is_err());
    assert!(!file.exists());
    assert!(is_free(&url));
}

#[tokio::test]
async fn a_server_ends_soon_with_open_watches() {
    let server = start().await;
    let maps = config_maps(server.client());
    let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    create(&maps, "a").await;
    let is_ours = |event: &WatchEvent<ConfigMap>| matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a"));
    while watch.try_next().await.unwrap().is_some_and(|event| !is_ours(&event)) {}
    let url = server.url();
    let begun = Instant::now();
    server.stop().await;
    println!("stopped with an open watch in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(is_free(&url));
    // The client's watch ends, either cleanly or with an error.
    while let Ok(Some(_)) = watch.try_next().await {}
}

#[test]
fn no_thread_of_a_server_is_left() {
    // Other tests of this program also run servers, so the threads are counted in a separate process.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::threads_in_a_process_of_its_own", "--nocapture"])
        .env("KEELSON_TEST_THREADS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("threads: [] some []"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn threads_in_a_process_of_its_own() {
    if std::env::var_os("KEELSON_TEST_THREADS").is_none() {
        return;
    }
    let before = server_threads();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(start());
    let during = server_threads();
    drop(server);
    let during = if during.is_empty() { "none" } else { "some" };
    // Servers whose end is not awaited end at once too.
    let deadline = Instant::now() + Duration::from_secs(5);
    while !server_threads().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("threads: {before:?} {during} {:?}", server_threads());
}

#[tokio::test]
async fn a_namespace_is_fresh_and_gone_after_its_test() {
    let server = start().await;
    let namespaces: Api<Namespace> = Api::all(server.client());
    let (kept, dropped) = tokio::join!(server.namespace(), server.namespace());
    let (first, second) = (kept.unwrap(), dropped.unwrap());
    assert_ne!(first.name(), second.name());
    // A pod needs the service account of its namespace, which exists by then.
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
    }))
    .unwrap();
    let pods: Api<Pod> = Api::default_namespaced(first.client());
    pods.create(&Default::default(), &pod).await.unwrap();
    let (first_name, second_name) = (first.name().to_owned(), second.name().to_owned());
    first.delete().await.unwrap();
    assert!(namespaces.get_opt(&first_name).await.unwrap().is_none());
    drop(second);
    let deadline = Instant::now() + Duration::from_secs(20);
    while namespaces.get_opt(&second_name).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the namespace is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn wrong_settings_are_refused() {
    let refused = Keelson::builder().form(Form::Embedded).controllers("no-such-controller").start().await;
    assert!(refused.unwrap_err().to_string().contains("no-such-controller"));
    let refused = Keelson::builder().form(Form::Embedded).arg("--v=1").start().await;
    assert!(refused.is_err());
}

#[test]
fn the_variable_replaces_the_embedded_server_by_a_binary() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::a_start_without_a_form", "--nocapture"])
        .env("KEELSON_TEST_FORM", "1")
        .env("KEELSON_BIN", "/nowhere/keelson")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("starting /nowhere/keelson failed"), "{text}");
}

#[tokio::test]
async fn a_start_without_a_form() {
    if std::env::var_os("KEELSON_TEST_FORM").is_some() {
        println!("{}", Keelson::start().await.unwrap_err());
    }
}
