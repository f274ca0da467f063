//! `cargo xtask console`: builds the files of the console from their sources, or checks that the checked-in files match
//! the sources.
//!
//! A build of the program needs neither sources nor Node.js, because it embeds the checked-in files. Without Node.js
//! the check is skipped, with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The directories of the sources and of the built files.
const SOURCES: &str = "crates/console/web";
const ASSETS: &str = "crates/console/assets";
/// The npm package for the tests: an accessibility checker.
const CHECKER: &str = "node_modules/axe-core/axe.min.js";
/// The environment variable with the path of the accessibility checker, for the tests. Empty if it is missing.
pub(crate) const CHECKER_VARIABLE: &str = "KEELSON_TEST_AXE";

/// The outcome of a check.
pub(crate) enum Outcome {
    /// Everything matches.
    Fine,
    /// The check was skipped; holds the reason and the remedy.
    NotRun(String),
}

/// Builds the assets to be checked in.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let web = workspace.root.join(SOURCES);
    install(&web).map_err(anyhow::Error::msg)?;
    must(&mut check_sources(workspace, &web), "the sources of the console have faults")?;
    let assets = workspace.root.join(ASSETS);
    must(Command::new("node").arg("build.js").arg(&assets).current_dir(&web), "the console can't be built")
}

/// Checks the sources, and that the assets match them.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let web = workspace.root.join(SOURCES);
    if let Err(missing) = install(&web) {
        return Ok(Outcome::NotRun(missing));
    }
    must(&mut check_sources(workspace, &web), "the sources of the console have faults")?;
    let built = workspace.target.join("console");
    must(Command::new("node").arg("build.js").arg(&built).current_dir(&web), "the console can't be built")?;
    let (expected, found) = (read_all(&built)?, read_all(&workspace.root.join(ASSETS))?);
    let differs = |(name, bytes): &(PathBuf, Vec<u8>), others: &[(PathBuf, Vec<u8>)]| {
        (!others.iter().any(|(other, theirs)| other == name && theirs == bytes)).then(|| name.display().to_string())
    };
    let mut different: Vec<String> = expected.iter().filter_map(|file| differs(file, &found)).collect();
    different.extend(found.iter().filter_map(|file| differs(file, &expected)));
    different.sort();
    different.dedup();
    if !different.is_empty() {
        bail!("{ASSETS} differs from the build of {SOURCES} ({}): run `cargo xtask console`", different.join(", "));
    }
    Ok(Outcome::Fine)
}

/// Finds the checker of accessibility.
///
/// # Errors
/// When a part is missing. The text says how to get it.
pub(crate) fn checker(workspace: &Workspace) -> Result<PathBuf, String> {
    let web = workspace.root.join(SOURCES);
    if !web.join(CHECKER).is_file() {
        install(&web)?;
    }
    Ok(web.join(CHECKER))
}

/// The checks of the sources, with the suite of YAML if it is there.
fn check_sources(workspace: &Workspace, web: &Path) -> Command {
    let mut command = npm(web);
    command.args(["run", "--silent", "check"]);
    match crate::npm::find(workspace) {
        Ok(directory) => command.env(crate::npm::VARIABLE, directory),
        Err(missing) => {
            eprintln!("{missing}");
            command.env_remove(crate::npm::VARIABLE)
        }
    };
    command
}

/// Installs the packages of the lock file.
///
/// # Errors
/// The missing part.
fn install(web: &Path) -> Result<(), String> {
    let missing = |why: String| {
        format!(
            "the console was NOT checked: {why}\n\
             \x20 install Node.js 20 or newer with npm (Debian: apt-get install nodejs npm), and make `npm ci` work in {SOURCES}"
        )
    };
    for program in ["node", "npm"] {
        let found = run::output(Command::new(program).arg("--version"));
        found.map_err(|_| missing(format!("there is no {program} here")))?;
    }
    // npm writes this file last. It is newer than the lock file unless the lock file has changed since.
    let age = |file: PathBuf| fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
    let (installed, locked) = (age(web.join("node_modules/.package-lock.json")), age(web.join("package-lock.json")));
    if installed.is_some() && installed >= locked {
        return Ok(());
    }
    let installing = run::output(npm(web).args(["ci", "--ignore-scripts"]));
    installing.map(drop).map_err(|error| missing(format!("its packages can't be fetched ({error:#})")))
}

fn npm(web: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(web);
    command
}

fn must(command: &mut Command, otherwise: &str) -> Result<()> {
    if !run::shown(command)? {
        bail!("{otherwise}");
    }
    Ok(())
}

/// The files of a directory, by name.
fn read_all(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    entries
        .map(|entry| {
            let path = entry?.path();
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((path.file_name().map(PathBuf::from).unwrap_or_default(), bytes))
        })
        .collect()
}
