//! Tests of encryption on every store: no plain text on the disk. The next server, a copy and a backup can read the
//! values of a server.
//!
//! Servers are processes, which are killed and restarted.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_testkit::{EtcdServer, PostgresServer, ProcessServer, TestServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::common::{
    PLAIN, SECRETS, check_sealed, configuration, create, create_by, encrypting, holds, provider, rule, stored,
};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const PREFIX: &str = "k8s:enc:aesgcm:v1:key1:";

fn text() -> String {
    configuration(&[rule("secrets", &provider("aesgcm", &[("key1", b'1')]))])
}

/// Starts a server process on a store, with a configuration if there is one.
async fn serve(store: &str, data: &Path, file: Option<&Path>) -> ProcessServer {
    let builder = ProcessServer::builder(KEELSON).data_dir(data).arg("--store").arg(store);
    match file {
        Some(file) => builder.arg("--encryption-provider-config").arg(file).start().await,
        None => builder.start().await,
    }
}

async fn check_read(server: &ProcessServer) {
    let read = server.raw().get(format!("{SECRETS}/a")).await.expect(200).json();
    assert_eq!(read["data"]["k"], BASE64_STANDARD.encode(PLAIN));
}

/// Checks that no file below a directory contains the plain text.
fn check_files(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            check_files(&entry.path());
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        for shown in [PLAIN, &BASE64_STANDARD.encode(PLAIN)] {
            assert!(!holds(&bytes, shown), "{} shows {shown}", entry.path().display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_of_the_embedded_store_or_its_backup_shows_an_object() {
    let directory = TempDir::new().unwrap();
    let [file, data, backup, restored] =
        ["encryption.yaml", "data", "backup", "restored"].map(|name| directory.path().join(name));
    std::fs::write(&file, text()).unwrap();
    let store = format!("sqlite:{}", data.display());
    let mut server = serve(&store, &data, Some(&file)).await;
    create_by(&server.raw(), "a").await;
    check_files(&data);
    let run = async |arguments: &[&str]| {
        let output = Command::new(KEELSON).args(arguments).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let [data_text, backup_text, restored_text] =
        [&data, &backup, &restored].map(|path| path.to_string_lossy().into_owned());
    run(&["storage", "backup", &backup_text, "--data-dir", &data_text]).await;
    server.kill().await;
    check_files(&data);
    assert!(holds(&std::fs::read(&backup).unwrap(), PREFIX) && !holds(&std::fs::read(&backup).unwrap(), PLAIN));
    run(&["storage", "check", "--data-dir", &data_text]).await;
    server.restart().await;
    check_read(&server).await;
    server.terminate().await;
    run(&["storage", "restore", &backup_text, "--data-dir", &restored_text]).await;
    check_read(&serve(&format!("sqlite:{restored_text}"), &restored, Some(&file)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_holds_no_object() {
    let Some(postgres) = PostgresServer::start() else { return };
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("encryption.yaml");
    std::fs::write(&file, text()).unwrap();
    let mut server = serve(&postgres.url(), directory.path(), Some(&file)).await;
    create_by(&server.raw(), "a").await;
    let engine = PostgresStore::open(PostgresConfig::from_url(&postgres.url()).unwrap()).await.unwrap();
    check_sealed(&stored(&engine, "a").await, PREFIX);
    server.kill().await;
    server.restart().await;
    check_read(&server).await;
}

/// kube-apiserver authenticates the key in etcd, with its prefix, together with the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_holds_values_as_kube_apiserver_writes_them() {
    let Some(etcd) = EtcdServer::start() else { return };
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("encryption.yaml");
    std::fs::write(&file, text()).unwrap();
    let url = format!("etcd://{}/clusters/one", etcd.endpoint());
    let mut server = serve(&url, directory.path(), Some(&file)).await;
    create_by(&server.raw(), "a").await;
    let engine = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let value = stored(&engine, "a").await;
    check_sealed(&value, PREFIX);
    let (nonce, sealed) = value[PREFIX.len()..].split_first_chunk::<12>().unwrap();
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[b'1'; 32]).unwrap());
    let mut sealed = sealed.to_vec();
    let authenticated = Aad::from("/clusters/one/secrets/default/a");
    let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), authenticated, &mut sealed).unwrap();
    assert!(opened.starts_with(b"{\"kind\":\"Secret\"") && holds(opened, PLAIN));
    server.kill().await;
    server.restart().await;
    check_read(&server).await;
    server.terminate().await;
    drop(engine);
    // A copy to keys with another prefix needs the configuration, since each value is bound to its key.
    let copied = directory.path().join("copied");
    let to = format!("sqlite:{}", copied.display());
    let refused = Command::new(KEELSON).args(["storage", "copy", &url, &to]).output().await.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("--encryption-provider-config"), "{told}");
    let path = file.to_string_lossy().into_owned();
    let copy = ["storage", "copy", "--encryption-provider-config", &path, &url, &to];
    let done = Command::new(KEELSON).args(copy).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    check_files(&copied);
    let keys = directory.path().join("pki");
    Command::new("cp").arg("-r").arg(keys).arg(&copied).status().await.unwrap();
    check_read(&serve(&to, &copied, Some(&file)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_history_and_continued_lists_are_as_without_encryption() {
    let mut server = encrypting(TestServer::builder().sqlite(), &text(), false).start().await;
    let first = create(&server, "a").await;
    for name in ["b", "c"] {
        create(&server, name).await;
    }
    let raw = server.raw();
    let page = raw.get(format!("{SECRETS}?limit=1")).await.expect(200).json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    create(&server, "d").await;
    server.restart().await;
    let raw = server.raw();
    let rest = raw.get(format!("{SECRETS}?limit=10&continue={token}")).await.expect(200).json();
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "c"]);
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw.get(format!("{SECRETS}?watch=true&resourceVersion={from}")).stream().await;
    for name in ["b", "c", "d"] {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        assert_eq!(event["object"]["data"]["k"], BASE64_STANDARD.encode(PLAIN));
    }
}
