//! Tests of providers on a store: prefixes, the order of rules, and values that one provider wrote and another reads.
//!
//! The store is in memory. `stores` tests the other engines.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use serde_json::{Value, json};

use crate::common::{PLAIN, SECRETS, check_sealed, configuration, create, provider, rule, server, stop, stored};

const IDENTITY: &str = "{identity: {}}";

async fn value(store: &MemoryStore, key: &str) -> Vec<u8> {
    store.get(&StoreKey::new(key)).await.unwrap().unwrap().value.to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_provider_stores_no_plain_byte_and_reads_its_values_back() {
    for kind in ["secretbox", "aesgcm", "aescbc"] {
        let store = MemoryStore::new();
        let text = configuration(&[rule("secrets", &provider(kind, &[("key1", b'1')]))]);
        let one = server(&store, &text).await;
        create(&one, "a").await;
        check_sealed(&stored(&store, "a").await, &format!("k8s:enc:{kind}:v1:key1:"));
        stop(one).await;
        let other = server(&store, &text).await;
        let read = other.raw().get(format!("{SECRETS}/a")).await.expect(200).json();
        assert_eq!(read["data"]["k"], BASE64_STANDARD.encode(PLAIN));
        let list = other.raw().get(SECRETS).await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        stop(other).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rule_for_a_resource_counts_and_wildcards_stand_behind_it() {
    let store = MemoryStore::new();
    let text = configuration(&[
        rule("secrets", &[provider("aescbc", &[("key1", b'1')]), IDENTITY.to_owned()].join(", ")),
        rule("'*.apps'", &[provider("secretbox", &[("box1", b'1')]), IDENTITY.to_owned()].join(", ")),
        rule("leases.coordination.k8s.io", IDENTITY),
        rule("'*.*'", &[provider("aesgcm", &[("all", b'a')]), IDENTITY.to_owned()].join(", ")),
    ]);
    let server = server(&store, &text).await;
    let raw = server.raw();
    create(&server, "s1").await;
    raw.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c1"}})).await.expect(201);
    let lease = json!({"metadata": {"name": "l1"}});
    raw.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await.expect(201);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"metadata": {"name": "d1"}, "spec": spec});
    raw.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await.expect(201);
    for (key, prefix) in [
        ("secrets/default/s1", "k8s:enc:aescbc:v1:key1:"),
        ("configmaps/default/c1", "k8s:enc:aesgcm:v1:all:"),
        ("namespaces/default", "k8s:enc:aesgcm:v1:all:"),
        ("deployments/default/d1", "k8s:enc:secretbox:v1:box1:"),
        ("leases/default/l1", "{"),
    ] {
        let stored = value(&store, &format!("/registry/{key}")).await;
        assert!(stored.starts_with(prefix.as_bytes()), "{key}: {}", String::from_utf8_lossy(&stored[..40]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_was_moved_to_another_key_does_not_open() {
    let store = MemoryStore::new();
    let text = configuration(&[rule("secrets", &provider("aesgcm", &[("key1", b'1')]))]);
    let server = server(&store, &text).await;
    create(&server, "a").await;
    let moved = stored(&store, "a").await;
    let key = StoreKey::new("/registry/secrets/default/moved");
    store.commit(Transaction::default().put(key, moved)).await.unwrap();
    let refused = server.raw().get(format!("{SECRETS}/moved")).await.expect(500).json();
    let text = "cipher: message authentication failed";
    assert_eq!(refused["message"], format!("Internal error occurred: {text}"));
    assert_eq!(refused["details"], json!({"causes": [{"message": text}]}));
    server.raw().get(format!("{SECRETS}/a")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_update_encrypts_with_the_current_key() {
    let store = MemoryStore::new();
    let of = |providers: &[String]| configuration(&[rule("secrets", &providers.join(", "))]);
    let [old, both, plain] = [
        of(&[provider("aescbc", &[("key1", b'1')])]),
        of(&[provider("aescbc", &[("key2", b'2'), ("key1", b'1')]), IDENTITY.to_owned()]),
        of(&[IDENTITY.to_owned(), provider("aescbc", &[("key2", b'2')])]),
    ];
    let first = server(&store, &old).await;
    create(&first, "a").await;
    stop(first).await;
    for (text, prefix) in [(both, "k8s:enc:aescbc:v1:key2:"), (plain, "{")] {
        let server = server(&store, &text).await;
        let url = format!("{SECRETS}/a");
        let read = server.raw().get(&url).await.expect(200).json();
        let written = server.raw().put(&url, &read).await.expect(200).json();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        assert_ne!(version(&written), version(&read));
        assert!(stored(&store, "a").await.starts_with(prefix.as_bytes()));
        let again = server.raw().put(&url, &written).await.expect(200).json();
        assert_eq!(version(&again), version(&written), "it is stored as it should be");
        stop(server).await;
    }
}
