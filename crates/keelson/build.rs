//! The commit that the program is built from: `KEELSON_COMMIT` and `KEELSON_COMMIT_DATE`.
//!
//! Builds that are released have it: those of the profiles `release` and `dist`. A debug build has none, since every commit would
//! otherwise rebuild all test programs of this package. Set in the environment of the build, both variables are taken as they are,
//! which is the way for sources without a repository.

// A build script speaks to cargo on standard output.
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

/// The commit of the repository that this source stands in, and its date; `None` for sources that stand in none of their own.
fn of_repository() -> Option<(String, String)> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(2)?.canonicalize().ok()?;
    // A copy within another repository has nothing to do with the commits of that one.
    let root = PathBuf::from(git(&workspace, &["rev-parse", "--show-toplevel"])?);
    if root.canonicalize().ok()? != workspace {
        return None;
    }
    // Each commit and checkout adds a line to this file. Without it the script runs with each build.
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
