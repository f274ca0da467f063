//! Tests of key services (KMS): one call for many objects, failure and recovery of a service, changed keys, and health
//! checks.
//!
//! The service is a double in this process. A test can stop and change it, and count its calls.

use keelson_storage::memory::MemoryStore;
use keelson_testkit::{KmsDouble, TestServer};
use serde_json::json;

use crate::common::{
    SECRETS, check_sealed, configuration, create, encrypting, metrics, rule, server, stop, stored, until,
};

const PREFIX: &str = "k8s:enc:kms:v2:one:";

fn with(kms: &KmsDouble) -> String {
    let provider = format!("{{kms: {{apiVersion: v2, name: one, endpoint: '{}', timeout: 1s}}}}", kms.endpoint());
    configuration(&[rule("secrets", &provider)])
}

async fn health(server: &TestServer, path: &str) -> u16 {
    server.raw().get(format!("/{path}/kms-providers")).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_values_stay_readable_while_a_key_service_is_down() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let server = server(&store, &with(&kms)).await;
    for number in 0..20 {
        create(&server, &format!("s{number}")).await;
    }
    let [_, encryptions, decryptions] = kms.calls();
    assert_eq!((encryptions, decryptions), (1, 0), "one seed for all secrets");
    check_sealed(&stored(&store, "s0").await, PREFIX);
    for path in ["healthz", "livez", "readyz"] {
        assert_eq!(health(&server, path).await, 200);
    }
    kms.die();
    until("the checks fail", async || health(&server, "readyz").await == 500).await;
    assert_eq!((health(&server, "healthz").await, health(&server, "livez").await), (500, 500));
    server.raw().get(format!("{SECRETS}/s0")).await.expect(200);
    create(&server, "while-it-is-away").await;
    kms.resume();
    until("the checks pass", async || health(&server, "readyz").await == 200).await;
    let text = metrics(&server).await;
    for part in [
        "apiserver_envelope_encryption_key_id_hash_total{",
        "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{",
        "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{",
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"one\"} 1",
        "grpc_status_code=\"OK\"",
        "grpc_status_code=\"Unavailable\"",
        "method_name=\"/v2.KeyManagementService/Status\"",
        "transformer_prefix=\"k8s:enc:kms:v2:one:\"",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("kek-1"), "key IDs are hashed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_without_its_key_service_and_recovers() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let first = server(&store, &with(&kms)).await;
    create(&first, "a").await;
    stop(first).await;
    kms.die();
    let second = server(&store, &with(&kms)).await;
    let refused = second.raw().get(format!("{SECRETS}/a")).await.expect(500).json();
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with("Internal error occurred: failed to decrypt DEK, error: rpc error: code = Unavailable")
    );
    second.raw().get("/api/v1/namespaces/default/configmaps").await.expect(200);
    let refused = second.raw().post(SECRETS, &json!({"metadata": {"name": "b"}})).await.expect(500).json();
    assert_eq!(refused["message"], "Internal error occurred: got unexpected nil transformer");
    kms.resume();
    until("the secret is read", async || second.raw().get(format!("{SECRETS}/a")).await.status == 200).await;
    second.raw().get(SECRETS).await.expect(200);
    create(&second, "b").await;
    assert_eq!(kms.calls()[2], 1, "one seed of the first server is decrypted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_update_encrypts_with_a_new_key_id() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let server = server(&store, &with(&kms)).await;
    create(&server, "a").await;
    let url = format!("{SECRETS}/a");
    let read = server.raw().get(&url).await.expect(200).json();
    server.raw().put(&url, &read).await.expect(200);
    let before = stored(&store, "a").await;
    assert!(crate::common::holds(&before, "kek-1"));
    kms.rotate("kek-2");
    until("the new key is used", async || kms.calls()[1] == 2).await;
    until("the object is written anew", async || {
        let read = server.raw().get(&url).await.expect(200).json();
        server.raw().put(&url, &read).await.expect(200);
        crate::common::holds(&stored(&store, "a").await, "kek-2")
    })
    .await;
    let version = |object: &serde_json::Value| object["metadata"]["resourceVersion"].clone();
    let read = server.raw().get(&url).await.expect(200).json();
    assert_eq!(version(&server.raw().put(&url, &read).await.expect(200).json()), version(&read));
    assert_eq!(kms.calls()[2], 0, "both seeds are in memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_key_that_the_service_has_lost_is_named() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let first = server(&store, &with(&kms)).await;
    create(&first, "old").await;
    stop(first).await;
    kms.rotate("kek-2");
    kms.lose("kek-1");
    let second = server(&store, &with(&kms)).await;
    create(&second, "new").await;
    let refused = second.raw().get(format!("{SECRETS}/old")).await.expect(500).json();
    let text = "failed to decrypt DEK, error: rpc error: code = Unknown desc = there is no key kek-1";
    assert_eq!(refused["details"]["causes"][0]["message"], text);
    second.raw().get(format!("{SECRETS}/new")).await.expect(200);
    assert_eq!(health(&second, "readyz").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_key_service_fails_the_check() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let server = server(&store, &with(&kms)).await;
    kms.ail("no disk");
    until("the check fails", async || health(&server, "readyz").await == 500).await;
    let answer = server.raw().get("/readyz?verbose").await.text();
    assert!(answer.contains("[-]kms-providers failed"), "{answer}");
    server.raw().get("/readyz?exclude=kms-providers").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_version_needs_its_gate_and_calls_for_each_write() {
    let (store, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let provider = format!("{{kms: {{name: first, endpoint: '{}'}}}}", kms.endpoint());
    let text = configuration(&[rule("secrets", &provider)]);
    let make = || encrypting(TestServer::builder().shared_store(std::sync::Arc::new(store.clone())), &text, false);
    let refused = make().try_start().await.err().unwrap();
    assert!(refused.contains("Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."), "{refused}");
    let gated = || make().configure(|config| config.encryption.first_kms = true);
    let server = gated().start().await;
    for name in ["a", "b"] {
        create(&server, name).await;
        check_sealed(&stored(&store, name).await, "k8s:enc:kms:v1:first:");
    }
    server.raw().get("/readyz/kms-provider-0").await.expect(200);
    stop(server).await;
    let again = gated().start().await;
    let list = again.raw().get(SECRETS).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}
