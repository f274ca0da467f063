//! Runs the tests of the packages for Python and JavaScript on this binary, if the languages are installed.
//!
//! The output lists the tests that were not run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

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
