//! Tests of replaced keys: a migration rewrites every object with the new key.
//!
//! The server starts no migration for a new key by itself, since other servers may not have the key yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_server::Switches;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction, Write};
use keelson_testkit::{HookReply, HookRequest, HookServer, Raw, TestServer};
use serde_json::json;

use crate::common::{check_prefix, configuration, create, encrypting, provider, rule, server, stop, stored, until};

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

/// Starts a server that migrates stored objects.
async fn migrating(store: &MemoryStore, configuration: &str) -> TestServer {
    let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
    let with_migrator =
        "*,-resourcequota-controller,-root-ca-certificate-publisher-controller,-serviceaccount-controller";
    let builder = encrypting(builder, configuration, false).configure(|config| {
        config.controllers = Switches::parse(with_migrator.split(',')).unwrap();
        config.registry.storage_version_api = true;
        config.registry.serve(keelson_server::catalogue(), &["api/all=true"]).unwrap();
    });
    builder.start().await
}

async fn until_succeeded(raw: &Raw, migration: &str) {
    until("the migration succeeds", async || {
        let migration = raw.get(format!("{MIGRATIONS}/{migration}")).await.expect(200).json();
        let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Succeeded" && condition["status"] == "True")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_migration_encrypts_with_the_new_key() {
    let store = MemoryStore::new();
    let of = |keys: &[(&str, u8)]| configuration(&[rule("secrets", &provider("secretbox", keys))]);
    let first = server(&store, &of(&[("key1", b'1')])).await;
    let names: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
    for name in &names {
        create(&first, name).await;
    }
    stop(first).await;
    let second = migrating(&store, &of(&[("key2", b'2'), ("key1", b'1')])).await;
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
    until_succeeded(&raw, "to-key2").await;
    for name in &names {
        check_prefix(&stored(&store, name).await, "k8s:enc:secretbox:v1:key2:");
    }
    assert_eq!(of_secrets(&raw.get(MIGRATIONS).await.expect(200).json()), 1);
    stop(second).await;
    // The old key is no longer needed.
    let third = server(&store, &of(&[("key2", b'2')])).await;
    assert_eq!(third.raw().get(crate::common::SECRETS).await.expect(200).json()["items"].as_array().unwrap().len(), 30);
}

/// A server that still has the old key first writes an object that the migration has already passed. The old key can be
/// removed after a success, so the migration must go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_does_not_end_while_objects_lie_under_the_old_key() {
    let store = MemoryStore::new();
    let of = |keys: &[(&str, u8)]| configuration(&[rule("secrets", &provider("secretbox", keys))]);
    let first = server(&store, &of(&[("key1", b'1')])).await;
    for number in 0..4 {
        create(&first, &format!("s{number}")).await;
    }
    stop(first).await;
    let before = stored(&store, "s0").await;
    let (other, is_written) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let hook = HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
        let (other, before) = (other.clone(), before.clone());
        let is_last = request.body["request"]["name"] == "s3" && !is_written.swap(true, Ordering::SeqCst);
        async move {
            if is_last {
                let key = StoreKey::new("/registry/secrets/default/s0");
                let write = Write::Put { key, value: before, expires: None };
                other.commit(Transaction { writes: vec![write], ..Transaction::default() }).await.unwrap();
            }
            let response = json!({"uid": request.body["request"]["uid"], "allowed": true});
            HookReply::Json(
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
            )
        }
    })
    .await;
    let server = migrating(&store, &of(&[("key2", b'2'), ("key1", b'1')])).await;
    let raw = server.raw();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["UPDATE"]});
    let webhook = json!({
        "name": "a.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule],
        "clientConfig": {"url": hook.url("/"), "caBundle": hook.ca_bundle()},
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    raw.post(configurations, &json!({"metadata": {"name": "a"}, "webhooks": [webhook]})).await.expect(201);
    let resource = json!({"resource": {"group": "", "resource": "secrets"}});
    raw.post(MIGRATIONS, &json!({"metadata": {"name": "to-key2"}, "spec": resource})).await.expect(201);
    until_succeeded(&raw, "to-key2").await;
    for number in 0..4 {
        check_prefix(&stored(&store, &format!("s{number}")).await, "k8s:enc:secretbox:v1:key2:");
    }
}
