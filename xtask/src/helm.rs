//! The Helm library with which the tests install the chart: in the directory of a variable, or fetched into one below
//! `target`.
//!
//! Without this package, all other tests still run: a missing part is reported and is no failure.

use std::path::PathBuf;

use crate::python::Package;
use crate::workspace::Workspace;

/// The environment variable with the directory of the Python package. The user sets it to choose an installation, and
/// xtask sets it for the tests. Empty if the package is missing.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_HELM";

/// The library of Helm 4, with a Python module that calls it.
const PACKAGE: Package<'_> =
    Package { name: "helm-python-sdk", version: "0.2.2", check: &["-c", "import helm_python.chart"] };

/// The directory of the library.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    PACKAGE.install(workspace, &[&format!("{}=={}", PACKAGE.name, PACKAGE.version)]).map_err(|error| {
        format!(
            "the tests of the chart were NOT run: {} is not here ({error:#})\n\
             \x20 either make `python3 -m pip` work (Python 3.10 or newer), or set {VARIABLE} to a directory that has it",
            PACKAGE.name
        )
    })
}
