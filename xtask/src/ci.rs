//! `cargo xtask ci`: all checks of a change, cheapest first. Stops at the first failure.
//!
//! The tests run last, so that their closing lines end the output.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::tidy::engines::ENGINES;
use crate::workspace::Workspace;
use crate::{console, deny, docs, run, test, tidy};

pub(crate) fn ci(workspace: &Workspace) -> Result<ExitCode> {
    step("format");
    if !run::shown(cargo(workspace).args(["fmt", "--all", "--check"]))? {
        return Ok(ExitCode::FAILURE);
    }
    step("tidy");
    tidy::tidy(workspace)?;
    step("docs");
    if docs::docs(workspace, false)? != ExitCode::SUCCESS {
        return Ok(ExitCode::FAILURE);
    }
    step("deny");
    deny::deny(workspace)?;
    step("console");
    if let console::Outcome::NotRun(why) = console::check(workspace)? {
        eprintln!("{why}");
    }
    step("clippy");
    if !run::shown(cargo(workspace).args([
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))? {
        return Ok(ExitCode::FAILURE);
    }
    step("the program by itself, as it is released");
    // A build together with other crates enables features that the crate's own manifest may lack.
    if !run::shown(cargo(workspace).args(["check", "--locked", "--package", "keelson"]))? {
        return Ok(ExitCode::FAILURE);
    }
    step("engines of the library, each alone");
    for feature in std::iter::once("").chain(ENGINES.map(|(feature, _)| feature)) {
        let mut check = cargo(workspace);
        check.args(["check", "--locked", "--package", "keelson-apiserver", "--lib", "--no-default-features"]);
        if !run::shown(check.args(["--features", feature]))? {
            return Ok(ExitCode::FAILURE);
        }
    }
    step("forms of servers for tests, each alone");
    for feature in ["embedded,latest", "process,latest"] {
        let mut check = cargo(workspace);
        check.args(["check", "--locked", "--package", "keelson-test", "--lib", "--no-default-features"]);
        if !run::shown(check.args(["--features", feature]))? {
            return Ok(ExitCode::FAILURE);
        }
    }
    step("test");
    test::test(workspace, &[])
}

fn cargo(workspace: &Workspace) -> Command {
    let mut command = run::cargo();
    command.current_dir(&workspace.root);
    command
}

fn step(name: &str) {
    eprintln!("== {name}");
}
