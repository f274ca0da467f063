//! `cargo xtask test`: prepares what the tests need, then hands over to `cargo test`.
//!
//! Nothing is printed after cargo's own closing lines, so that whoever reads the end of the output reads the result; but for
//! the tests that are unstable, and those that could not run.

mod unstable;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use self::unstable::Failures;
use crate::workspace::Workspace;
use crate::{console, definitions, kopf, kubectl, run, servers};

/// Tells the tests where kubectl is; the test kit reads it.
const KUBECTL_VARIABLE: &str = "KEELSON_TEST_KUBECTL";

pub(crate) fn test(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let kubectl = kubectl::find(workspace)?;
    let mut servers = servers::find(workspace)?;
    let (others, missing) = kubectl::others::find(workspace);
    let others = std::env::join_paths(others).context("a path has a colon in it")?;
    servers.missing.extend(missing);
    let definitions = definitions::find(workspace).unwrap_or_else(|missing| {
        servers.missing.push(missing);
        PathBuf::new()
    });
    let checker = console::checker(workspace).unwrap_or_else(|missing| {
        servers.missing.push(missing);
        PathBuf::new()
    });
    let kopf = kopf::find(workspace).unwrap_or_else(|missing| {
        servers.missing.push(missing);
        PathBuf::new()
    });
    let selected = if names_a_package(args) { None } else { Some("--workspace") };
    let prepared = || {
        let mut command = run::cargo();
        command.current_dir(&workspace.root).args(["test", "--locked"]);
        command
            .env(KUBECTL_VARIABLE, &kubectl)
            .env(kubectl::others::VARIABLE, &others)
            .envs(servers.variables.iter().cloned());
        command.env(definitions::VARIABLE, &definitions).env(console::CHECKER_VARIABLE, &checker);
        command.env(kopf::VARIABLE, &kopf);
        // What is chosen decides with which features everything is built, so it stays the same when tests are run again.
        command.args(selected);
        command
    };
    let mut command = prepared();
    command.arg("--no-fail-fast");
    let mut failures = Failures::default();
    let passed = run::read(command.args(args), |line| failures.read(line))?
        || failures.pass_alone(selected.is_some(), prepared)?;
    servers.missing.iter().for_each(|missing| eprintln!("{missing}"));
    Ok(run::code(passed))
}

fn names_a_package(args: &[String]) -> bool {
    args.iter().take_while(|a| *a != "--").any(|a| a == "-p" || a.starts_with("--package"))
}

#[cfg(test)]
mod tests {
    use super::names_a_package;

    #[test]
    fn a_package_is_seen_before_the_separator_only() {
        let check = |line: &str| names_a_package(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(check("-p keelson"));
        assert!(check("--package=keelson"));
        assert!(!check("chunk -- -p"));
        assert!(!check(""));
    }
}
