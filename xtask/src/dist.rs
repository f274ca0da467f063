//! `cargo xtask dist`: runs `keelson-dist`, which makes the packages of a release.
//!
//! `keelson-dist` is a separate crate because of its dependencies for archives, so that xtask stays quick to build.

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{kubectl, run};

pub(crate) fn dist(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut command = run::cargo();
    command.current_dir(&workspace.root).args(["run", "--locked", "--quiet", "-p", "keelson-dist", "--"]);
    command.arg("--root").arg(&workspace.root).arg("--target").arg(&workspace.target);
    if !args.iter().any(|arg| arg == "--help" || arg == "--kubectl") {
        command.arg("--kubectl").arg(kubectl::find(workspace)?);
    }
    run::shown(command.args(args)).map(run::code)
}
