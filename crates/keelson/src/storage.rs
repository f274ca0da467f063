//! `keelson storage`: backup, restore and verification of the embedded store, copies between stores, and the storage
//! versions of objects (`versions`).
//!
//! No server may run on the store during these commands. There are two exceptions: a backup works while a server runs,
//! and the versions come from a running server.

mod versions;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use keelson_server::{Checked, CopyProgress, StoreConfig};

use crate::args::{CopyStores, Storage};
use crate::output::{answer, note};

/// The interval at which a copy reports its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs one of the storage commands.
pub(crate) fn run(command: Storage) -> anyhow::Result<()> {
    match command {
        Storage::Backup { file, data_dir } => {
            keelson_server::backup(&data_dir, &file).context("the backup was not made")?;
            answer(format_args!("wrote {}", file.display()))?;
        }
        Storage::Restore { file, data_dir, bump_revision } => {
            let revision = keelson_server::restore(&file, &data_dir, bump_revision).context("nothing was restored")?;
            answer(format_args!(
                "restored {} into {}; revisions go on at {revision}",
                file.display(),
                data_dir.display()
            ))?;
        }
        Storage::Check { data_dir } => {
            let checked = keelson_server::check(&data_dir).context("the store was not checked")?;
            for finding in &checked.findings {
                answer(format_args!("{finding}"))?;
            }
            if checked.in_use {
                answer(format_args!("a server is running on it, so its log was not looked at"))?;
            }
            let found = checked.findings.len();
            ensure!(found == 0, "the store in {} is damaged in {found} places; restore a backup", data_dir.display());
            let Checked { rows, revision, .. } = checked;
            answer(format_args!("the store in {} is whole: {rows} versions, revision {revision}", data_dir.display()))?;
        }
        Storage::Versions(settings) => versions::run(&settings)?,
        Storage::Copy(CopyStores { from, to, allow_empty, encryption_provider_config }) => {
            let from = StoreConfig::parse(&from).and_then(|store| store.with_password(None));
            let from = from.context("reading the URL of the source")?;
            let to = StoreConfig::parse(&to).and_then(|store| store.with_password(None));
            let to = to.context("reading the URL of the target")?;
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
            let copy = keelson_server::copy_store(
                &from,
                &to,
                allow_empty,
                encryption_provider_config.as_deref(),
                Progress::default().reporter(),
            );
            let copied = runtime.block_on(copy);
            let copied = copied.context("the copy is not finished")?;
            answer(format_args!("copied {} objects from {from} to {to}, and found them equal", copied.compared))?;
        }
    }
    Ok(())
}

/// Reports the progress of a copy at intervals.
struct Progress {
    told: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { told: Instant::now() }
    }
}

impl Progress {
    fn reporter(mut self) -> impl FnMut(CopyProgress) {
        move |progress| {
            if self.told.elapsed() >= PROGRESS_INTERVAL {
                self.told = Instant::now();
                let CopyProgress { pass, compared, total, written, .. } = progress;
                note(format_args!("pass {pass}: {compared} of {total} objects compared, {written} written"));
            }
        }
    }
}
