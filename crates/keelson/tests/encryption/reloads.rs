//! Tests of a configuration file that changes while a server runs.
//!
//! The servers here check the file at short intervals.

use std::sync::Arc;

use keelson_storage::memory::MemoryStore;
use keelson_testkit::{KmsDouble, TestServer};

use crate::common::{
    FILE, SECRETS, check_prefix, configuration, create, encrypting, metrics, provider, rule, stored, until,
};

async fn reloading(store: &MemoryStore, text: &str) -> (TestServer, std::path::PathBuf) {
    let builder = encrypting(TestServer::builder().shared_store(Arc::new(store.clone())), text, true);
    let server = builder.start().await;
    let file = server.data_dir().join(FILE);
    (server, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_files_are_reloaded_and_invalid_ones_ignored() {
    let store = MemoryStore::new();
    let of = |keys: &[(&str, u8)]| configuration(&[rule("secrets", &provider("aescbc", keys))]);
    let (server, file) = reloading(&store, &of(&[("r1", b'r')])).await;
    server.raw().get("/readyz/kms-providers").await.expect(200);
    create(&server, "a").await;
    std::fs::write(&file, of(&[("r2", b's'), ("r1", b'r')])).unwrap();
    until("the file is read again", async || {
        metrics(&server).await.contains("encryption_config_controller_automatic_reloads_total{status=\"success\"")
    })
    .await;
    create(&server, "b").await;
    check_prefix(&stored(&store, "b").await, "k8s:enc:aescbc:v1:r2:");
    server.raw().get(format!("{SECRETS}/a")).await.expect(200);
    let failures = async || {
        let text = metrics(&server).await;
        let name = "apiserver_encryption_config_controller_automatic_reloads_total{status=\"failure\"";
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.rsplit_once(' ').map_or(0., |(_, count)| count.parse::<f64>().unwrap())
    };
    for (number, wrong) in
        ["kind: Foo\n".to_owned(), of(&[]), of(&[("r3", b't')]).replace("aescbc", "rot13")].into_iter().enumerate()
    {
        let before = failures().await;
        std::fs::write(&file, wrong).unwrap();
        until("the file is refused", async || failures().await > before).await;
        create(&server, &format!("c{number}")).await;
        check_prefix(&stored(&store, &format!("c{number}")).await, "k8s:enc:aescbc:v1:r2:");
    }
    server.raw().get("/healthz").await.expect(200);
    let info = metrics(&server).await;
    assert!(info.contains("apiserver_encryption_config_controller_last_config_info{"), "{info}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_put_back_makes_its_objects_readable() {
    let store = MemoryStore::new();
    let of = |keys: &[(&str, u8)]| configuration(&[rule("secrets", &provider("aesgcm", keys))]);
    let (mut server, file) = reloading(&store, &of(&[("k1", b'1')])).await;
    create(&server, "a").await;
    std::fs::write(&file, of(&[("k2", b'2')])).unwrap();
    server.restart().await;
    server.raw().get(format!("{SECRETS}/a")).await.expect(500);
    std::fs::write(&file, of(&[("k2", b'2'), ("k1", b'1')])).unwrap();
    until("the secret is read", async || server.raw().get(format!("{SECRETS}/a")).await.status == 200).await;
    server.raw().get(SECRETS).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_providers_wait_until_their_services_are_well() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let plain = configuration(&[rule("secrets", "{identity: {}}")]);
    let (server, file) = reloading(&store, &plain).await;
    kms.ail("not yet");
    let kms_rule =
        format!("{{kms: {{apiVersion: v2, name: one, endpoint: '{}'}}}}, {{identity: {{}}}}", kms.endpoint());
    std::fs::write(&file, configuration(&[rule("secrets", &kms_rule)])).unwrap();
    until("the service is called", async || kms.calls()[0] > 1).await;
    create(&server, "a").await;
    check_prefix(&stored(&store, "a").await, "{");
    kms.ail("ok");
    until("the service is used", async || {
        metrics(&server).await.contains("encryption_config_controller_automatic_reloads_total{status=\"success\"")
    })
    .await;
    create(&server, "c").await;
    check_prefix(&stored(&store, "c").await, "k8s:enc:kms:v2:one:");
}
