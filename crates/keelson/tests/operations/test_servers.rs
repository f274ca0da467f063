//! Tests of the crate `keelson-test` with this binary: the same test passes with both forms of a server, and a process
//! ends with its handle.
//!
//! That crate itself tests the form in the test's process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use keelson_test::{Error, Fault, Form, Keelson};
use kube::api::{Api, ListParams, PostParams, WatchParams};
use serde_json::json;

fn form() -> Form {
    Form::Process(PathBuf::from(env!("CARGO_BIN_EXE_keelson")))
}

async fn start() -> Keelson {
    Keelson::builder().form(form()).start().await.unwrap()
}

fn directory_of(process: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let link = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("keelson-"));
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let targets: Vec<_> = open.filter_map(|file| std::fs::read_link(file.path()).ok()).collect();
    let of = |path: &PathBuf| targets.iter().any(|target| target.starts_with(path));
    entries.map(|entry| entry.path()).filter(|path| link(path)).find(of)
}

#[tokio::test]
async fn a_process_serves_users_definitions_namespaces_and_faults() {
    let server = start().await;
    assert!(matches!(server.snapshot(), Err(Error::NeedsEmbedded(_))));
    assert!(matches!(server.advance(Duration::ZERO).await, Err(Error::NeedsEmbedded(_))));
    let namespace = server.namespace().await.unwrap();
    let user = server.user("dev").can("create,get", "configmaps").in_namespace(namespace.name()).await.unwrap();
    let faults = server.faults().await.unwrap();
    let refused = faults.inject(Fault::internal_error().methods([http::Method::POST])).unwrap();
    let user = faults.user(&user).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(user.client(), namespace.name());
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "m" } })).unwrap();
    assert!(maps.create(&PostParams::default(), &map).await.is_err());
    assert!(maps.create(&PostParams::default(), &map).await.is_ok());
    assert!(maps.list(&ListParams::default()).await.is_err());
    assert_eq!(refused.hits(), 1);
}

#[tokio::test]
async fn dropping_the_handle_removes_process_and_directory() {
    let server = start().await;
    let (url, pid) = (server.url(), server.pid().unwrap());
    let directory = directory_of(pid);
    drop(server);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(std::net::TcpListener::bind(url.trim_start_matches("https://")).is_ok());
    if let Some(directory) = directory {
        assert!(!directory.exists(), "{}", directory.display());
    }
}

/// Other servers give idle clients a second to close their connections. Here the drop itself blocks the clients.
#[tokio::test]
async fn a_process_does_not_wait_for_clients_that_watch() {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let server = start().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        let mut watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        assert!(watch.next().await.unwrap().is_ok());
        let begun = Instant::now();
        drop(server);
        shortest = shortest.min(begun.elapsed());
    }
    println!("ended with an open watch in {shortest:?}");
    assert!(shortest < Duration::from_millis(800), "{shortest:?}");
}

/// An ephemeral server shares its store with no other server, so it publishes no storage versions unless a flag requests it.
#[tokio::test]
async fn an_ephemeral_server_publishes_no_storage_versions() {
    let groups = async |server: &Keelson| -> Vec<String> {
        let groups = server.client().list_api_groups().await.unwrap().groups;
        groups.into_iter().map(|group| group.name).collect()
    };
    let internal = "internal.apiserver.k8s.io".to_owned();
    let server = start().await;
    let found = groups(&server).await;
    assert!(!found.contains(&internal) && found.contains(&"apps".to_owned()), "{found:?}");
    let other = Keelson::builder().form(form()).arg("--feature-gates=StorageVersionAPI=true").start().await.unwrap();
    assert!(groups(&other).await.contains(&internal));
}

#[tokio::test]
async fn a_binary_that_can_not_start_says_why() {
    let refused = Keelson::builder().form(form()).arg("--no-such-flag").start().await.unwrap_err().to_string();
    assert!(refused.contains("--no-such-flag"), "{refused}");
    let missing = Keelson::builder().form(Form::Process(PathBuf::from("/nowhere/keelson"))).start().await;
    assert!(matches!(missing, Err(Error::Io { .. })));
}
