//! The providers of each resource, made of a configuration.
//!
//! The first provider of a resource writes. All read, in their order: each one whose prefix a value has is tried until one opens it. A rule
//! for a resource counts before that for its group, and that before the one for everything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures::future::join_all;
use keelson_meta::{Clock, GroupResource, Random};
use keelson_storage::Seal;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::ciphers::{Cbc, Cipher, Gcm, SecretBox};
use crate::config::{ConfigError, EncryptionConfiguration, Key, ProviderEntry, Rule, parse_resource};
use crate::error::{TransformError, listed};
use crate::kms::{FirstKms, Intervals, Kms};
use crate::metrics::{EncryptionMetrics, KeyUse};

/// The beginning of every encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// Upstream's refusal of KMS v1 without its gate.
const FIRST_IS_OFF: &str = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.";

/// The surroundings of providers.
#[derive(Clone)]
pub struct Environment {
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for nonces and data keys.
    pub random: Arc<dyn Random>,
    /// Numbers.
    pub metrics: Arc<EncryptionMetrics>,
    /// True with the feature gate `KMSv1`.
    pub first_kms: bool,
    /// The pause between checks of a key service that is well, and of one that is not; `None` for the usual ones.
    pub kms_pauses: Option<(Duration, Duration)>,
}

/// The providers of a configuration.
pub struct Transformers {
    /// By group and plural name. `*` is any.
    chains: HashMap<Box<str>, HashMap<Box<str>, Arc<Chain>>>,
    services: Vec<KeyService>,
    /// The time that checks of all key services may take together, twice.
    grace: Duration,
    environment: Environment,
    /// Ends what follows the key services.
    closing: CancellationToken,
}

/// A key service of either version.
#[derive(Clone)]
enum KeyService {
    First(Arc<FirstKms>),
    Second(Arc<Kms>),
}

/// The providers of a resource.
#[derive(Default)]
pub(crate) struct Chain(Vec<Provider>);

#[derive(Clone)]
enum Provider {
    /// Values are stored as they are.
    Identity,
    Keys(Arc<Keys>),
    First(Arc<FirstKms>),
    Second(Arc<Kms>),
}

/// The keys of a provider.
struct Keys {
    prefix: &'static str,
    /// The kind of cipher in an error of upstream.
    kind: &'static str,
    keys: Vec<NamedKey>,
}

struct NamedKey {
    /// Its name and a colon.
    prefix: String,
    /// The prefix of a value.
    head: Vec<u8>,
    cipher: Cipher,
    seal: Seal,
}

/// A value and the key of the store that it is for.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The key as kube-apiserver has it in etcd.
    pub(crate) key: &'a [u8],
    /// The resource in metrics.
    pub(crate) resource: &'a str,
}

impl Transformers {
    /// The providers of a configuration. Key services are not called yet.
    ///
    /// # Errors
    /// When a rule hides another, or a key service is not allowed.
    pub fn new(configuration: &EncryptionConfiguration, environment: Environment) -> Result<Self, ConfigError> {
        let mut made = Self {
            chains: HashMap::new(),
            services: Vec::new(),
            grace: Duration::ZERO,
            environment,
            closing: CancellationToken::new(),
        };
        let mut chains: Vec<(GroupResource, Chain)> = Vec::new();
        for Rule { resources, providers } in &configuration.rules {
            let providers = providers.iter().map(|entry| made.provider(entry)).collect::<Result<Vec<_>, _>>();
            let providers = providers.map_err(ConfigError::Transformers)?;
            for text in resources {
                let resource = parse_resource(text);
                if let Some(earlier) = chains.iter().map(|(known, _)| known).find(|known| masks(known, &resource)) {
                    let (resource, earlier) = (resource_name(&resource), resource_name(earlier));
                    let fault = format!("resource {resource:?} is masked by earlier rule {earlier:?}");
                    return Err(ConfigError::Transformers(fault));
                }
                match chains.iter_mut().find(|(known, _)| *known == resource) {
                    Some((_, chain)) => chain.0.extend(providers.iter().cloned()),
                    None => chains.push((resource, Chain(providers.clone()))),
                }
            }
        }
        for (resource, chain) in chains {
            let of_group = made.chains.entry(resource.group.into()).or_default();
            of_group.insert(resource.resource.into(), Arc::new(chain));
        }
        Ok(made)
    }

