//! `cargo xtask fuzz`: hands over to `keelson-fuzz`, built for speed.
//!
//! The tests run the same targets for a moment each; this is for an hour on a quiet machine.

use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

pub(crate) fn fuzz(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut command = run::cargo();
    command.current_dir(&workspace.root).args(["run", "--locked", "--release", "-p", "keelson-fuzz", "--"]);
    run::shown(command.args(args)).map(run::code)
}
