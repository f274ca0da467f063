//! `cargo xtask bench`: builds the server and `keelson-bench`, and runs it.
//!
//! The command measures the profile `release`, which is quick to build; `--profile dist` measures the shipped build. If
//! the arguments name a store, its programs are located first, as for the tests.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{run, servers};

/// The benchmarks of a single object: packages with an example each.
const COSTS: [(&str, &str); 3] =
    [("keelson-registry", "costs"), ("keelson-cel", "expression"), ("keelson-test", "fork")];

pub(crate) fn bench(workspace: &Workspace, args: &[String]) -> Result<ExitCode> {
    let (profile, args) = profile_of(args)?;
    let mut build = run::cargo();
    build.current_dir(&workspace.root).args(["build", "--locked", "--profile", &profile]);
    build.args(["-p", "keelson", "-p", "keelson-bench"]);
    if !run::shown(&mut build)? {
        return Ok(ExitCode::FAILURE);
    }
    for (package, example) in COSTS {
        let mut costs = run::cargo();
        costs.current_dir(&workspace.root);
        costs.args(["build", "--locked", "--profile", &profile, "-p", package, "--example", example]);
        if !run::shown(&mut costs)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let release = workspace.target.join(&profile);
    let binary = |name: &str| release.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let mut bench = Command::new(binary("keelson-bench"));
    bench.arg("--server").arg(binary("keelson"));
    for (_, example) in COSTS {
        bench.arg("--costs").arg(binary(&format!("examples/{example}")));
    }
    if names_a_store(&args) {
        bench.envs(servers::find(workspace)?.variables);
    }
    run::shown(bench.args(args)).map(run::code)
}

/// The profile to build, and the remaining arguments.
fn profile_of(args: &[String]) -> Result<(String, Vec<String>)> {
    let Some(place) = args.iter().position(|arg| arg == "--profile") else {
        return Ok(("release".to_owned(), args.to_vec()));
    };
    let name = args.get(place + 1).context("--profile needs a name: release or dist")?;
    Ok((name.clone(), [&args[..place], &args[place + 2..]].concat()))
}

fn names_a_store(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "--store" || arg.starts_with("--store="))
}

#[cfg(test)]
mod tests {
    use super::{names_a_store, profile_of};

    #[test]
    fn the_profile_is_taken_out_of_the_arguments() {
        let check = |line: &str, profile: &str, rest: &str| {
            let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let (found, left) = profile_of(&args).unwrap();
            assert_eq!((found.as_str(), left.join(" ").as_str()), (profile, rest));
        };
        check("--pods 100 --profile dist --runs 3", "dist", "--pods 100 --runs 3");
        check("--pods 100", "release", "--pods 100");
    }

    #[test]
    fn programs_are_looked_for_only_where_a_store_is_named() {
        let check = |line: &str| names_a_store(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(check("--pods 100 --store etcd"));
        assert!(check("--store=postgres"));
        assert!(!check("--pods 100 --rows store"));
    }
}
