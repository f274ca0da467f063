//! kopf, the framework for operators in Python by which the tests run one: in the directory that a variable names, or fetched into one
//! of ours by pip (whatever index pip is configured with).
//!
//! A machine without it can still run every other test: what is missing is a sentence here, not a failure.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::python::Package;
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
    let version = text.lines().find_map(|line| line.strip_prefix("kopf==")).context("no version of kopf is named")?;
    let package = Package { name: PACKAGE, version, check: &["-m", PACKAGE, "--version"] };
    package.install(workspace, &["--requirement", requirements.to_str().context("a path is not UTF-8")?])
}
