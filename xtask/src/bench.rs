//! `cargo xtask bench`: builds the release binaries and hands over to `keelson-bench`.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut build = run::cargo();
    build.current_dir(&workspace.root).args(["build", "--locked", "--release", "-p", "keelson", "-p", "keelson-bench"]);
    let mut costs = run::cargo();
    costs.current_dir(&workspace.root).args([
        "build",
        "--locked",
        "--release",
        "-p",
        "keelson-registry",
        "--example",
        "costs",
    ]);
    if !run::shown(&mut build)? || !run::shown(&mut costs)? {
        return Ok(ExitCode::FAILURE);
    }
    let release = workspace.target.join("release");
    let binary = |name: &str| release.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let mut bench = Command::new(binary("keelson-bench"));
    bench.arg("--server").arg(binary("keelson")).arg("--costs").arg(binary("examples/costs"));
    run::shown(bench.args(args)).map(run::code)
}
