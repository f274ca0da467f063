//! `cargo xtask bench`: builds the release binaries and hands over to `keelson-bench`.
//!
//! Where a store is named, this finds its programs first, as it does for the tests.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{run, servers};

/// What measures the cost of one object: packages with an example each.
const COSTS: [(&str, &str); 2] = [("keelson-registry", "costs"), ("keelson-cel", "expression")];

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let mut build = run::cargo();
    build.current_dir(&workspace.root).args(["build", "--locked", "--release", "-p", "keelson", "-p", "keelson-bench"]);
    if !run::shown(&mut build)? {
        return Ok(ExitCode::FAILURE);
    }
    for (package, example) in COSTS {
        let mut costs = run::cargo();
        costs.current_dir(&workspace.root);
        costs.args(["build", "--locked", "--release", "-p", package, "--example", example]);
        if !run::shown(&mut costs)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let release = workspace.target.join("release");
    let binary = |name: &str| release.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let mut bench = Command::new(binary("keelson-bench"));
    bench.arg("--server").arg(binary("keelson"));
    for (_, example) in COSTS {
        bench.arg("--costs").arg(binary(&format!("examples/{example}")));
    }
    if names_a_store(args) {
        bench.envs(servers::find(workspace)?.variables);
    }
    run::shown(bench.args(args)).map(run::code)
}

fn names_a_store(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "--store" || arg.starts_with("--store="))
}

#[cfg(test)]
mod tests {
    use super::names_a_store;

    #[test]
    fn programs_are_looked_for_only_where_a_store_is_named() {
        let check = |line: &str| names_a_store(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(check("--pods 100 --store etcd"));
        assert!(check("--store=postgres"));
        assert!(!check("--pods 100 --rows store"));
    }
}
