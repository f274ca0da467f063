//! A provider of KMS v1, which upstream has deprecated: a data key for each value, encrypted by a call for each write.
//!
//! The envelope is the length of the encrypted data key in two bytes, the encrypted data key, and the value in AES-GCM. Values in AES-CBC
//! of old servers are read, and count as sealed otherwise.

use std::sync::Arc;
use std::time::Instant;

use keelson_meta::Random;
use keelson_storage::Seal;
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tonic::Status;

use super::cache::DataKeys;
use super::proto::{FirstRequest, FirstResponse, FirstVersionRequest, FirstVersionResponse};
use super::service::KeyService;
use super::state::Intervals;
use crate::ciphers::{Cbc, Cipher, Gcm, SEED};
use crate::config::KmsEntry;
use crate::error::TransformError;
use crate::metrics::EncryptionMetrics;

const API: &str = "v1beta1";
const VERSION: &str = "/v1beta1.KeyManagementService/Version";
const ENCRYPT: &str = "/v1beta1.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v1beta1.KeyManagementService/Decrypt";

/// The ciphers of one data key.
struct DataKey {
    gcm: Cipher,
    cbc: Cipher,
}

/// A provider.
pub(crate) struct FirstKms {
    name: String,
    prefix: String,
    service: KeyService,
    data_keys: DataKeys<DataKey>,
    /// True once the service has stated its version.
    is_known: Mutex<bool>,
    health: Mutex<Result<(), String>>,
    random: Arc<dyn Random>,
    metrics: Arc<EncryptionMetrics>,
    cache_size: usize,
}

impl DataKey {
    fn new(key: &[u8]) -> Result<Self, TransformError> {
        Ok(Self { gcm: Cipher::Gcm(Gcm::new(key)?), cbc: Cipher::Cbc(Box::new(Cbc::new(key)?)) })
    }
}

impl FirstKms {
    /// The provider of a configuration. Nothing is sent yet.
    pub(crate) fn new(entry: &KmsEntry, random: Arc<dyn Random>, metrics: Arc<EncryptionMetrics>) -> Self {
        let cache_size = entry.cache_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        Self {
            name: entry.name.clone(),
            prefix: format!("k8s:enc:kms:v1:{}:", entry.name),
            service: KeyService::new(entry, metrics.clone()),
            data_keys: DataKeys::of_at_most(cache_size),
            is_known: Mutex::new(false),
            health: Mutex::new(Err("no status was received yet".to_owned())),
            random,
            metrics,
            cache_size,
        }
    }

    /// The beginning of its values.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The seal of values that are written now.
    pub(crate) fn seal_now(&self) -> Seal {
        Seal::named(&self.prefix)
    }

    /// The outcome of the last check.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// Checks the service again and again. `recovered` is called when it answers after a failure.
    pub(crate) async fn follow(&self, intervals: Intervals, recovered: impl Fn()) {
        loop {
            let was_well = self.health().is_ok();
            tokio::time::sleep(if was_well { intervals.good } else { intervals.bad }).await;
            if self.check().await.is_ok() && !was_well {
                self.data_keys.forget_failures();
                recovered();
            }
        }
    }

    /// Has the service encrypt and decrypt a text.
    ///
    /// # Errors
    /// In upstream's words.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let section = |section: &str, status: &Status| {
            let error = TransformError::of_call(status);
            format!(
                "failed to perform {section} section of the healthz check for KMS Provider {}, error: {error}",
                self.name
            )
        };
        let outcome = match self.call(ENCRYPT, b"ping".to_vec()).await {
            Err(status) => Err(section("encrypt", &status)),
            Ok(sealed) => self.call(DECRYPT, sealed).await.map(drop).map_err(|status| section("decrypt", &status)),
        };
        if let Err(error) = &outcome {
            warn_repeated!(&self.name; provider = self.name, %error, "the key service failed its check");
        }
        self.health.lock().clone_from(&outcome);
        outcome
    }

    async fn call(&self, method: &'static str, content: Vec<u8>) -> Result<Vec<u8>, Status> {
        if !*self.is_known.lock() {
            let request = FirstVersionRequest { version: API.to_owned() };
            let answer: FirstVersionResponse = self.service.call(VERSION, request).await?;
            if answer.version != API {
                let stated = answer.version;
                let text = format!("KMS provider api version {stated} is not supported, only {API} is supported now");
                return Err(Status::unknown(text));
            }
            *self.is_known.lock() = true;
        }
        let request = FirstRequest { version: API.to_owned(), content };
        let answer: FirstResponse = self.service.call(method, request).await?;
        Ok(answer.content)
    }

    fn note_fill(&self) {
        if self.cache_size > 0 {
            self.metrics.note_fill(self.data_keys.len(), self.cache_size);
        }
    }

    /// Encrypts a value for a key of the store, behind its prefix.
    pub(crate) async fn seal(&self, value: &[u8], key: &[u8]) -> Result<Vec<u8>, TransformError> {
        let (begun, mut data_key) = (Instant::now(), [0; SEED]);
        self.random.fill(&mut data_key);
        self.metrics.note_key_generation(begun.elapsed());
        let sealed = self.call(ENCRYPT, data_key.to_vec()).await.map_err(|status| TransformError::of_call(&status))?;
        let length = u16::try_from(sealed.len())
            .map_err(|_| TransformError::new("the encrypted data key has more than 65535 bytes"))?;
        let ciphers = Arc::new(DataKey::new(&data_key)?);
        self.data_keys.put(Sha256::digest(&sealed).into(), ciphers.clone());
        self.note_fill();
        let head = [self.prefix.as_bytes(), &length.to_be_bytes(), &sealed].concat();
        ciphers.gcm.seal(&head, value, key, &*self.random)
    }

    /// Decrypts what is stored behind the prefix under a key of the store.
    pub(crate) async fn open(&self, stored: &[u8], key: &[u8]) -> Result<(Vec<u8>, Seal), TransformError> {
        let split = || {
            let (length, rest) = stored.split_first_chunk::<2>()?;
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
        };
        let (sealed, value) = split().ok_or_else(|| {
            TransformError::new(
                "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data",
            )
        })?;
        let fetch = || async {
            self.metrics.cache_misses.increment();
            let data_key = self.call(DECRYPT, sealed.to_vec()).await;
            DataKey::new(&data_key.map_err(|status| TransformError::of_call(&status))?)
        };
        let ciphers = self.data_keys.get_or_fetch(Sha256::digest(sealed).into(), fetch).await?;
        self.note_fill();
        let first = match ciphers.gcm.open(value, key) {
            Ok(opened) => return Ok((opened, self.seal_now())),
            Err(error) => error,
        };
        match ciphers.cbc.open(value, key) {
            Ok(opened) => Ok((opened, Seal::named(&format!("{}cbc", self.prefix)))),
            Err(error) => Err(TransformError::joined(vec![first, error])),
        }
    }
}
