//! Backup, restore and verification of the embedded store, for the command line.
//!
//! A backup can be taken while a server runs. A restore needs an empty directory. Other stores have backup tools of
//! their own.

use std::path::Path;

use anyhow::Context as _;
pub use keelson_storage_sql::{BackedUp, CheckResult, OnProgress, Restored, WorkProgress, WorkStage, unobserved};

use crate::data_directory;

/// Writes a consistent copy of the store in `data_dir` to `file`, even while a server runs on it.
///
/// # Errors
/// When there is no store, the servers of the directory use another one, or the store has lost data. Also when the file
/// exists or cannot be written, or `on_progress` ends the work. An incomplete file is removed.
pub fn backup(data_dir: &Path, file: &Path, on_progress: &mut OnProgress<'_>) -> anyhow::Result<BackedUp> {
    data_directory::check_embedded(data_dir)?;
    keelson_storage_sql::backup(data_dir, file, on_progress)
        .with_context(|| format!("copying the store in {} to {}", data_dir.display(), file.display()))
}

/// Restores a copy into a store in `data_dir`, and raises its revision by `bump`.
///
/// # Errors
/// A store exists already, or the file is not the copy that a backup wrote. Also when `on_progress` ends the work. An
/// incomplete store is removed.
pub fn restore(file: &Path, data_dir: &Path, bump: u64, on_progress: &mut OnProgress<'_>) -> anyhow::Result<Restored> {
    keelson_storage_sql::restore(file, data_dir, bump, on_progress)
        .with_context(|| format!("restoring {} into {}", file.display(), data_dir.display()))
}

/// Verifies the store in `data_dir`, even while a server runs on it.
///
/// # Errors
/// There is no store, or the servers of the directory use another one, or it cannot be read at all. Damage is not an
/// error. The result contains it. Also when `on_progress` ends the work.
pub fn check(data_dir: &Path, on_progress: &mut OnProgress<'_>) -> anyhow::Result<CheckResult> {
    data_directory::check_embedded(data_dir)?;
    keelson_storage_sql::check(data_dir, on_progress)
        .with_context(|| format!("checking the store in {}", data_dir.display()))
}
