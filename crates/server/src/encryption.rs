//! Encryption at rest of a server: its settings, its store, its health checks and its metrics.
//!
//! The file is read before the server creates anything. Its key services are called once before the store is read, so
//! that all values can be decrypted if the services work. A service that does not answer blocks no start: unreadable
//! values are read later.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use keelson_cache::Cache;
use keelson_encryption::{
    ConfigurationFile, EncryptedStore, EncryptionMetrics, Environment, Reloader, Resources, Transformers,
};
use keelson_http::health::HealthChecks;
use keelson_resources::Catalogue;
use keelson_storage::Store;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::builtin;
use crate::config::Config;
use crate::store::StoreConfig;

/// The settings of encryption.
#[derive(Clone, Debug, Default)]
pub struct EncryptionConfig {
    /// The file with an `EncryptionConfiguration`. `None` stores objects without encryption.
    pub file: Option<PathBuf>,
    /// True if the file is read again when it changes.
    pub reloads: bool,
    /// True if KMS v1 is permitted: the feature gate `KMSv1`.
    pub first_kms: bool,
    /// The check intervals of the file and of key services, if not the defaults: for tests.
    pub pauses: Option<EncryptionPauses>,
}

/// The intervals of the checks of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct EncryptionPauses {
    /// The interval of checks of the file.
    pub file: Duration,
    /// The interval of checks of healthy key services.
    pub good: Duration,
    /// The interval of checks of failing key services.
    pub bad: Duration,
}

/// A configuration that was read from its file.
pub(crate) struct LoadedConfiguration {
    file: ConfigurationFile,
    transformers: Arc<Transformers>,
    environment: Environment,
}

/// The encryption of a running server.
#[derive(Clone)]
pub(crate) struct Encryption {
    reloader: Arc<Reloader>,
    pub(crate) metrics: Arc<EncryptionMetrics>,
}

impl LoadedConfiguration {
    /// Reads the configuration of a server, if it has one.
    ///
    /// # Errors
    /// With upstream's texts.
    pub(crate) fn read(config: &Config) -> anyhow::Result<Option<Self>> {
        let EncryptionConfig { file, reloads, first_kms, pauses } = &config.encryption;
        let Some(path) = file else {
            let set = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config";
            return if *reloads { Err(anyhow!(set)) } else { Ok(None) };
        };
        let environment = Environment {
            clock: config.clock.clone(),
            random: config.random.clone(),
            metrics: Arc::default(),
            first_kms: *first_kms,
            kms_pauses: pauses.map(|pauses| (pauses.good, pauses.bad)),
        };
        warn_of_readable(path);
        let file = ConfigurationFile::read(path, *reloads)?;
        let transformers = Arc::new(Transformers::new(&file.configuration, environment.clone())?);
        Ok(Some(Self { file, transformers, environment }))
    }

    /// Wraps a storage engine with encryption, if a configuration was read.
    pub(crate) async fn over(
        loaded: Option<Self>,
        config: &Config,
        store: Arc<dyn Store>,
    ) -> (Arc<dyn Store>, Option<Encryption>) {
        let Some(Self { file, transformers, environment }) = loaded else { return (store, None) };
        transformers.prime().await;
        let store = encrypted(store, transformers, &config.store);
        let settings = &config.encryption;
        let path = settings.file.clone().filter(|_| settings.reloads);
        let metrics = environment.metrics.clone();
        let mut reloader = Reloader::new(&store, environment, &file, path);
        if let Some(pauses) = settings.pauses {
            reloader = reloader.looking(pauses.file);
        }
        (Arc::new(store), Some(Encryption { reloader: Arc::new(reloader), metrics }))
    }
}

impl Encryption {
    /// Follows the file and the key services until the server stops. Reads values again that may have become readable.
    pub(crate) fn follow(&self, cache: &Arc<Cache>, background: &TaskGroup, stopping: &CancellationToken) {
        let (reloader, told) = (self.reloader.clone(), stopping.clone());
        let (mut recoveries, cache) = (reloader.recoveries(), cache.clone());
        background.spawn("encryption-configuration", async move {
            let _: Option<()> = told.run_until_cancelled_owned(reloader.run()).await;
        });
        let told = stopping.clone();
        background.spawn("unreadable-values", async move {
            let reading = async {
                // A key service may have begun to answer since the cache was loaded.
                cache.reread_unreadable().await;
                while recoveries.changed().await.is_ok() {
                    cache.reread_unreadable().await;
                }
                std::future::pending::<()>().await;
            };
            let _: Option<()> = told.run_until_cancelled_owned(reading).await;
        });
    }

    /// Adds the health checks of the key services.
    pub(crate) fn check(&self, checks: HealthChecks) -> HealthChecks {
        self.reloader.checks().into_iter().fold(checks, |checks, (name, check)| checks.add(name, check))
    }
}

/// Logs a warning if other users than its owner can read the file.
fn warn_of_readable(file: &Path) {
    const OTHERS: u32 = 0o077;
    let mode = std::fs::metadata(file).map_or(0, |found| found.permissions().mode() & 0o7777);
    if mode & OTHERS != 0 {
        let file = file.display();
        tracing::warn!(
            mode = format!("{mode:04o}"),
            "{file} holds keys and is not for its owner alone; run: chmod 600 {file}"
        );
    }
}

/// A storage engine with encryption for the built-in resources.
pub(crate) fn encrypted(
    store: Arc<dyn Store>,
    transformers: Arc<Transformers>,
    config: &StoreConfig,
) -> EncryptedStore {
    EncryptedStore::new(store, transformers, resources(builtin::all_resources()), prefix(config))
}

/// The prefix of keys in etcd. Each value is authenticated with its key.
pub(crate) fn prefix(config: &StoreConfig) -> Option<String> {
    match config {
        StoreConfig::Etcd(etcd) => Some(etcd.prefix.clone()),
        StoreConfig::Memory
        | StoreConfig::InMemory(_)
        | StoreConfig::Sqlite(_)
        | StoreConfig::Postgres(_)
        | StoreConfig::Shared(_) => None,
    }
}

/// The resources of a catalogue by their key prefix. Objects that several groups serve belong to the first group.
fn resources(catalogue: &Catalogue) -> Resources {
    let named = catalogue.collections().iter().filter_map(|collection| {
        let resource = collection.resources.first()?;
        Some((collection.key_prefix(), resource.group_resource()))
    });
    Resources::new(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_several_groups_belong_to_the_one_of_upstream() {
        let of = |plural: &str| {
            let collections = builtin::all_resources().collections().iter();
            let named = |resource: &keelson_meta::GroupResource| resource.resource == plural;
            let mut found = collections.filter_map(|one| Some(one.resources.first()?.group_resource())).filter(named);
            found.next().unwrap().group
        };
        assert_eq!([of("events"), of("secrets"), of("deployments")], ["", "", "apps"]);
    }
}
