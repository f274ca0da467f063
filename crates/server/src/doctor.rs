//! Checks stores and disks for `keelson doctor`, which depends on no storage engine.
//!
//! The checks create and change nothing: a missing store stays missing.

use std::path::Path;

use anyhow::Context as _;
use keelson_meta::Revision;
use keelson_storage::{Disk as _, SystemDisk};
use keelson_supervision::Supervisor;

use crate::store::StoreConfig;

/// The free and the total bytes of a directory's file system.
///
/// # Errors
/// When the system call fails.
pub fn disk_room(directory: &Path) -> std::io::Result<(u64, u64)> {
    SystemDisk.room(directory).map(|room| (room.free, room.total))
}

/// Opens an existing store as a server does, and returns its newest revision. Creates none.
///
/// # Errors
/// When there is no store, or it cannot be opened or read.
pub async fn reach_store(store: &StoreConfig) -> anyhow::Result<Revision> {
    let opened = store.open_existing(&Supervisor::default()).await?;
    opened.store.current_revision().await.context("reading the newest revision")
}
