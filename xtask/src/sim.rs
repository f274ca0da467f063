//! `cargo xtask sim`: runs `keelson-sim` in an optimized build.
//!
//! The tests run a sample of the same seeds in a debug build; this runs for as long as requested.

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

pub(crate) fn sim(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut command = run::cargo();
    command.current_dir(&workspace.root).args(["run", "--locked", "--release", "-p", "keelson-sim", "--"]);
    run::shown(command.args(args)).map(run::code)
}
