//! The Helm chart as an archive, and the plain manifests.
//!
//! Chart and manifests come from `packaging/`, where placeholders stand for the version of a release.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::archive::{gzip, tar};
use crate::files::Files;
use crate::release::Release;

/// The placeholder version in the sources of charts and manifests. A release replaces it by its version.
const VERSION: &str = "0.0.0-source";
const KUBERNETES: &str = "0.0.0-kubernetes";

/// The chart, as `helm package` makes it.
///
/// # Errors
/// When its sources can't be read.
pub(crate) fn archive(release: &Release, sources: &Path) -> Result<Vec<u8>> {
    let mut files = Files::default();
    add(&mut files, release, sources, "")?;
    gzip(&tar(&files, "keelson/", release.seconds)?)
}

/// The name of the chart's file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("keelson-chart-{}.tgz", release.version)
}

/// The plain manifests by their file names.
///
/// # Errors
/// When their sources can't be read.
pub(crate) fn manifests(release: &Release, sources: &Path) -> Result<Files> {
    let mut files = Files::default();
    add(&mut files, release, sources, "")?;
    Ok(files)
}

fn add(files: &mut Files, release: &Release, directory: &Path, below: &str) -> Result<()> {
    let reading = || format!("reading {}", directory.display());
    for entry in std::fs::read_dir(directory).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            add(files, release, &path, &format!("{below}{name}/"))?;
        } else {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let text = text.replace(VERSION, &release.version).replace(KUBERNETES, &release.kubernetes);
            files.add(format!("{below}{name}"), 0o644, text.into_bytes());
        }
    }
    Ok(())
}
