//! Checks of the packages for Python and JavaScript: each is installed with pip or npm, and its tests run with the
//! packed server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::roots::Root;
use super::{Bench, Outcome};
use crate::languages;
use crate::run;

/// The optional test dependency of the wheel, and the version for the check.
const PYTEST: &str = "pytest>=7";

/// Finds the built wheel by its name without the platform.
pub(super) fn wheel_in(bench: &Bench<'_>, out: &Path) -> PathBuf {
    let stem = languages::wheel_stem(bench.release);
    let mut entries = std::fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&stem));
    entries.find(is_it).unwrap_or_else(|| out.join(format!("{stem}linux.whl")))
}

/// Installs the wheel into a new environment with pip. Its tests find the pytest plugin and the server without
/// settings.
pub(super) fn wheel(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    if !run::has("python3") {
        return Ok(Outcome::NotRun("python3 is not installed".to_owned()));
    }
    let root = Root::empty(&bench.roots.join("wheel"))?;
    let environment = root.path.join("environment");
    run::output(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let program = |name: &str| alone(Command::new(environment.join("bin").join(name)));
    let pip = ["install", "--quiet", "--disable-pip-version-check"];
    run::output(program("pip").args(pip).arg("--no-index").arg(package))?;
    let said = run::output(program("keelson").arg("--version"))?;
    ensure!(said.contains(&bench.release.kubernetes), "the program of the wheel says {said:?}");
    if let Err(error) = run::output(program("pip").args(pip).arg(PYTEST)) {
        return Ok(Outcome::NotRun(format!(
            "it is installed, and pip could not fetch pytest for its tests: {error:#}"
        )));
    }
    let tests = root.path.join("tests");
    run::output(Command::new("cp").arg("-r").arg(bench.sources.join("python/tests")).arg(&tests))?;
    let mut pytest = program("pytest");
    run::output(pytest.current_dir(&root.path).args(["-q", "-p", "no:cacheprovider"]).arg(&tests))?;
    Ok(Outcome::Passed)
}

/// Unpacks the archive into `node_modules`, and runs the tests of a project there.
pub(super) fn npm(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    if !run::has("node") {
        return Ok(Outcome::NotRun("node is not installed".to_owned()));
    }
    let root = Root::empty(&bench.roots.join("npm"))?;
    if run::has("npm") {
        std::fs::write(root.path.join("package.json"), r#"{"name":"user","private":true,"type":"module"}"#)?;
        let flags = ["install", "--offline", "--no-audit", "--no-fund"];
        run::output(alone(Command::new("npm")).current_dir(&root.path).args(flags).arg(package))?;
    } else {
        let place = root.path.join("node_modules/keelson");
        std::fs::create_dir_all(&place)?;
        run::output(Command::new("tar").arg("-C").arg(&place).args(["--strip-components=1", "-xzf"]).arg(package))?;
    }
    run::output(Command::new("cp").arg("-r").arg(bench.sources.join("javascript/test")).arg(root.path.join("test")))?;
    run::output(alone(Command::new("node")).current_dir(&root.path).args(["--test", "test/"]))?;
    Ok(Outcome::Passed)
}

/// Removes the environment variables that select other programs from a command.
fn alone(mut command: Command) -> Command {
    for name in ["KEELSON_BIN", "PYTHONPATH", "NODE_PATH"] {
        command.env_remove(name);
    }
    command
}
