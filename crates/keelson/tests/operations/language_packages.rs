//! Runs the tests of the packages for Python and JavaScript on this binary, if the languages are installed, and the steps
//! of the action for GitHub.
//!
//! The output lists the tests that were not run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

/// The timeout for the tests of a package.
const PATIENCE: Duration = Duration::from_secs(180);

fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Returns true if the command can be run and succeeds.
async fn can_run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

async fn run(command: &mut Command) {
    command.env("KEELSON_BIN", env!("CARGO_BIN_EXE_keelson")).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.output()).await.expect("the tests end").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{}\n{}", text(&ended.stdout), text(&ended.stderr));
}

#[tokio::test]
async fn the_package_for_javascript_passes_its_tests() {
    let is_there = can_run("node", &["--eval", "process.exit(Number(process.versions.node.split('.')[0]) < 20)"]).await;
    if !is_there {
        println!("not run: there is no Node.js 20");
        return;
    }
    run(Command::new("node").args(["--test", "test/"]).current_dir(project("javascript"))).await;
}

#[tokio::test]
async fn the_package_for_python_passes_its_tests() {
    if !can_run("python3", &["--version"]).await {
        println!("not run: there is no Python");
        return;
    }
    let directory = project("python");
    let python = || {
        let mut command = Command::new("python3");
        command.current_dir(&directory).env("PYTHONPATH", "src").env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    if can_run("python3", &["-c", "import pytest"]).await {
        run(python().args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "keelson.pytest_plugin"])).await;
        return;
    }
    println!("the tests of the plugin were not run: there is no pytest");
    let script = "import keelson\nwith keelson.start() as server:\n    assert server.get('/readyz') == 'ok'\n";
    run(python().args(["-c", script])).await;
}

/// The script and the steps of the action unpack a release, and refuse a file that is not the named one.
#[tokio::test]
async fn the_action_puts_a_release_on_the_path() {
    if !can_run("tar", &["--version"]).await {
        println!("not run: there is no tar");
        return;
    }
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    for (below, program) in [("keelson-0", "keelson"), ("controller-tools/envtest", "kube-apiserver")] {
        std::fs::create_dir_all(at(below)).unwrap();
        let script = at(below).join(program);
        std::fs::write(&script, format!("#!/bin/sh\necho {program} of a release\n")).unwrap();
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        let mut tar = Command::new("tar");
        tar.current_dir(place.path()).args(["-czf", &format!("{program}.tgz"), below.split('/').next().unwrap()]);
        assert!(tar.status().await.unwrap().success());
    }
    let action = project("packaging/github");
    let steps = std::fs::read_to_string(action.join("action.yml")).unwrap();
    let steps = steps.split_once("      run: |\n").unwrap().1.replace("\n        ", "\n");
    let run = async |sum: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &steps]).env("SCRIPT", action.join("setup-keelson.sh")).env("SHA256", sum);
        shell.env("ARCHIVE", at("keelson.tgz")).env("ENVTEST", at("kube-apiserver.tgz")).env("ENVTEST_SHA256", "");
        for name in ["RUNNER_TEMP", "GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT"] {
            shell.env(name, at(name));
        }
        shell.output().await.unwrap()
    };
    let refused = run(&"0".repeat(64)).await;
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has another SHA-256 checksum"), "{refused:?}");
    assert!(!at("GITHUB_PATH").exists() && !at("RUNNER_TEMP/keelson/bin").exists());

    let ran = run("").await;
    assert!(ran.status.success(), "{ran:?}");
    let bin = at("RUNNER_TEMP/keelson/bin").canonicalize().unwrap();
    assert_eq!(std::fs::read_to_string(at("GITHUB_PATH")).unwrap(), format!("{}\n", bin.display()));
    let variables = std::fs::read_to_string(at("GITHUB_ENV")).unwrap();
    let assets = at("RUNNER_TEMP/keelson-envtest/bin").canonicalize().unwrap();
    assert_eq!(variables, format!("KEELSON_BIN={}/keelson\nKUBEBUILDER_ASSETS={}\n", bin.display(), assets.display()));
    let said = Command::new(bin.join("keelson")).output().await.unwrap();
    assert_eq!(said.stdout, b"keelson of a release\n");
}
