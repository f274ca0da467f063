//! The Helm library with which the tests install the chart: in the directory of a variable, or fetched into one below
//! `target`.
//!
//! Without it all other tests still run: a missing part is a message here, not a failure.

use std::path::PathBuf;

use crate::python::Package;
use crate::workspace::Workspace;

/// The environment variable with its directory for Python. The user sets it to choose one, and xtask sets it for the
/// tests. Empty means that there is none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_HELM";

/// The library of Helm 4, with a Python module that calls it.
const PACKAGE: Package<'_> =
    Package { name: "helm-python-sdk", version: "0.2.2", check: &["-c", "import helm_python.chart"] };

/// The directory of the library.
///
/// # Errors
/// The missing part and how to get it.
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
