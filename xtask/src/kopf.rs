//! kopf, the framework for operators in Python by which the tests run one: in the directory that a variable names, or fetched into one
//! of ours by pip (whatever index pip is configured with).
//!
//! A machine without it can still run every other test: what is missing is a sentence here, not a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run;
use crate::workspace::Workspace;

/// Names the directory in which Python finds it: set by the user to choose one, and by us for the tests. Empty says that there is none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_KOPF";

/// The packages, by their versions.
const REQUIREMENTS: &str = "crates/keelson/tests/custom_resources/operators/requirements.txt";
const PACKAGE: &str = "kopf";

/// The directory that has it; the error says what is missing and how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    fetch(workspace).map_err(|error| {
        format!(
            "the tests of operators in Python were NOT run: {PACKAGE} is not here ({error:#})\n\
             \x20 either make `python3 -m pip` work, or set {VARIABLE} to a directory that has what {REQUIREMENTS} names"
        )
    })
}

fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    let requirements = workspace.root.join(REQUIREMENTS);
    let text = std::fs::read_to_string(&requirements).with_context(|| format!("no {}", requirements.display()))?;
    let required = text.lines().find_map(|line| line.strip_prefix("kopf==")).context("no version of kopf is named")?;
    let directory = workspace.target.join("tools").join(format!("{PACKAGE}-{required}"));
    // Wheels are of one release of Python, which may have changed since.
    if check(&directory).is_ok() {
        return Ok(directory);
    }
    eprintln!("fetching {PACKAGE} {required} (Python package)");
    // Installed beside its place and renamed, so that an interrupted run leaves nothing that looks complete.
    let partial = directory.with_file_name(format!("{PACKAGE}.partial"));
    remove(&partial)?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"];
    let mut command = Command::new("python3");
    command.args(pip).arg("--target").arg(&partial).arg("--requirement").arg(&requirements);
    run::output(&mut command)?;
    check(&partial)?;
    remove(&directory)?;
    std::fs::rename(&partial, &directory).context("cannot put it in its place")?;
    Ok(directory)
}

/// Has Python load it.
fn check(directory: &Path) -> Result<()> {
    run::output(Command::new("python3").args(["-m", PACKAGE, "--version"]).env("PYTHONPATH", directory)).map(drop)
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
