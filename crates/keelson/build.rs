//! Sets the commit of the source: `KEELSON_COMMIT` and `KEELSON_COMMIT_DATE`.
//!
//! Builds of the profiles `release` and `dist` have a commit. Debug builds have none, since every commit would
//! otherwise rebuild all test programs of this package. If both variables are set in the environment of the build, the
//! script uses their values. This serves sources without a repository.

// A build script sends its instructions to cargo on standard output.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

const COMMIT: &str = "KEELSON_COMMIT";
const DATE: &str = "KEELSON_COMMIT_DATE";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in [COMMIT, DATE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let (commit, date) = match std::env::var(COMMIT) {
        Ok(commit) => (commit, std::env::var(DATE).unwrap_or_default()),
        Err(_) if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") => {
            of_repository().unwrap_or_default()
        }
        Err(_) => Default::default(),
    };
    println!("cargo::rustc-env={COMMIT}={commit}");
    println!("cargo::rustc-env={DATE}={date}");
}

/// The commit of the repository that contains this source, and its date; `None` if the source is not the root of a
/// repository.
fn of_repository() -> Option<(String, String)> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(2)?.canonicalize().ok()?;
    // A copy of the source within another repository must not use the commits of that one.
    let root = PathBuf::from(git(&workspace, &["rev-parse", "--show-toplevel"])?);
    if root.canonicalize().ok()? != workspace {
        return None;
    }
    // Each commit and checkout appends a line to this file. If it is missing, the script runs in each build.
    let log = git(&workspace, &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", workspace.join(log).display());
    let shown =
        git(&workspace, &["show", "--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%H %cd", "HEAD"])?;
    let (commit, date) = shown.split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

fn git(directory: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(directory).env("TZ", "UTC").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
