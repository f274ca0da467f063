//! Copies all objects from one store to another, for the command line.
//!
//! No server may run on either store. `keelson_storage::copy` resumes an interrupted copy. This module opens the
//! stores, and keeps revisions from decreasing.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use keelson_encryption::{ConfigurationFile, Environment, Transformers};
use keelson_meta::random::SystemRandom;
use keelson_meta::{Revision, SystemClock};
use keelson_resources::Catalogue;
use keelson_storage::copy::{self, CopyProgress};
use keelson_storage::{Store, StoreKey};
use keelson_supervision::Supervisor;

use crate::builtin;
use crate::encryption::{encrypted, prefix};
use crate::store::StoreConfig;

/// The revisions of a copy start this much above those of its source: more than are written during the copy.
const REVISION_MARGIN: u64 = 1_000_000;

/// Copies all objects from one store to another, and reports the progress.
///
/// The copy's revisions continue above those of its source, so that no client sees one decrease. Only etcd cannot do
/// that.
///
/// # Errors
/// A store cannot be opened or fails, or the source is still being written. `encryption` cannot decrypt a value. The
/// source does not exist, or is empty without `allow_empty`, or the target contains other data. After an error the
/// copied objects stay, and the same call continues.
pub async fn copy_store(
    from: &StoreConfig,
    to: &StoreConfig,
    allow_empty: bool,
    encryption: Option<&Path>,
    report: impl FnMut(CopyProgress),
) -> anyhow::Result<CopyProgress> {
    for store in [from, to] {
        let in_memory = matches!(store, StoreConfig::Memory);
        ensure!(!in_memory, "the store memory: lasts as long as the command, so it can't be copied");
    }
    // No watchdog is needed: if a writer task dies, the call that waits for it fails, and so does the copy.
    let unwatched = Supervisor::default();
    let source = from.open_existing(&unwatched).await.context("opening the source")?.store;
    copy::check_source(&*source).await?;
    ensure!(
        allow_empty || copy::holds_objects(&*source).await?,
        "the source, {from}, holds no objects: look whether its URL is right, or give --allow-empty to copy it all the same"
    );
    let newest = source.current_revision().await.context("reading the source")?;
    let least = Revision::new(newest.get().saturating_add(REVISION_MARGIN));
    {
        // ORDER: the target is checked before its revisions are raised, since that ends the watches of servers that run
        // on it. It is closed again, since some stores can be opened only once at a time.
        let target = to.open_target(Revision::ZERO, &unwatched).await.context("opening the target")?.store;
        copy::check_target(&*target).await?;
    }
    // ORDER: as above, all that can refuse the copy comes before the revisions are raised.
    let transformers = match encryption {
        Some(file) => Some(transformers(file).await?),
        None => {
            check_keys(from, to, &*source).await?;
            None
        }
    };
    let target = to.open_target(least, &unwatched).await.context("opening the target")?.store;
    let (source, target) = match transformers {
        Some(transformers) => {
            let over = |store, config| Arc::new(encrypted(store, transformers.clone(), config)) as Arc<dyn Store>;
            (over(source, from), over(target, to))
        }
        None => (source, target),
    };
    let now = SystemTime::now();
    Ok(copy::copy(&*source, &*target, |key| expiry(builtin::all_resources(), key, now), report).await?)
}

/// The providers of an encryption configuration. Calls the key services once.
async fn transformers(file: &Path) -> anyhow::Result<Arc<Transformers>> {
    let loaded = ConfigurationFile::read(file, false).context("reading --encryption-provider-config")?;
    let environment = Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        metrics: Arc::default(),
        first_kms: true,
        kms_pauses: None,
    };
    let made = Transformers::new(&loaded.configuration, environment).context("reading --encryption-provider-config")?;
    made.prime().await;
    Ok(Arc::new(made))
}

/// Refuses to copy encrypted values to keys with another prefix, since the key in etcd is authenticated with the value.
async fn check_keys(from: &StoreConfig, to: &StoreConfig, source: &dyn Store) -> anyhow::Result<()> {
    const SAME: &str = "/registry";
    let prefix = |config| prefix(config).unwrap_or_else(|| SAME.to_owned());
    if prefix(from) == prefix(to) {
        return Ok(());
    }
    let encrypted = copy::find(source, |value| value.starts_with(b"k8s:enc:")).await?;
    ensure!(
        encrypted.is_none(),
        "{} is encrypted, and the two stores have other prefixes, with which values are authenticated: give \
         --encryption-provider-config",
        encrypted.map_or_else(String::new, |key| key.to_string())
    );
    Ok(())
}

/// The time at which an object written now expires. `None` for objects that do not expire.
fn expiry(catalogue: &Catalogue, key: &StoreKey, now: SystemTime) -> Option<SystemTime> {
    let mut collections = catalogue.collections().iter();
    let collection = collections.find(|collection| key.as_str().starts_with(&collection.key_prefix()))?;
    let lifetime = collection.resources.iter().find_map(|resource| resource.lifetime)?;
    Some(now + lifetime)
}
