//! Packages of npm for the tests: public conformance suites, and a generator of clients in TypeScript. They are in the
//! directory of a variable, or fetched by npm into one below `target` (from npm's configured registry).
//!
//! Without these files, all other tests still run: a missing part is reported and is no failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::run;
use crate::workspace::Workspace;

/// The environment variable with their directory, which has `node_modules` and `suites`. The user sets it to choose
/// one, and xtask sets it for the tests. Empty means that there is none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_NPM";

/// The directory of the manifest, the lock file and the script that makes `suites`.
const SOURCES: &str = "xtask/npm";
/// The files by which the content of the directory is known.
const KNOWN: [&str; 3] = ["package.json", "package-lock.json", "suites.js"];

/// The directory of the packages.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    fetch(workspace).map_err(|error| {
        format!(
            "the conformance suites of YAML and CEL and the test of generated clients in TypeScript were NOT run: their\n\
             \x20 packages are not here ({error:#})\n\
             \x20 install Node.js 20 or newer with npm (Debian: apt-get install nodejs npm), and make `npm ci` work in\n\
             \x20 {SOURCES}, or set {VARIABLE} to a directory that has them"
        )
    })
}

fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    let (sources, directory) = (workspace.root.join(SOURCES), workspace.target.join("tools/npm"));
    if is_made_of(&directory, &sources) {
        return Ok(directory);
    }
    for program in ["node", "npm"] {
        run::output(Command::new(program).arg("--version")).with_context(|| format!("there is no {program} here"))?;
    }
    eprintln!("fetching the packages of {SOURCES} (npm)");
    // The directory is renamed when complete, so that an interrupted run leaves nothing that looks complete.
    let partial = directory.with_extension("partial");
    for old in [&partial, &directory] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    fs::create_dir_all(&partial)?;
    for name in KNOWN {
        fs::copy(sources.join(name), partial.join(name)).with_context(|| format!("no {SOURCES}/{name}"))?;
    }
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    run::output(Command::new("npm").args(install).current_dir(&partial))?;
    run::output(Command::new("node").arg("suites.js").current_dir(&partial))?;
    ensure!(partial.join("suites/yaml.json").is_file(), "the suites were not written");
    fs::rename(&partial, &directory).context("cannot put them in their place")?;
    Ok(directory)
}

/// Returns true if a complete directory was made of these sources.
fn is_made_of(directory: &Path, sources: &Path) -> bool {
    let is_same = |name: &str| match (fs::read(directory.join(name)), fs::read(sources.join(name))) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    KNOWN.into_iter().all(is_same)
}
