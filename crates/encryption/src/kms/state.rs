//! A provider of KMS v2: the seed that it writes with, the service's status, and the data keys that it reads with.
//!
//! A seed is encrypted by one call and used for all values until the key ID of the service changes. Status calls extend its use. After
//! [`WRITE_LIMIT`] without a good status writes fail, as upstream's do: an operator who changed the key can rely on that. Reads need the
//! service only for data keys that are not cached.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use keelson_meta::clock::rfc3339;
use keelson_meta::{Clock, Random};
use keelson_storage::Seal;
use keelson_supervision::{info_repeated, warn_repeated};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::cache::DataKeys;
use super::envelope::{cache_key, check_key_id, decode, hash_of, validate};
use super::proto::{
    AES_GCM_KEY, DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, SEED,
    StatusRequest, StatusResponse,
};
use super::service::KeyService;
use crate::ciphers::{self, DerivedKeyGcm, Gcm};
use crate::config::KmsEntry;
use crate::error::{TransformError, listed};
use crate::metrics::{EncryptionMetrics, KeyUse};

const STATUS: &str = "/v2.KeyManagementService/Status";
const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

/// The time for which a seed is used after the last good status.
const WRITE_LIMIT: Duration = Duration::from_mins(3);

/// The pauses between status calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    /// After a good status.
    pub(crate) good: Duration,
    /// After a bad one.
    pub(crate) bad: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { good: Duration::from_secs(20), bad: Duration::from_secs(3) }
    }
}

/// A data key that values are read with. Everything in it is the same for all values that it encrypts.
struct DataKey {
    cipher: DataCipher,
    /// The hash of the key ID of the service, for metrics.
    key_id_hash: String,
    seal: Seal,
}

enum DataCipher {
    Seed(Arc<DerivedKeyGcm>),
    Key(Box<Gcm>),
}

/// The seed that values are written with.
struct State {
    seed: Arc<DerivedKeyGcm>,
    key_id: String,
    encrypted: Vec<u8>,
    annotations: std::collections::BTreeMap<String, Vec<u8>>,
    cache_key: [u8; 32],
    /// The seed, as values are read with it.
    data_key: Arc<DataKey>,
}

/// A provider.
pub(crate) struct Kms {
    name: String,
    prefix: String,
    service: KeyService,
    state: ArcSwapOption<State>,
    /// The time until which the state is used for writing.
    expires: Mutex<Option<SystemTime>>,
    /// The version that the service stated first.
    version: Mutex<String>,
    /// Held by the one status call at a time.
    checking: AsyncMutex<()>,
    health: Mutex<Result<(), String>>,
    data_keys: DataKeys<DataKey>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: Arc<EncryptionMetrics>,
}

impl Kms {
    /// The provider of a configuration. Nothing is sent yet.
    pub(crate) fn new(
        entry: &KmsEntry,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: Arc<EncryptionMetrics>,
    ) -> Self {
        Self {
            prefix: format!("k8s:enc:kms:v2:{}:", entry.name),
            service: KeyService::new(entry, metrics.clone()),
            state: ArcSwapOption::empty(),
            expires: Mutex::default(),
            version: Mutex::default(),
            checking: AsyncMutex::default(),
            health: Mutex::new(Err("no status was received yet".to_owned())),
            data_keys: DataKeys::default(),
            name: entry.name.clone(),
            clock,
            random,
            metrics,
        }
    }

    /// The beginning of its values.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The seal of values that are written now; that of no value before there is a seed.
    pub(crate) fn seal_now(&self) -> Seal {
        self.state.load().as_ref().map_or_else(|| Seal::named(&self.prefix), |state| state.data_key.seal)
    }

    /// The outcome of the last status call.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// Calls for the status again and again. `recovered` is called when the service answers after a failure.
    pub(crate) async fn follow(&self, intervals: Intervals, recovered: impl Fn()) {
        loop {
            let was_well = self.health().is_ok();
            tokio::time::sleep(if was_well { intervals.good } else { intervals.bad }).await;
            let is_well = self.check().await.is_ok();
            if is_well && !was_well {
                info_repeated!(&self.name; provider = self.name, "the key service answers again");
                self.data_keys.forget_failures();
                recovered();
            }
        }
    }

