//! Tests of replaced keys: a migration rewrites every object with the new key.
//!
//! The server starts no migration for a new key by itself, since other servers may not have the key yet.

use std::sync::Arc;

use keelson_server::Switches;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::TestServer;
use serde_json::json;

use crate::common::{check_prefix, configuration, create, encrypting, provider, rule, server, stop, stored, until};

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_encrypts_what_lies_under_another_key_and_none_is_made_for_it() {
    let store = MemoryStore::new();
    let of = |keys: &[(&str, u8)]| configuration(&[rule("secrets", &provider("secretbox", keys))]);
    let first = server(&store, &of(&[("key1", b'1')])).await;
    let names: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
    for name in &names {
        create(&first, name).await;
    }
    stop(first).await;
    let builder = encrypting(
        TestServer::builder().shared_store(Arc::new(store.clone())),
        &of(&[("key2", b'2'), ("key1", b'1')]),
        false,
    );
    let with_migrator =
        "*,-resourcequota-controller,-root-ca-certificate-publisher-controller,-serviceaccount-controller";
    let builder = builder.configure(|config| {
        config.controllers = Switches::parse(with_migrator.split(',')).unwrap();
        config.registry.storage_version_api = true;
        config.registry.serve(keelson_server::catalogue(), &["api/all=true"]).unwrap();
    });
    let second = builder.start().await;
    let raw = second.raw();
    let made = json!({
        "metadata": {"name": "to-key2"},
        "spec": {"resource": {"group": "", "resource": "secrets"}},
    });
    let list = raw.get(MIGRATIONS).await.expect(200).json();
    let of_secrets = |list: &serde_json::Value| {
        let items = list["items"].as_array().unwrap();
        items.iter().filter(|item| item["spec"]["resource"]["resource"] == "secrets").count()
    };
    assert_eq!(of_secrets(&list), 0, "objects under another key are in the agreed version");
    check_prefix(&stored(&store, "s0").await, "k8s:enc:secretbox:v1:key1:");
    raw.post(MIGRATIONS, &made).await.expect(201);
    until("the migration succeeds", async || {
        let migration = raw.get(format!("{MIGRATIONS}/to-key2")).await.expect(200).json();
        let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Succeeded" && condition["status"] == "True")
    })
    .await;
    for name in &names {
        check_prefix(&stored(&store, name).await, "k8s:enc:secretbox:v1:key2:");
    }
    assert_eq!(of_secrets(&raw.get(MIGRATIONS).await.expect(200).json()), 1);
    stop(second).await;
    // The old key is no longer needed.
    let third = server(&store, &of(&[("key2", b'2')])).await;
    assert_eq!(third.raw().get(crate::common::SECRETS).await.expect(200).json()["items"].as_array().unwrap().len(), 30);
}