    fn provider(&mut self, entry: &ProviderEntry) -> Result<Provider, String> {
        let keys = |prefix, kind, keys: &[Key], cipher: fn(&[u8]) -> Result<Cipher, TransformError>| {
            Keys::new(prefix, kind, keys, cipher).map(|keys| Provider::Keys(Arc::new(keys)))
        };
        if let Some(given) = &entry.aesgcm {
            return keys("k8s:enc:aesgcm:v1:", "AES", given, |key| Gcm::new(key).map(Cipher::Gcm));
        }
        if let Some(given) = &entry.aescbc {
            return keys("k8s:enc:aescbc:v1:", "AES", given, |key| Cbc::new(key).map(Box::new).map(Cipher::Cbc));
        }
        if let Some(given) = &entry.secretbox {
            let cipher = |key: &[u8]| SecretBox::new(key).map(Cipher::SecretBox);
            return keys("k8s:enc:secretbox:v1:", "Secretbox", given, cipher);
        }
        let Some(kms) = &entry.kms else { return Ok(Provider::Identity) };
        let Environment { clock, random, metrics, first_kms, .. } = self.environment.clone();
        if kms.api_version == "v1" {
            if !first_kms {
                return Err(FIRST_IS_OFF.to_owned());
            }
            let service = Arc::new(FirstKms::new(kms, random, metrics));
            self.services.push(KeyService::First(service.clone()));
            self.grace += 4 * kms.timeout();
            return Ok(Provider::First(service));
        }
        let service = Arc::new(Kms::new(kms, clock, random, metrics));
        self.services.push(KeyService::Second(service.clone()));
        self.grace += 2 * kms.timeout();
        Ok(Provider::Second(service))
    }

    /// The providers of a resource; `None` where no rule names it.
    pub(crate) fn chain(&self, group: &str, resource: &str) -> Option<&Arc<Chain>> {
        let of = |group: &str, resource: &str| self.chains.get(group)?.get(resource);
        of(group, resource).or_else(|| of(group, "*")).or_else(|| of("*", "*"))
    }

    /// Calls all key services for the first time. One that does not answer is called again by [`follow`](Self::follow).
    pub async fn prime(&self) {
        join_all(self.services.iter().map(KeyService::check)).await;
    }

    /// Calls all key services, and checks their health.
    ///
    /// # Errors
    /// Names the unhealthy ones.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.prime().await;
        self.health()
    }

    /// Checks the health of all key services at their last calls.
    ///
    /// # Errors
    /// Names the unhealthy ones.
    pub(crate) fn health(&self) -> Result<(), String> {
        let checked = self.services.iter().enumerate();
        let faults: Vec<String> = checked
            .filter_map(|(at, service)| Some(format!("kms-provider-{at}: {}", service.health().err()?)))
            .collect();
        listed(&faults).map_or(Ok(()), Err)
    }

    /// The health of one key service.
    pub(crate) fn health_of(&self, place: usize) -> Result<(), String> {
        self.services.get(place).map_or(Ok(()), KeyService::health)
    }

    /// The number of key services, and whether one of them is of the first version.
    pub(crate) fn services(&self) -> (usize, bool) {
        let is_first = |service: &KeyService| matches!(service, KeyService::First(_));
        (self.services.len(), self.services.iter().any(is_first))
    }

    /// The longest time for a check of new providers before they are used.
    pub(crate) fn grace(&self) -> Duration {
        self.grace
    }

    /// Calls the key services from time to time until the providers are closed. `recovered` is called when one answers after a failure.
    pub(crate) async fn follow(&self, recovered: impl Fn()) {
        if self.services.is_empty() {
            return self.closing.cancelled().await;
        }
        let intervals = self.environment.kms_pauses.map(|(good, bad)| Intervals { good, bad }).unwrap_or_default();
        let all = join_all(self.services.iter().map(|service| async {
            match service {
                KeyService::First(kms) => kms.follow(intervals, &recovered).await,
                KeyService::Second(kms) => kms.follow(intervals, &recovered).await,
            }
        }));
        let _: Option<Vec<()>> = self.closing.run_until_cancelled(all).await;
    }

    /// Ends [`follow`](Self::follow). Values can still be opened.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    pub(crate) fn metrics(&self) -> &EncryptionMetrics {
        &self.environment.metrics
    }

    pub(crate) fn random(&self) -> &dyn Random {
        &*self.environment.random
    }
}

