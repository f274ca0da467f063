//! Python packages for tests. pip installs them from its configured index into directories below `target`.
//!
//! Each has its own directory in `target/tools`, which its test gets as `PYTHONPATH`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run;
use crate::workspace::Workspace;

/// A separately installed package.
pub(crate) struct Package<'p> {
    pub(crate) name: &'p str,
    pub(crate) version: &'p str,
    /// Arguments of Python that import the package.
    pub(crate) check: &'p [&'p str],
}

impl Package<'_> {
    /// Installs the package unless it is installed, and returns its directory for Python. `required` are pip's
    /// requirements.
    ///
    /// # Errors
    /// When pip can't install the package, or Python can't load it.
    pub(crate) fn install(&self, workspace: &Workspace, required: &[&str]) -> Result<PathBuf> {
        let directory = workspace.target.join("tools").join(format!("{}-{}", self.name, self.version));
        // Wheels belong to one Python release, and the installed Python may have changed since.
        if self.check(&directory).is_ok() {
            return Ok(directory);
        }
        eprintln!("fetching {} {} (Python package)", self.name, self.version);
        // Installed into a temporary directory and renamed, so that an interrupted run leaves nothing that looks
        // complete.
        let partial = directory.with_file_name(format!("{}.partial", self.name));
        remove(&partial)?;
        let pip =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"];
        run::output(Command::new("python3").args(pip).arg("--target").arg(&partial).args(required))?;
        self.check(&partial)?;
        remove(&directory)?;
        std::fs::rename(&partial, &directory).context("cannot put it in its place")?;
        Ok(directory)
    }

    /// Checks that Python can load it.
    fn check(&self, directory: &Path) -> Result<()> {
        run::output(Command::new("python3").args(self.check).env("PYTHONPATH", directory)).map(drop)
    }
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
