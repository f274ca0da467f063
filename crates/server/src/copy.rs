//! Copies all objects from one store to another, for the command line.
//!
//! No server may run on either. How a copy goes on after an interruption is in `keelson_storage::copy`; this opens the stores and
//! sees to it that revisions never go back.

use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use keelson_meta::Revision;
use keelson_resources::Catalogue;
use keelson_storage::StoreKey;
use keelson_storage::copy::{self, CopyProgress};
use keelson_supervision::Supervisor;

use crate::builtin;
use crate::store::StoreConfig;

/// How far the revisions of a copy begin above those of its source: more than are written while it is made.
const REVISION_MARGIN: u64 = 1_000_000;

/// Copies all objects from one store to another, and tells how far it is.
///
/// The copy's revisions go on above those of its source, so that clients which knew that see none go back; only etcd can't.
///
/// # Errors
/// When a store can't be opened or fails, or the source is still being written. When the source is not there, or is empty without
/// `allow_empty`, and when the target holds something else. What was copied stays, and the same call goes on from it.
pub async fn copy_store(
    from: &StoreConfig,
    to: &StoreConfig,
    allow_empty: bool,
    report: impl FnMut(CopyProgress),
) -> anyhow::Result<CopyProgress> {
    for store in [from, to] {
        let in_memory = matches!(store, StoreConfig::Memory);
        ensure!(
            !in_memory,
            "memory: names a store that ends with this command, so there is nothing to copy from it or into it"
        );
    }
    // A writer that dies fails the call that waits for it, and the copy with it.
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
        // ORDER: before its revisions are raised, which a copy that is refused must not do: watches of servers that run on
        // the target end by it. The store is closed again, since some can be opened once at a time.
        let target = to.open_target(Revision::ZERO, &unwatched).await.context("opening the target")?.store;
        copy::check_target(&*target).await?;
    }
    let target = to.open_target(least, &unwatched).await.context("opening the target")?.store;
    let now = SystemTime::now();
    Ok(copy::copy(&*source, &*target, |key| expiry(builtin::catalogue(), key, now), report).await?)
}

/// When an object ends by itself that is written now, if ever.
fn expiry(catalogue: &Catalogue, key: &StoreKey, now: SystemTime) -> Option<SystemTime> {
    let mut collections = catalogue.collections().iter();
    let collection = collections.find(|collection| key.as_str().starts_with(&collection.key_prefix()))?;
    let lifetime = collection.resources.iter().find_map(|resource| resource.lifetime)?;
    Some(now + lifetime)
}