impl KeyService {
    async fn check(&self) {
        // The outcome is kept there.
        let _kept = match self {
            Self::First(kms) => kms.check().await,
            Self::Second(kms) => kms.check().await,
        };
    }

    fn health(&self) -> Result<(), String> {
        match self {
            Self::First(kms) => kms.health(),
            Self::Second(kms) => kms.health(),
        }
    }
}

/// Returns true if an earlier rule leaves a later one without effect.
fn masks(earlier: &GroupResource, later: &GroupResource) -> bool {
    earlier.resource == "*" && (earlier.group == later.group || earlier.group == "*")
}

/// A resource as configurations name it.
fn resource_name(resource: &GroupResource) -> String {
    if resource.group.is_empty() && resource.resource == "*" { "*.".to_owned() } else { resource.to_string() }
}

impl Keys {
    fn new(
        prefix: &'static str,
        kind: &'static str,
        keys: &[Key],
        cipher: fn(&[u8]) -> Result<Cipher, TransformError>,
    ) -> Result<Self, String> {
        let named = |key: &Key| {
            let secret = BASE64_STANDARD.decode(&key.secret);
            let secret = secret.map_err(|_| format!("could not obtain secret for named key {}", key.name))?;
            let cipher = cipher(&secret)
                .map_err(|error| format!("error while creating cipher for named key {}: {error}", key.name))?;
            let own = format!("{}:", key.name);
            // Two keys of one name are different seals. The hash stays in this process.
            let hash = HEXLOWER.encode(&Sha256::digest(&secret)[..8]);
            let seal = Seal::named(&format!("{prefix}{own}{hash}"));
            Ok(NamedKey { head: format!("{prefix}{own}").into_bytes(), prefix: own, cipher, seal })
        };
        Ok(Self { prefix, kind, keys: keys.iter().map(named).collect::<Result<_, String>>()? })
    }

    fn seal(&self, value: &[u8], place: Place<'_>, transformers: &Transformers) -> Result<Vec<u8>, TransformError> {
        let begun = Instant::now();
        let key = self.keys.first().ok_or_else(|| TransformError::new("the provider has no keys"))?;
        let sealed = key.cipher.seal(&key.head, value, place.key, transformers.random());
        let failed = sealed.as_ref().err().map(TransformError::label);
        let metrics = transformers.metrics();
        metrics.note(place.resource, KeyUse::ToStorage, &key.prefix, begun.elapsed(), failed);
        sealed
    }

