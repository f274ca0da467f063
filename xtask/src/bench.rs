//! `cargo xtask bench`: builds the release binaries and hands over to `keelson-bench`.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut build = run::cargo();
    build.current_dir(&workspace.root).args(["build", "--locked", "--release", "-p", "keelson", "-p", "keelson-bench"]);
    if !run::shown(&mut build)? {
        return Ok(ExitCode::FAILURE);
    }
    let release = workspace.target.join("release");
    let binary = |name: &str| release.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    run::shown(Command::new(binary("keelson-bench")).arg("--server").arg(binary("keelson")).args(args)).map(run::code)
}
