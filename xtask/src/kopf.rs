//! kopf, the Python framework of a tested operator: in the directory of a variable, or fetched by pip into one below
//! `target` (from pip's configured index).
//!
//! Without this package, all other tests still run: a missing part is reported and is no failure.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::python::Package;
use crate::workspace::Workspace;

/// The environment variable with the directory of the Python package. The user sets it to choose an installation, and
/// xtask sets it for the tests. Empty if the package is missing.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_KOPF";

/// The packages with their versions.
const REQUIREMENTS: &str = "crates/keelson/tests/custom_resources/operators/requirements.txt";
const PACKAGE: &str = "kopf";

/// The directory of kopf.
///
/// # Errors
/// When a part is missing. The text says how to get it.
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
    let version = text.lines().find_map(|line| line.strip_prefix("kopf==")).context("no version of kopf is named")?;
    let package = Package { name: PACKAGE, version, check: &["-m", PACKAGE, "--version"] };
    package.install(workspace, &["--requirement", requirements.to_str().context("a path is not UTF-8")?])
}
