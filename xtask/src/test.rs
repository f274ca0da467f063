//! `cargo xtask test`: prepares the tests' environment, then runs `cargo test`.
//!
//! cargo's closing lines end the output, apart from unstable tests and those that could not run. `--fast` leaves out
//! other servers, the browser and fetched files, and uses cargo-nextest if installed. The full run uses `cargo test`:
//! tests of one program share a PostgreSQL and an etcd, which nextest would start for each test.

mod unstable;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use self::unstable::Failures;
use crate::workspace::Workspace;
use crate::{console, definitions, generators, helm, kopf, kubectl, npm, run, servers};

/// The environment variable with the path of kubectl, for the test kit.
const KUBECTL_VARIABLE: &str = "KEELSON_TEST_KUBECTL";

/// The environment of the tests.
#[derive(Default)]
struct Prepared {
    variables: Vec<(&'static str, OsString)>,
    /// One sentence for each missing part whose tests can't run.
    missing: Vec<String>,
}

pub(crate) fn test(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let prepared = Prepared::whole(workspace)?;
    let selected = selection(args);
    let command = || {
        let mut command = prepared.command(workspace, &["test", "--locked"]);
        // The selected packages determine the features of the build, so a repeated test keeps the selection.
        command.args(selected);
        command
    };
    let mut all = command();
    all.arg("--no-fail-fast");
    let mut failures = Failures::default();
    let passed =
        run::read(all.args(args), |line| failures.read(line))? || failures.pass_alone(selected.is_some(), command)?;
    prepared.missing.iter().for_each(|missing| eprintln!("{missing}"));
    Ok(run::code(passed))
}

/// Runs the tests that need no other servers.
pub(crate) fn fast(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let prepared = Prepared::fast(workspace)?;
    let has_nextest = run::output(run::cargo().args(["nextest", "--version"])).is_ok();
    let programs: &[&str] = if has_nextest {
        &["nextest", "run", "--locked", "--no-fail-fast"]
    } else {
        &["test", "--locked", "--no-fail-fast"]
    };
    let mut command = prepared.command(workspace, programs);
    command.args(selection(args)).args(args);
    // nextest does not run documentation examples.
    let documentation = (has_nextest && names_no_target(args)).then(|| {
        let mut command = prepared.command(workspace, &["test", "--locked", "--doc"]);
        command.args(selection(args)).args(args);
        command
    });
    let passed = run::shown(&mut command)? && documentation.map_or(Ok(true), |mut command| run::shown(&mut command))?;
    Ok(run::code(passed))
}

impl Prepared {
    /// Prepares everything that this machine can have.
    fn whole(workspace: &Workspace) -> Result<Self> {
        let mut prepared = Self::kubectl(workspace)?;
        let servers = servers::find(workspace)?;
        prepared.missing.extend(servers.missing);
        prepared.variables.extend(servers.variables.into_iter().map(|(name, path)| (name, path.into())));
        let (others, missing) = kubectl::others::find(workspace);
        let others = std::env::join_paths(others).context("a path has a colon in it")?;
        prepared.variables.push((kubectl::others::VARIABLE, others));
        prepared.missing.extend(missing);
        prepared.add(definitions::VARIABLE, definitions::find(workspace));
        prepared.add(console::CHECKER_VARIABLE, console::checker(workspace));
        prepared.add(kopf::VARIABLE, kopf::find(workspace));
        prepared.add(helm::VARIABLE, helm::find(workspace));
        prepared.add(npm::VARIABLE, npm::find(workspace));
        prepared.add(generators::VARIABLE, generators::find(workspace));
        Ok(prepared)
    }

    /// Prepares only kubectl. Empty variables mark the rest as missing.
    fn fast(workspace: &Workspace) -> Result<Self> {
        let mut prepared = Self::kubectl(workspace)?;
        let fetched = [
            kubectl::others::VARIABLE,
            definitions::VARIABLE,
            console::CHECKER_VARIABLE,
            kopf::VARIABLE,
            helm::VARIABLE,
            npm::VARIABLE,
            generators::VARIABLE,
        ];
        prepared.variables.extend(servers::variables().chain(fetched).map(|name| (name, OsString::new())));
        Ok(prepared)
    }

    fn kubectl(workspace: &Workspace) -> Result<Self> {
        let kubectl = kubectl::find(workspace)?;
        Ok(Self { variables: vec![(KUBECTL_VARIABLE, kubectl.into())], missing: Vec::new() })
    }

    fn add(&mut self, variable: &'static str, found: std::result::Result<PathBuf, String>) {
        let path = found.unwrap_or_else(|missing| {
            self.missing.push(missing);
            PathBuf::new()
        });
        self.variables.push((variable, path.into()));
    }

    fn command(&self, workspace: &Workspace, args: &[&str]) -> Command {
        let mut command = run::cargo();
        command.current_dir(&workspace.root).args(args).envs(self.variables.iter().cloned());
        command
    }
}

fn selection(args: &[String]) -> Option<&'static str> {
    if names_a_package(args) { None } else { Some("--workspace") }
}

fn names_a_package(args: &[String]) -> bool {
    args.iter().take_while(|a| *a != "--").any(|a| a == "-p" || a.starts_with("--package"))
}

/// Returns true if the arguments select all targets of the packages, and all their tests.
fn names_no_target(args: &[String]) -> bool {
    !args.iter().any(|a| {
        ["--", "--lib", "--bins", "--bin", "--test", "--tests", "--example", "--examples"].contains(&a.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::{names_a_package, names_no_target};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_package_is_seen_before_the_separator_only() {
        let check = |line: &str| names_a_package(&words(line));
        assert!(check("-p keelson"));
        assert!(check("--package=keelson"));
        assert!(!check("chunk -- -p"));
        assert!(!check(""));
    }

    #[test]
    fn documentation_is_tested_where_no_target_is_named() {
        let check = |line: &str| names_no_target(&words(line));
        assert!(check(""));
        assert!(check("-p keelson-meta"));
        assert!(!check("-p keelson --test lists"));
        assert!(!check("-- chunk"));
    }
}
