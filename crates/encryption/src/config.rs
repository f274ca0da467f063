//! `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`: the rules of an operator, as they stand in a file.
//!
//! Read strictly and validated in upstream's words. Secrets are decoded once and have no text: no error and no log line shows them.
//! Upstream repeats a whole provider in one error; here its secrets are replaced.

mod document;
mod duration;
mod validation;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use keelson_meta::field_error::{self, FieldError};
use keelson_meta::go_format::quote;

use self::document::Fields;
pub(crate) use self::validation::parse_resource;
use crate::digest::sha256_of;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// The time limit of calls to a key service that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of cached data keys of a KMS v1 provider that names none.
const DEFAULT_CACHE_SIZE: i64 = 1000;

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// When the file can't be read, is no configuration, or breaks a rule.
    #[error("error while parsing file: {0}")]
    File(String),
    /// Its providers can't be made.
    #[error("error while building transformers: {0}")]
    Transformers(String),
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct EncryptionConfiguration {
    pub(crate) rules: Vec<Rule>,
}

/// A configuration with the hash of its file.
#[derive(Clone, Debug)]
pub struct ConfigurationFile {
    /// The rules and providers of the file.
    pub configuration: EncryptionConfiguration,
    /// `sha256:` and the hash of its bytes.
    pub hash: String,
}

/// Providers for some resources.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) resources: Vec<String>,
    pub(crate) providers: Vec<ProviderEntry>,
}

/// An element of a list of providers. A valid one has one field.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProviderEntry {
    pub(crate) aesgcm: Option<Vec<Key>>,
    pub(crate) aescbc: Option<Vec<Key>>,
    pub(crate) secretbox: Option<Vec<Key>>,
    pub(crate) identity: bool,
    pub(crate) kms: Option<KmsEntry>,
}

/// A named key.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// In base64.
    pub(crate) secret: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name: {}, Secret: [REDACTED]", self.name)
    }
}

/// A key service.
#[derive(Clone, Debug)]
pub(crate) struct KmsEntry {
    pub(crate) api_version: String,
    pub(crate) name: String,
    pub(crate) cache_size: Option<i64>,
    pub(crate) endpoint: String,
    /// In nanoseconds. A valid one is above 0.
    pub(crate) timeout: i64,
}

impl KmsEntry {
    /// The time limit of each call.
    pub(crate) fn timeout(&self) -> Duration {
        u64::try_from(self.timeout).map_or(DEFAULT_TIMEOUT, Duration::from_nanos)
    }
}

impl ConfigurationFile {
    /// Reads and validates a file. Names of key services must differ, those of KMS v1 too where `reloads`.
    ///
    /// # Errors
    /// In upstream's words, without secrets.
    pub fn read(file: &Path, reloads: bool) -> Result<Self, ConfigError> {
        Self::parse(&load(file)?, file, reloads)
    }

    /// Reads and validates a file that is read again. Returns `None` if its hash is the known one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_changed(file: &Path, known: &str) -> Result<Option<Self>, ConfigError> {
        let bytes = load(file)?;
        if sha256_of(&bytes) == known { Ok(None) } else { Self::parse(&bytes, file, true).map(Some) }
    }

    fn parse(bytes: &[u8], file: &Path, reloads: bool) -> Result<Self, ConfigError> {
        let configuration = EncryptionConfiguration::parse(bytes, file, reloads)?;
        Ok(Self { configuration, hash: sha256_of(bytes) })
    }
}

fn load(file: &Path) -> Result<Vec<u8>, ConfigError> {
    let name = quote(&file.display().to_string());
    let failed = |why: &dyn fmt::Display| {
        let text =
            format!("error while loading file: error reading encryption provider configuration file {name}: {why}");
        ConfigError::File(text)
    };
    let length = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if length > MOST_BYTES {
        return Err(failed(&format!("it has more than {MOST_BYTES} bytes")));
    }
    let bytes = std::fs::read(file).map_err(|error| failed(&error))?;
    if bytes.is_empty() {
        let text = format!("error while loading file: encryption provider configuration file {name} is empty");
        return Err(ConfigError::File(text));
    }
    Ok(bytes)
}

impl EncryptionConfiguration {
    /// Reads and validates the text of a file.
    ///
    /// # Errors
    /// As [`ConfigurationFile::read`].
    pub fn parse(bytes: &[u8], file: &Path, reloads: bool) -> Result<Self, ConfigError> {
        let decoded = document::parse(bytes, |root| Self { rules: rules(root) });
        let configuration = decoded.map_err(|fault| {
            let file = quote(&file.display().to_string());
            ConfigError::File(format!("error decoding encryption provider configuration file {file}: {fault}"))
        })?;
        let faults: Vec<FieldError> = validation::validate(&configuration, reloads);
        if faults.is_empty() { Ok(configuration) } else { Err(ConfigError::File(field_error::join(&faults))) }
    }
}

fn rules(root: &Fields<'_>) -> Vec<Rule> {
    let rules = root.objects("resources", &["resources", "providers"]);
    let rule = |fields: &Fields<'_>| Rule {
        resources: fields.texts("resources"),
        providers: fields
            .objects("providers", &["aesgcm", "aescbc", "secretbox", "identity", "kms"])
            .iter()
            .map(provider)
            .collect(),
    };
    rules.iter().map(rule).collect()
}

fn provider(fields: &Fields<'_>) -> ProviderEntry {
    let keys = |name: &str| {
        let provider = fields.object(name, &["keys"])?;
        let keys = provider.objects("keys", &["name", "secret"]);
        Some(keys.iter().map(|key| Key { name: key.text("name"), secret: key.text("secret") }).collect())
    };
    ProviderEntry {
        aesgcm: keys("aesgcm"),
        aescbc: keys("aescbc"),
        secretbox: keys("secretbox"),
        identity: fields.object("identity", &[]).is_some(),
        kms: fields.object("kms", &["apiVersion", "name", "cachesize", "endpoint", "timeout"]).map(|kms| {
            let api_version = Some(kms.text("apiVersion")).filter(|version| !version.is_empty());
            let api_version = api_version.unwrap_or_else(|| "v1".to_owned());
            let default_size = (api_version == "v1").then_some(DEFAULT_CACHE_SIZE);
            KmsEntry {
                cache_size: kms.integer("cachesize").or(default_size),
                name: kms.text("name"),
                endpoint: kms.text("endpoint"),
                timeout: kms
                    .duration("timeout")
                    .unwrap_or_else(|| i64::try_from(DEFAULT_TIMEOUT.as_nanos()).unwrap_or(i64::MAX)),
                api_version,
            }
        }),
    }
}
