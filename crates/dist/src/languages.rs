//! The packages for Python and JavaScript, each with the server inside: a wheel, and an archive for npm.
//!
//! `python/build_wheel.py` builds the wheel, so that it can be built without cargo too.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::archive::{gzip, tar};
use crate::files::Files;
use crate::programs::Programs;
use crate::release::Release;
use crate::run;
use crate::symbols::{Glibc, OLDEST};

/// Writes the wheel into a directory. Returns its path.
///
/// # Errors
/// When Python is missing or fails.
pub(crate) fn wheel(programs: &Programs, root: &Path, out: &Path) -> Result<PathBuf> {
    let Glibc(major, minor) = programs.needs.max(OLDEST);
    let platform = format!("manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
    let mut python = Command::new("python3");
    python.arg(root.join("python/build_wheel.py")).arg(&programs.keelson).arg(out).args(["--platform", &platform]);
    let path = PathBuf::from(run::output(&mut python)?.trim());
    ensure!(path.exists(), "python/build_wheel.py names no wheel: {}", path.display());
    Ok(path)
}

/// The name of the wheel's file, without the platform.
pub(crate) fn wheel_stem(release: &Release) -> String {
    format!("keelson-{}-py3-none-", release.version)
}

/// The name of the archive for npm.
pub(crate) fn npm_name(release: &Release) -> String {
    format!("{}.npm.tgz", release.stem())
}

/// The archive for npm. Its `package.json` states the processor of the program.
///
/// # Errors
/// When a file of `javascript/` can't be read, or has another version.
pub(crate) fn npm(release: &Release, programs: &Programs, root: &Path) -> Result<Vec<u8>> {
    let project = root.join("javascript");
    let text = std::fs::read_to_string(project.join("package.json")).context("reading package.json")?;
    let mut manifest: Value = serde_json::from_str(&text).context("reading package.json")?;
    let version = manifest["version"].as_str().unwrap_or_default();
    ensure!(version == release.version, "package.json has version {version}, and the release is {}", release.version);
    manifest["cpu"] = serde_json::json!([node_machine()]);
    let mut files = Files::default();
    files.add("package.json", 0o644, format!("{manifest:#}\n").into_bytes());
    for name in ["index.js", "index.d.ts", "README.md"] {
        files.copy(name, 0o644, &project.join(name))?;
    }
    files.copy("LICENSE", 0o644, &root.join("LICENSE"))?;
    files.copy("bin/keelson", 0o755, &programs.keelson)?;
    gzip(&tar(&files, "package/", release.seconds)?)
}

/// The machine's operating system and processor in Node.js's names.
fn node_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}
