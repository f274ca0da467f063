//! Tests of values that can't be decrypted: errors have kube-apiserver's texts, the values are not overwritten, and
//! other objects work.
//!
//! The texts are recorded from kube-apiserver.

use keelson_storage::memory::MemoryStore;
use keelson_testkit::TestServer;
use serde_json::json;

use crate::common::{SECRETS, check_prefix, configuration, create, provider, rule, server, stop, stored};

const OLD: [(&str, u8); 1] = [("key1", b'1')];

async fn with_one_of_a_lost_key(kind: &str, keys: &[(&str, u8)]) -> (MemoryStore, TestServer) {
    let store = MemoryStore::new();
    let before = server(&store, &configuration(&[rule("secrets", &provider(kind, &OLD))])).await;
    create(&before, "old").await;
    stop(before).await;
    let after = server(&store, &configuration(&[rule("secrets", &provider(kind, keys))])).await;
    create(&after, "new").await;
    (store, after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_lost_key_is_named_and_others_are_served() {
    for (kind, keys, text) in [
        ("aescbc", ("key2", b'2'), "no matching key was found for the provided AES transformer"),
        ("secretbox", ("key2", b'2'), "no matching key was found for the provided Secretbox transformer"),
        ("aesgcm", ("key1", b'9'), "cipher: message authentication failed"),
        ("secretbox", ("key1", b'9'), "output array was not large enough for encryption"),
    ] {
        let (store, server) = with_one_of_a_lost_key(kind, &[keys]).await;
        let before = stored(&store, "old").await;
        let (raw, url) = (server.raw(), format!("{SECRETS}/old"));
        raw.get(format!("{SECRETS}/new")).await.expect(200);
        let secret = json!({"metadata": {"name": "old"}});
        for refused in [raw.get(&url).await, raw.put(&url, &secret).await, raw.delete(&url).await] {
            let status = refused.expect(500).json();
            assert_eq!(status["message"], format!("Internal error occurred: {text}"), "{kind}");
            assert_eq!(status["details"], json!({"causes": [{"message": text}]}));
        }
        raw.post(SECRETS, &secret).await.expect(409);
        let list = raw.get(SECRETS).await.expect(500).json();
        assert_eq!(list["reason"], "StoreReadError");
        assert_eq!(list["details"]["causes"][0]["field"], "/registry/secrets/default/old");
        assert_eq!(stored(&store, "old").await, before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_values_are_unreadable_without_a_configuration() {
    let store = MemoryStore::new();
    let before = server(&store, &configuration(&[rule("secrets", &provider("secretbox", &OLD))])).await;
    create(&before, "old").await;
    stop(before).await;
    let builder = TestServer::builder().shared_store(std::sync::Arc::new(store.clone()));
    let server = builder.start().await;
    let status = server.raw().get(format!("{SECRETS}/old")).await.expect(500).json();
    assert_eq!(status["message"], "Internal error occurred: identity transformer tried to read encrypted data");
    create(&server, "plain").await;
    check_prefix(&stored(&store, "plain").await, "{");
}
