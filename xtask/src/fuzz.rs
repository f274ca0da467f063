//! `cargo xtask fuzz`: runs `keelson-fuzz` in an optimized build.
//!
//! The tests run the same targets briefly. This command runs them for the requested time.

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

pub(crate) fn fuzz(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut command = run::cargo();
    command.current_dir(&workspace.root).args(["run", "--locked", "--release", "-p", "keelson-fuzz", "--"]);
    run::shown(command.args(args)).map(run::code)
}
