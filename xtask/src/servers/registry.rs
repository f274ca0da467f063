//! Programs that come in crates: fetched by cargo, from whatever registry it is configured with, and never built.
//!
//! A manifest that depends on nothing else makes cargo download the crate, and check it as it checks every dependency; the
//! program is copied out of it. The workspace and its lock file know nothing of this.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::run;

/// Puts a file of a crate at `place`.
pub(super) fn copy_out(package: &str, version: &str, file: &str, place: &Path) -> Result<()> {
    let directory = place.parent().context("a program stands in a directory")?;
    let manifest = directory.join("fetch/Cargo.toml");
    std::fs::create_dir_all(manifest.with_file_name("src"))?;
    std::fs::write(manifest.with_file_name("src/lib.rs"), "")?;
    // A workspace of its own: it lies below ours.
    let text = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{package} = \"={version}\"\n"
    );
    std::fs::write(&manifest, text)?;
    eprintln!("fetching {package} {version} from the registry of crates");
    run::output(cargo("fetch", &manifest).arg("--quiet"))?;
    let known = run::output(cargo("metadata", &manifest).args(["--format-version=1", "--offline"]))?;
    let known: Value = serde_json::from_slice(&known).context("cargo told no metadata")?;
    let packages = known["packages"].as_array().into_iter().flatten();
    let fetched = packages.filter(|known| known["name"] == package).find_map(|known| known["manifest_path"].as_str());
    let source = Path::new(fetched.context("cargo did not fetch it")?).with_file_name(file);
    // Renamed when whole, so that an interrupted run leaves nothing that looks complete.
    let partial = place.with_extension("partial");
    std::fs::copy(&source, &partial).with_context(|| format!("the crate {package} has no {file}"))?;
    std::fs::rename(&partial, place)?;
    std::fs::remove_dir_all(directory.join("fetch")).context("cannot remove what was used to fetch")
}

fn cargo(task: &str, manifest: &Path) -> Command {
    let mut command = run::cargo();
    command.arg(task).arg("--manifest-path").arg(manifest);
    command
}
