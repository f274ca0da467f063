//! Copies files from crates that are not built. cargo fetches these crates from its configured registry.
//!
//! A manifest with this single dependency makes cargo download and verify the crate, and the files are copied out of
//! it. The workspace and its lock file are not involved.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::run;

/// Copies a file of a crate to `place`.
pub(crate) fn copy_out(package: &str, version: &str, file: &str, place: &Path) -> Result<()> {
    let directory = place.parent().context("the path has no directory")?;
    fetched(package, version, directory, |sources| copy(&sources.join(file), place))
}

/// Creates the directory `place` with those files of a crate's directory whose names have this ending.
pub(crate) fn copy_all(package: &str, version: &str, directory: &str, ending: &str, place: &Path) -> Result<()> {
    // The directory is renamed when complete, so that an interrupted run leaves nothing that looks complete.
    let partial = place.with_extension("partial");
    if partial.exists() {
        std::fs::remove_dir_all(&partial)?;
    }
    std::fs::create_dir_all(&partial)?;
    fetched(package, version, &partial, |sources| {
        let directory = sources.join(directory);
        let entries = std::fs::read_dir(&directory).with_context(|| format!("no {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().context("an entry of a directory has a name")?;
            if name.to_string_lossy().ends_with(ending) {
                copy(&path, &partial.join(name))?;
            }
        }
        Ok(())
    })?;
    Ok(std::fs::rename(&partial, place)?)
}

/// Fetches a crate and passes the directory of its sources to `take`. Removes its temporary files.
fn fetched(package: &str, version: &str, directory: &Path, take: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let manifest = directory.join("fetch/Cargo.toml");
    std::fs::create_dir_all(manifest.with_file_name("src"))?;
    std::fs::write(manifest.with_file_name("src/lib.rs"), "")?;
    // The manifest declares a separate workspace, since it is in a directory of the main one.
    let text = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[workspace]\n[dependencies.{package}]\nversion = \"={version}\"\n\
         default-features = false\n"
    );
    std::fs::write(&manifest, text)?;
    eprintln!("fetching {package} {version} from the registry of crates");
    run::output(cargo("fetch", &manifest).arg("--quiet"))?;
    let known = run::output(cargo("metadata", &manifest).args(["--format-version=1", "--offline"]))?;
    let known: Value = serde_json::from_slice(&known).context("cargo printed no metadata")?;
    let packages = known["packages"].as_array().into_iter().flatten();
    let manifest = packages.filter(|known| known["name"] == package).find_map(|known| known["manifest_path"].as_str());
    let sources = PathBuf::from(manifest.context("cargo did not fetch it")?);
    take(sources.parent().context("the manifest has no directory")?).with_context(|| format!("the crate {package}"))?;
    std::fs::remove_dir_all(directory.join("fetch")).context("cannot remove the files of the fetch")
}

/// Copies a file and renames it when complete, so that an interrupted run leaves nothing that looks complete.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    std::fs::copy(from, &partial).with_context(|| format!("it has no {}", from.display()))?;
    Ok(std::fs::rename(&partial, to)?)
}

fn cargo(task: &str, manifest: &Path) -> Command {
    let mut command = run::cargo();
    command.arg(task).arg("--manifest-path").arg(manifest);
    command
}
