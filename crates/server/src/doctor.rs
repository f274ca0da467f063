//! Looks at stores and disks for `keelson doctor`, which knows no engine.
//!
//! Nothing is made or changed: a store that is absent stays absent.

use std::path::Path;

use anyhow::Context as _;
use keelson_meta::Revision;
use keelson_storage::{Disk as _, SystemDisk};
use keelson_supervision::Supervisor;

use crate::store::StoreConfig;

/// The free and the total bytes of the file system that a directory is in.
///
/// # Errors
/// When it does not say.
pub fn disk_room(directory: &Path) -> std::io::Result<(u64, u64)> {
    SystemDisk.room(directory).map(|room| (room.free, room.total))
}

/// Opens a store that is there, as a server does, and returns its newest revision. Makes none.
///
/// # Errors
/// When there is none, or it can't be opened or read.
pub async fn reach_store(store: &StoreConfig) -> anyhow::Result<Revision> {
    let opened = store.open_existing(&Supervisor::default()).await?;
    opened.store.current_revision().await.context("reading the newest revision")
}