    /// Calls for the status, and makes a new seed where the key ID has changed.
    ///
    /// # Errors
    /// In upstream's words.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let _one_at_a_time = self.checking.lock().await;
        let outcome = self.status().await;
        if let Err(error) = &outcome {
            warn_repeated!(&self.name; provider = self.name, %error, "the key service failed its check");
        }
        self.health.lock().clone_from(&outcome);
        outcome
    }

    async fn status(&self) -> Result<(), String> {
        let status: StatusResponse = self.service.call(STATUS, StatusRequest {}).await.map_err(|status| {
            let error = TransformError::of_call(&status);
            format!(
                "failed to perform status section of the healthz check for KMS Provider {}, error: {error}",
                self.name
            )
        })?;
        let mut faults = Vec::new();
        if status.healthz != "ok" {
            faults.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        faults.extend(self.version_fault(&status.version));
        match check_key_id(&status.key_id) {
            Err((code, fault)) => {
                self.metrics.note_invalid_key_id(&self.name, code);
                faults.push(format!("got invalid KMSv2 KeyID hash {:?}: {fault}", hash_of(&status.key_id)));
            }
            Ok(()) => {
                self.metrics.note_status(&self.name, &hash_of(&status.key_id), self.clock.now());
                faults.extend(self.rotate(&status.key_id).await.err());
            }
        }
        let Some(faults) = listed(&faults) else { return Ok(()) };
        Err(format!("kmsv2 Provider {} is not healthy, error: {faults}", self.name))
    }

    fn version_fault(&self, stated: &str) -> Option<String> {
        if stated != "v2" && stated != "v2beta1" {
            return Some(format!("expected KMSv2 API version v2, got {stated}"));
        }
        let mut first = self.version.lock();
        if first.is_empty() {
            stated.clone_into(&mut first);
        }
        let changed = || {
            format!(
                "KMSv2 API version should not change after the initial status response version {first}, got {stated}"
            )
        };
        (*first != stated).then(changed)
    }

    /// Extends the use of the seed where the key ID is that of the status. Else makes a new one.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        // From before the call on: it is the longest use.
        let expires = self.clock.now() + WRITE_LIMIT;
        let state = self.state.load_full();
        if state.as_ref().is_some_and(|state| state.key_id == key_id) {
            *self.expires.lock() = Some(expires);
            return Ok(());
        }
        let uid = self.random.uuid();
        let old = state.as_ref().map_or("", |state| &*state.key_id);
        let failed = |made: &str, error: &str| {
            format!(
                "failed to rotate DEK uid={uid:?}, useSeed=true, errGen={error}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}, stateKeyIDHash={:?}",
                hash_of(key_id),
                hash_of(made),
                hash_of(old)
            )
        };
        let made = self.generate(&uid).await.map_err(|error| failed("", &error.to_string()))?;
        if made.key_id != key_id {
            return Err(failed(&made.key_id, "<nil>"));
        }
        info_repeated!(&self.name;
            provider = self.name,
            key_id_hash = hash_of(key_id),
            "values are written under another key of the key service"
        );
        self.data_keys.put(made.cache_key, made.data_key.clone());
        self.note_size();
        *self.expires.lock() = Some(expires);
        self.state.store(Some(Arc::new(made)));
        Ok(())
    }

    async fn generate(&self, uid: &str) -> Result<State, TransformError> {
        let (begun, mut seed) = (Instant::now(), vec![0; ciphers::SEED]);
        self.random.fill(&mut seed);
        let derived = Arc::new(DerivedKeyGcm::new(&seed)?);
        self.metrics.note_key_generation(begun.elapsed());
        let request = EncryptRequest { plaintext: seed, uid: uid.to_owned() };
        let answer: EncryptResponse = self
            .service
            .call(ENCRYPT, request)
            .await
            .map_err(|status| TransformError::of_call(&status).behind("failed to encrypt DEK, error: "))?;
        let object = EncryptedObject {
            // Any that is not empty.
            encrypted_data: vec![0],
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: SEED,
        };
        validate(&object)?;
        Ok(State {
            data_key: Arc::new(self.data_key(&object, DataCipher::Seed(derived.clone()))),
            seed: derived,
            cache_key: cache_key(&object),
            key_id: object.key_id,
            encrypted: object.encrypted_dek_source,
            annotations: object.annotations,
        })
    }

    /// The data key of a value. A different key ID, or another kind of data key, makes the value stale: the next write
    /// encrypts it again.
    fn data_key(&self, object: &EncryptedObject, cipher: DataCipher) -> DataKey {
        let seal = format!("{}{}:{}", self.prefix, object.encrypted_dek_source_type, object.key_id);
        DataKey { cipher, key_id_hash: hash_of(&object.key_id), seal: Seal::named(&seal) }
    }

    fn note_size(&self) {
        self.metrics.note_data_keys(&self.name, self.data_keys.len());
    }

    /// Encrypts a value for a key of the store, behind its prefix.
    pub(crate) fn seal(&self, value: &[u8], key: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some(state) = self.state.load_full() else {
            return Err(TransformError::new("got unexpected nil transformer"));
        };
        let (now, expires) = (self.clock.now(), *self.expires.lock());
        if expires.is_none_or(|expires| now > expires) {
            let hash = &state.data_key.key_id_hash;
            let (expired, now) = (rfc3339(expires.unwrap_or(SystemTime::UNIX_EPOCH)), rfc3339(now));
            let text =
                format!("encryptedDEKSource with keyID hash {hash:?} expired at {expired} (current time is {now})");
            return Err(TransformError::new(text));
        }
        // A seed stays cached as long as new values are encrypted with it.
        self.data_keys.put(state.cache_key, state.data_key.clone());
        let object = EncryptedObject {
            encrypted_data: state.seed.seal(value, key, &*self.random)?,
            key_id: state.key_id.clone(),
            encrypted_dek_source: state.encrypted.clone(),
            annotations: state.annotations.clone(),
            encrypted_dek_source_type: SEED,
        };
        self.metrics.note_key_id(KeyUse::ToStorage, &self.name, &state.data_key.key_id_hash, now);
        let mut out = self.prefix.clone().into_bytes();
        prost::Message::encode(&object, &mut out).map_err(|error| TransformError::new(error.to_string()))?;
        Ok(out)
    }

    /// Decrypts what is stored behind the prefix under a key of the store.
    pub(crate) async fn open(&self, stored: &[u8], key: &[u8]) -> Result<(Vec<u8>, Seal), TransformError> {
        let object = decode(stored)?;
        let data_key = self.data_keys.get_or_fetch(cache_key(&object), || self.fetch(&object)).await?;
        self.metrics.note_key_id(KeyUse::FromStorage, &self.name, &data_key.key_id_hash, self.clock.now());
        let opened = match &data_key.cipher {
            DataCipher::Seed(seed) => seed.open(&object.encrypted_data, key),
            DataCipher::Key(gcm) => gcm.open(&object.encrypted_data, key),
        }?;
        Ok((opened, data_key.seal))
    }

    /// Has the service decrypt the data key of a value.
    async fn fetch(&self, object: &EncryptedObject) -> Result<DataKey, TransformError> {
        self.metrics.cache_misses.increment();
        let request = DecryptRequest {
            ciphertext: object.encrypted_dek_source.clone(),
            uid: self.random.uuid(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let answer: DecryptResponse = self
            .service
            .call(DECRYPT, request)
            .await
            .map_err(|status| TransformError::of_call(&status).behind("failed to decrypt DEK, error: "))?;
        let cipher = match object.encrypted_dek_source_type {
            AES_GCM_KEY => DataCipher::Key(Box::new(Gcm::new(&answer.plaintext)?)),
            _ => DataCipher::Seed(Arc::new(DerivedKeyGcm::new(&answer.plaintext)?)),
        };
        self.note_size();
        Ok(self.data_key(object, cipher))
    }
}
