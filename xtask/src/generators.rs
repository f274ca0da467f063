//! The generator of Python clients and the packages that these clients need. The directory comes from an environment
//! variable, or pip installs it below `target`. The generator needs Java 11 or newer.
//!
//! Without the generator, all other tests still run: a missing part is reported and is no failure.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::python::Package;
use crate::run;
use crate::workspace::Workspace;

/// The environment variable with the directory of the Python generator. The user sets it to choose an installation, and
/// xtask sets it for the tests. Empty means that no generator is installed.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_OPENAPI_GENERATOR";

/// The packages with their versions.
const REQUIREMENTS: &str = "crates/keelson/tests/surface/clients/requirements.txt";
const PACKAGE: &str = "openapi-generator-cli";

/// The directory of the generator.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    fetch(workspace).map_err(|error| {
        format!(
            "the test of generated clients in Python was NOT run: {PACKAGE} can't be used ({error:#})\n\
             \x20 install Java (Debian: apt-get install default-jre-headless) and make `python3 -m pip` work, or set\n\
             \x20 {VARIABLE} to a directory that has what {REQUIREMENTS} names"
        )
    })
}

fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    run::output(Command::new("java").arg("-version")).context("there is no Java here")?;
    let requirements = workspace.root.join(REQUIREMENTS);
    let text = std::fs::read_to_string(&requirements).with_context(|| format!("no {}", requirements.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("openapi-generator-cli=="));
    let check = ["-c", "import dateutil, lazy_imports, openapi_generator_cli, pydantic, urllib3"];
    let package = Package { name: PACKAGE, version: version.context("no version of it is named")?, check: &check };
    package.install(workspace, &["--requirement", requirements.to_str().context("a path is not UTF-8")?])
}
