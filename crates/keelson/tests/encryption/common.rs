//! Configurations, servers that use them, and access to stored bytes.
//!
//! This module contains no test.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use keelson_server::EncryptionPauses;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey};
use keelson_testkit::{Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};

/// The path of the secrets that tests create.
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// A text that no stored byte may show. The stored JSON would contain it in plain form in an annotation, and in base64
/// in the data.
pub(crate) const PLAIN: &str = "never-on-the-disk";
/// The name of the configuration in the data directory of a server.
pub(crate) const FILE: &str = "encryption.yaml";

/// An encryption key of 32 equal bytes, in base64.
pub(crate) fn secret(byte: u8) -> String {
    BASE64_STANDARD.encode([byte; 32])
}

/// A rule of a configuration: resources and their providers.
pub(crate) fn rule(resources: &str, providers: &str) -> String {
    format!("- resources: [{resources}]\n  providers: [{providers}]\n")
}

/// A provider with keys, each a name and the byte that it repeats.
pub(crate) fn provider(kind: &str, keys: &[(&str, u8)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, byte)| format!("{{name: {name}, secret: {}}}", secret(*byte))).collect();
    format!("{{{kind}: {{keys: [{}]}}}}", keys.join(", "))
}

/// The text of a configuration.
pub(crate) fn configuration(rules: &[String]) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{}", rules.concat())
}

/// Writes a configuration into the data directory of a server that will start, and sets the path in its settings.
pub(crate) fn encrypting(builder: TestServerBuilder, text: &str, reloads: bool) -> TestServerBuilder {
    let file = builder.data_dir().join(FILE);
    std::fs::write(&file, text).unwrap();
    builder.configure(|config| {
        config.encryption.file = Some(file);
        config.encryption.reloads = reloads;
        let short = Duration::from_millis(50);
        config.encryption.pauses = Some(EncryptionPauses { file: short, good: short, bad: short });
    })
}

/// Starts a server on a memory store with a configuration.
pub(crate) async fn server(store: &MemoryStore, text: &str) -> TestServer {
    encrypting(TestServer::builder().shared_store(Arc::new(store.clone())), text, false).start().await
}

/// Stops a server in order, so that the next one on its store need not wait for its lease to expire.
pub(crate) async fn stop(mut server: TestServer) {
    server.stop().await;
}

/// Creates a secret.
pub(crate) async fn create(server: &TestServer, name: &str) -> Value {
    create_by(&server.raw(), name).await
}

/// Creates a secret with this client.
pub(crate) async fn create_by(raw: &Raw, name: &str) -> Value {
    let secret = json!({
        "metadata": {"name": name, "annotations": {"note": PLAIN}},
        "data": {"k": BASE64_STANDARD.encode(PLAIN)},
    });
    raw.post(SECRETS, &secret).await.expect(201).json()
}

/// The bytes of a secret in a store.
pub(crate) async fn stored(store: &dyn Store, name: &str) -> Bytes {
    let key = StoreKey::new(format!("/registry/secrets/default/{name}"));
    store.get(&key).await.unwrap().unwrap_or_else(|| panic!("{name} is not stored")).value
}

/// Returns true if the bytes contain a text.
pub(crate) fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Checks that a stored value begins with a prefix.
#[track_caller]
pub(crate) fn check_prefix(value: &[u8], prefix: &str) {
    assert!(value.starts_with(prefix.as_bytes()), "{}", String::from_utf8_lossy(&value[..value.len().min(60)]));
}

/// Checks that a stored value begins with a prefix and does not contain the plain text.
#[track_caller]
pub(crate) fn check_sealed(value: &[u8], prefix: &str) {
    check_prefix(value, prefix);
    for shown in [PLAIN, &BASE64_STANDARD.encode(PLAIN), "metadata", "Secret"] {
        assert!(!holds(value, shown), "{shown} is stored");
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// The metrics of a server.
pub(crate) async fn metrics(server: &TestServer) -> String {
    server.raw().get("/metrics").await.expect(200).text()
}
