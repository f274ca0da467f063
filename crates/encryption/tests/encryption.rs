//! The providers and the store of encryption, without a server: upstream's errors, values that other programs have encrypted, and the
//! contract of stores with each provider.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keelson_encryption::{
    ConfigurationFile, EncryptedStore, EncryptionConfiguration, Environment, Resources, Transformers,
};
use keelson_meta::clock::ManualClock;
use keelson_meta::random::SystemRandom;
use keelson_meta::{GroupResource, SystemClock};
use keelson_storage::conformance::{Factory, run};
use keelson_storage::faulty::FaultyStore;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Seal, Store, StoreError, StoreKey, Transaction};
use keelson_teststores::KmsDouble;
use serde_json::Value;

fn environment() -> Environment {
    Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        metrics: Arc::default(),
        first_kms: false,
        kms_pauses: Some((Duration::from_millis(20), Duration::from_millis(20))),
    }
}

/// A configuration of one rule for secrets.
fn secrets(providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{providers}]\n"
    )
}

fn transformers(text: &str, environment: Environment) -> Result<Transformers, String> {
    let configuration = EncryptionConfiguration::parse(text.as_bytes(), Path::new("<file>"), false);
    let made = configuration.and_then(|configuration| Transformers::new(&configuration, environment));
    made.map_err(|error| error.to_string())
}

/// Every key belongs to a secret.
fn resources() -> Resources {
    let secrets = GroupResource { group: String::new(), resource: "secrets".to_owned() };
    Resources::new([("/".to_owned(), secrets)])
}

async fn over(store: &MemoryStore, providers: &str) -> EncryptedStore {
    let made = transformers(&secrets(providers), environment()).unwrap();
    made.prime().await;
    EncryptedStore::new(Arc::new(store.clone()), Arc::new(made), resources(), None)
}

fn base64_of(hex: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes_of(hex))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Recorded from kube-apiserver 1.36.
#[test]
fn configurations_are_accepted_and_refused_as_by_kube_apiserver() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("fixtures/configurations.json")).unwrap();
    assert!(cases.len() > 30);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let directory = tempfile::tempdir().unwrap();
    for case in cases {
        let text = case["configuration"].as_str().unwrap();
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        let read = ConfigurationFile::read(&file, false);
        let made = read.and_then(|read| Transformers::new(&read.configuration, environment()));
        let error = made.err().map(|error| error.to_string().replace(&*file.to_string_lossy(), "<file>"));
        // Upstream repeats the secret of a provider here.
        let expected =
            case["error"].as_str().map(|text| text.replace("MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=", "REDACTED"));
        if case["title"] == "not YAML" {
            assert!(error.unwrap().contains("couldn't get version/kind; json parse error"));
            continue;
        }
        assert_eq!(error, expected, "{}", case["title"]);
    }
}

/// Encrypted with Python's `cryptography` and `PyNaCl`.
#[tokio::test]
async fn values_of_other_programs_are_read() {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/values.json")).unwrap();
    let (key, plain) = (fixture["key"].as_str().unwrap(), bytes_of(fixture["value"].as_str().unwrap()));
    let kms = KmsDouble::start("kek-1");
    let stored = fixture["stored"].as_array().unwrap();
    assert_eq!(stored.len(), 9);
    for value in stored {
        let text = |name: &str| value[name].as_str().unwrap();
        let (provider, name) = (text("provider"), text("name"));
        let providers = match provider {
            "kms" => format!("{{kms: {{apiVersion: v2, name: {name}, endpoint: '{}'}}}}", kms.endpoint()),
            other => format!("{{{other}: {{keys: [{{name: {name}, secret: {}}}]}}}}", base64_of(text("key"))),
        };
        let memory = MemoryStore::new();
        memory.commit(Transaction::default().put(StoreKey::new(key), bytes_of(text("stored")))).await.unwrap();
        let found = over(&memory, &providers).await.get(&StoreKey::new(key)).await.unwrap().unwrap();
        assert_eq!(found.value, plain, "{provider}");
        assert!(!found.seal.is_unreadable() && found.seal != Seal::PLAIN);
    }
}

/// Which providers a store has in a run of the suite.
struct Encrypted {
    memory: MemoryStore,
    providers: String,
    _kms: KmsDouble,
}

