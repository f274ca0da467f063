//! The storage versions of built-in resources, from `--storage-version` and `--storage-version-file`.
//!
//! SIGHUP makes the server read the file again and change its versions without a restart. The command line takes
//! precedence over the file.

use std::convert::Infallible;
use std::future;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use keelson_meta::Release;
use keelson_server::{RegistryConfig, RunningServer, catalogue_of};
use tokio::signal::unix::{SignalKind, signal};

/// The settings of storage versions.
pub(crate) struct StorageVersions {
    file: Option<PathBuf>,
    flags: Vec<String>,
    /// The release whose resources the settings name.
    release: Release,
}

impl StorageVersions {
    pub(crate) fn new(file: Option<PathBuf>, flags: Vec<String>, release: Release) -> Self {
        Self { file, flags, release }
    }

    /// Applies the settings to a configuration, before the server starts.
    ///
    /// # Errors
    /// When the file can't be read, or a setting names an unknown resource or version.
    pub(crate) fn read_into(&self, registry: &mut RegistryConfig) -> anyhow::Result<()> {
        let text = self.file.as_ref().map(|file| std::fs::read_to_string(file).with_context(|| reading(file)));
        self.parse_into(registry, &text.transpose()?.unwrap_or_default())
    }

    /// Applies the file again at each SIGHUP. An invalid file changes nothing. Without a file this never returns.
    ///
    /// # Errors
    /// When the signal handler can't be installed.
    pub(crate) async fn follow(&self, server: &RunningServer) -> anyhow::Result<Infallible> {
        let Some(file) = &self.file else { return future::pending().await };
        let mut hangups = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
        loop {
            hangups.recv().await;
            let mut read = RegistryConfig::default();
            let text = tokio::fs::read_to_string(file).await.with_context(|| reading(file));
            match text.and_then(|text| self.parse_into(&mut read, &text)) {
                Ok(()) => {
                    server.registry().store_builtin_as(read.storage_versions).await;
                    tracing::info!(file = %file.display(), "the storage versions were read again");
                }
                Err(error) => tracing::error!("the storage versions stay as they are: {error:#}"),
            }
        }
    }

    fn parse_into(&self, registry: &mut RegistryConfig, text: &str) -> anyhow::Result<()> {
        let catalogue = catalogue_of(self.release);
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        for setting in lines.filter(|line| !line.is_empty()) {
            let read = registry.store_as(catalogue, setting);
            read.map_err(anyhow::Error::msg).context("reading --storage-version-file")?;
        }
        for setting in &self.flags {
            registry.store_as(catalogue, setting).map_err(anyhow::Error::msg).context("reading --storage-version")?;
        }
        Ok(())
    }
}

fn reading(file: &Path) -> String {
    format!("reading {} of --storage-version-file", file.display())
}
