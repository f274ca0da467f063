//! `cargo xtask console`: builds the files of the console from their sources, or checks that those that are checked in are what the
//! sources make.
//!
//! The program itself needs neither: its build embeds what is checked in. A machine without Node.js can't check it, and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// Where the sources are, and what is made of them.
const SOURCES: &str = "crates/console/web";
const ASSETS: &str = "crates/console/assets";
/// Which of the packages the tests use: a checker of accessibility.
const CHECKER: &str = "node_modules/axe-core/axe.min.js";
/// Names it to the tests. Empty says that there is none.
pub(crate) const CHECKER_VARIABLE: &str = "KEELSON_TEST_AXE";

/// What came of a check.
pub(crate) enum Outcome {
    /// All is as it should be.
    Fine,
    /// It could not be made; this is why, and how to have it made.
    NotRun(String),
}

/// Builds the assets anew, to be checked in.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let web = workspace.root.join(SOURCES);
    install(&web).map_err(anyhow::Error::msg)?;
    must(npm(&web).args(["run", "--silent", "check"]), "the sources of the console have faults")?;
    let assets = workspace.root.join(ASSETS);
    must(Command::new("node").arg("build.js").arg(&assets).current_dir(&web), "the console can't be built")
}

/// Checks the sources, and that the assets are what they make.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let web = workspace.root.join(SOURCES);
    if let Err(missing) = install(&web) {
        return Ok(Outcome::NotRun(missing));
    }
    must(npm(&web).args(["run", "--silent", "check"]), "the sources of the console have faults")?;
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
        bail!("{ASSETS} is not what {SOURCES} makes ({}): run `cargo xtask console`", different.join(", "));
    }
    Ok(Outcome::Fine)
}

/// The checker of accessibility; the error says what is missing and how to get it.
pub(crate) fn checker(workspace: &Workspace) -> Result<PathBuf, String> {
    let web = workspace.root.join(SOURCES);
    if !web.join(CHECKER).is_file() {
        install(&web)?;
    }
    Ok(web.join(CHECKER))
}

/// Installs the packages that the lock file names; the error says what is missing.
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
    // Written by npm when it is done; newer than the lock file unless that has changed.
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

/// The files of a directory, with their names in it.
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