    fn open(
        &self,
        stored: &[u8],
        place: Place<'_>,
        metrics: &EncryptionMetrics,
    ) -> Result<(Vec<u8>, Seal), TransformError> {
        let (begun, mut failures) = (Instant::now(), Vec::new());
        for key in &self.keys {
            let Some(sealed) = stored.strip_prefix(key.prefix.as_bytes()) else { continue };
            let opened = key.cipher.open(sealed, place.key);
            let failed = opened.as_ref().err().map(TransformError::label);
            metrics.note(place.resource, KeyUse::FromStorage, &key.prefix, begun.elapsed(), failed);
            match opened {
                Ok(opened) => return Ok((opened, key.seal)),
                Err(error) => failures.push(error),
            }
        }
        if !failures.is_empty() {
            return Err(TransformError::joined(failures));
        }
        let kind = self.kind;
        let missing = TransformError::new(format!("no matching key was found for the provided {kind} transformer"));
        metrics.note(place.resource, KeyUse::FromStorage, "unknown", begun.elapsed(), Some(missing.label()));
        Err(missing)
    }
}

impl Provider {
    fn prefix(&self) -> &str {
        match self {
            Self::Identity => "",
            Self::Keys(keys) => keys.prefix,
            Self::First(kms) => kms.prefix(),
            Self::Second(kms) => kms.prefix(),
        }
    }
}

impl Chain {
    /// The seal of values that are written now.
    pub(crate) fn seal_now(&self) -> Seal {
        match self.0.first() {
            None | Some(Provider::Identity) => Seal::PLAIN,
            Some(Provider::Keys(keys)) => keys.keys.first().map_or(Seal::PLAIN, |key| key.seal),
            Some(Provider::First(kms)) => kms.seal_now(),
            Some(Provider::Second(kms)) => kms.seal_now(),
        }
    }

    /// Encrypts a value by the first provider.
    pub(crate) async fn seal(
        &self,
        value: Bytes,
        place: Place<'_>,
        transformers: &Transformers,
    ) -> Result<Bytes, TransformError> {
        let begun = Instant::now();
        let provider = self.0.first().unwrap_or(&Provider::Identity);
        let sealed = match provider {
            Provider::Identity => Ok(value),
            Provider::Keys(keys) => keys.seal(&value, place, transformers).map(Bytes::from),
            Provider::First(kms) => kms.seal(&value, place.key).await.map(Bytes::from),
            Provider::Second(kms) => kms.seal(&value, place.key).map(Bytes::from),
        };
        let failed = sealed.as_ref().err().map(TransformError::label);
        let (metrics, prefix) = (transformers.metrics(), provider.prefix());
        metrics.note(place.resource, KeyUse::ToStorage, prefix, begun.elapsed(), failed);
        sealed
    }

    /// Decrypts a value by the first provider that can.
    pub(crate) async fn open(
        &self,
        stored: &Bytes,
        place: Place<'_>,
        metrics: &EncryptionMetrics,
    ) -> Result<(Bytes, Seal), TransformError> {
        let (begun, mut failures) = (Instant::now(), Vec::new());
        for provider in &self.0 {
            let prefix = provider.prefix();
            let Some(sealed) = stored.strip_prefix(prefix.as_bytes()) else { continue };
            let opened = match provider {
                // Another provider may have the key of the value.
                Provider::Identity if stored.starts_with(ENCRYPTED) => continue,
                Provider::Identity => Ok((stored.clone(), Seal::PLAIN)),
                Provider::Keys(keys) => keys.open(sealed, place, metrics).map(owned),
                Provider::First(kms) => kms.open(sealed, place.key).await.map(owned),
                Provider::Second(kms) => kms.open(sealed, place.key).await.map(owned),
            };
            let failed = opened.as_ref().err().map(TransformError::label);
            let shown = if prefix.is_empty() { "identity" } else { prefix };
            metrics.note(place.resource, KeyUse::FromStorage, shown, begun.elapsed(), failed);
            match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => failures.push(error),
            }
        }
        if !failures.is_empty() {
            return Err(TransformError::joined(failures));
        }
        let missing = TransformError::new("no matching prefix found");
        metrics.note(place.resource, KeyUse::FromStorage, "unknown", begun.elapsed(), Some(missing.label()));
        Err(missing)
    }
}

fn owned((opened, seal): (Vec<u8>, Seal)) -> (Bytes, Seal) {
    (opened.into(), seal)
}