impl Factory for Encrypted {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(over(&self.memory, &self.providers).await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_stores_is_kept_with_each_provider() {
    let keys = |kind: &str| format!("{{{kind}: {{keys: [{{name: key1, secret: {}}}]}}}}", base64_of(&"31".repeat(32)));
    let services = ["aesgcm", "aescbc", "secretbox", "kms", "identity"];
    for kind in services {
        let make = || {
            let kms = KmsDouble::start("kek-1");
            let providers = match kind {
                "kms" => format!("{{kms: {{apiVersion: v2, name: one, endpoint: '{}'}}}}", kms.endpoint()),
                "identity" => "{identity: {}}".to_owned(),
                other => keys(other),
            };
            Encrypted { memory: MemoryStore::new(), providers, _kms: kms }
        };
        run(make).await;
    }
}

#[tokio::test]
async fn an_unreadable_value_affects_no_other() {
    let memory = MemoryStore::new();
    let [old, new] = [b'1', b'2'].map(|byte| {
        format!("{{aesgcm: {{keys: [{{name: 'key{byte}', secret: {}}}]}}}}", base64_of(&format!("{byte:x}").repeat(32)))
    });
    let key = |name: &str| StoreKey::new(format!("/registry/secrets/{name}"));
    over(&memory, &old).await.commit(Transaction::default().put(key("a"), "old")).await.unwrap();
    let store = over(&memory, &new).await;
    store.commit(Transaction::default().put(key("b"), "new")).await.unwrap();
    let lost = store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(lost.value, Bytes::from_static(b"no matching key was found for the provided AES transformer"));
    assert!(lost.seal.is_unreadable());
    assert_eq!(store.get(&key("b")).await.unwrap().unwrap().value, Bytes::from_static(b"new"));
    let both = over(&memory, &format!("{new}, {old}")).await;
    let seal = |found: Option<keelson_storage::KeyValue>| found.unwrap().seal;
    assert_ne!(seal(both.get(&key("a")).await.unwrap()), both.seal("/registry/secrets/a"));
    assert_eq!(seal(both.get(&key("b")).await.unwrap()), both.seal("/registry/secrets/b"));
}

/// The cache verifies the store before it treats absent objects as deleted.
#[tokio::test]
async fn rows_that_the_engine_has_lost_are_reported() {
    let engine = FaultyStore::new(Arc::new(MemoryStore::new()));
    let made = transformers(&secrets("{identity: {}}"), environment()).unwrap();
    let store = EncryptedStore::new(Arc::new(engine.clone()), Arc::new(made), resources(), None);
    store.verify().await.unwrap();
    engine.lose_rows(true);
    let lost = store.verify().await;
    assert!(matches!(lost, Err(StoreError::Corrupt(_))), "{lost:?}");
}

#[tokio::test]
async fn one_seed_encrypts_all_values_and_cached_keys_survive_outages() {
    let (memory, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let providers = format!("{{kms: {{apiVersion: v2, name: one, endpoint: '{}', timeout: 1s}}}}", kms.endpoint());
    let key = |number: usize| StoreKey::new(format!("/registry/secrets/{number}"));
    let first = over(&memory, &providers).await;
    for number in 0..10_000 {
        first.commit(Transaction::default().put(key(number), "value")).await.unwrap();
    }
    assert_eq!(kms.calls(), [1, 1, 0], "one seed for ten thousand values");
    let raw = memory.get(&key(0)).await.unwrap().unwrap().value;
    assert!(raw.starts_with(b"k8s:enc:kms:v2:one:") && !raw.windows(5).any(|part| part == b"value"));
    let second = over(&memory, &providers).await;
    let begun = std::time::Instant::now();
    for number in 0..10_000 {
        assert_eq!(second.get(&key(number)).await.unwrap().unwrap().value, "value");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(kms.calls(), [2, 2, 1], "a call for the seed of the other");
    kms.die();
    for number in 0..100 {
        assert_eq!(second.get(&key(number)).await.unwrap().unwrap().value, "value");
    }
    second.commit(Transaction::default().put(key(0), "more")).await.unwrap();
    let third = over(&memory, &providers).await;
    let lost = third.get(&key(1)).await.unwrap().unwrap();
    let why = String::from_utf8_lossy(&lost.value).into_owned();
    assert!(why.starts_with("failed to decrypt DEK, error: rpc error: code = Unavailable"), "{why}");
    assert!(third.commit(Transaction::default().put(key(1), "x")).await.is_err());
    assert_eq!(memory.get(&key(1)).await.unwrap().unwrap().revision, lost.revision);
}

/// An operator who changed the key of a service relies on it.
#[tokio::test]
async fn a_seed_encrypts_for_at_most_three_minutes_without_a_status() {
    let (memory, kms) = (MemoryStore::new(), KmsDouble::start("kek-1"));
    let clock = Arc::new(ManualClock::new(std::time::SystemTime::UNIX_EPOCH));
    let providers = format!("{{kms: {{apiVersion: v2, name: one, endpoint: '{}'}}}}", kms.endpoint());
    let made = transformers(&secrets(&providers), Environment { clock: clock.clone(), ..environment() }).unwrap();
    made.prime().await;
    let store = EncryptedStore::new(Arc::new(memory.clone()), Arc::new(made), resources(), None);
    let put = || store.commit(Transaction::default().put(StoreKey::new("/registry/secrets/a"), "value"));
    clock.advance(Duration::from_secs(180));
    put().await.unwrap();
    clock.advance(Duration::from_secs(1));
    let refused = put().await.unwrap_err().to_string();
    let end = "expired at 1970-01-01T00:03:00Z (current time is 1970-01-01T00:03:01Z)";
    assert!(refused.starts_with("encryptedDEKSource with keyID hash \"sha256:") && refused.ends_with(end), "{refused}");
    assert_eq!(store.get(&StoreKey::new("/registry/secrets/a")).await.unwrap().unwrap().value, "value");
}
