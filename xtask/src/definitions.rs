//! Published definitions of custom resources, and their objects, for the tests. They come from the directory in a
//! variable, an earlier download, or a download of a crate that uses them in its own tests.
//!
//! Without these files, all other tests still run: a missing part is reported and is no failure.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::registry;
use crate::workspace::Workspace;

/// The environment variable with the directory of the definitions. The user sets it to choose one, and xtask sets it
/// for the tests. Empty means that there is none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_DEFINITIONS";

const PACKAGE: &str = "kopium";
const VERSION: &str = "0.24.1";
/// Their directory in the crate.
const DIRECTORY: &str = "tests";
/// A file that exists in every complete directory.
const KNOWN: &str = "httproute-crd.yaml";

/// The directory of the definitions.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let directory = workspace.target.join("tools").join(format!("definitions-{PACKAGE}-{VERSION}"));
    fetch(&directory).map(|()| directory).map_err(|error| {
        format!(
            "the tests of the field's definitions were NOT run: fetching the crate {PACKAGE} failed ({error:#})\n\
             \x20 either make `cargo fetch` work, or set {VARIABLE} to the directory of its tests"
        )
    })
}

fn fetch(directory: &Path) -> Result<()> {
    if !directory.join(KNOWN).is_file() {
        registry::copy_all(PACKAGE, VERSION, DIRECTORY, ".yaml", directory)?;
    }
    ensure!(directory.join(KNOWN).is_file(), "the crate has no {DIRECTORY}/{KNOWN}");
    Ok(())
}
