//! The archive of programs that envtest starts, and the index by which `setup-envtest` finds it.
//!
//! `setup-envtest` unpacks only regular files, by their file names. A link to the server would become a second copy of
//! it, so `etcd` is a small program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::archive::{gzip, tar};
use crate::files::Files;
use crate::programs::Programs;
use crate::release::{Release, debian_machine};
use crate::run;

/// The directory in the archive, named as in upstream's archives.
const DIRECTORY: &str = "controller-tools/envtest/";
pub(crate) const INDEX: &str = "envtest-releases.yaml";

/// The archive of the two programs that envtest starts, and of kubectl. Without an `etcd` program, a copy of the server
/// takes its place.
///
/// # Errors
/// When a program can't be read.
pub(crate) fn archive(release: &Release, programs: &Programs, kubectl: &Path) -> Result<Vec<u8>> {
    let mut files = Files::default();
    files.copy("kube-apiserver", 0o755, &programs.keelson)?;
    files.copy("etcd", 0o755, programs.etcd.as_ref().unwrap_or(&programs.keelson))?;
    files.copy("kubectl", 0o755, kubectl)?;
    gzip(&tar(&files, DIRECTORY, release.seconds)?)
}

/// The name of the archive's file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("envtest-v{}-linux-{}.tar.gz", release.kubernetes, debian_machine())
}

/// The index with the archive's URL and hash. It is JSON, which is valid YAML.
pub(crate) fn index(release: &Release, archive: &[u8], address: &str) -> Value {
    let name = file_name(release);
    let hash = HEXLOWER.encode(&Sha512::digest(archive));
    let link = format!("{}/{name}", address.trim_end_matches('/'));
    json!({ "releases": { format!("v{}", release.kubernetes): { name: { "hash": hash, "selfLink": link } } } })
}

/// The version of a kubectl, which must be of the served Kubernetes release.
///
/// # Errors
/// When kubectl does not run, or has another minor version.
pub(crate) fn check_kubectl(release: &Release, kubectl: &Path) -> Result<()> {
    let said = run::output(Command::new(kubectl).args(["version", "--client", "--output=json"]))?;
    let said: Value = serde_json::from_str(&said).context("kubectl printed no JSON")?;
    let version = said["clientVersion"]["gitVersion"].as_str().unwrap_or_default();
    let minor = release.kubernetes.rsplit_once('.').map_or("", |(minor, _)| minor);
    anyhow::ensure!(version.starts_with(&format!("v{minor}.")), "kubectl is {version}, and the server is of {minor}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_names_the_archive_by_version_and_hash() {
        let release =
            Release { version: "0.1.0".into(), kubernetes: "1.36.2".into(), commit: String::new(), seconds: 0 };
        let index = index(&release, b"archive", "https://example.org/releases/");
        let name = file_name(&release);
        let entry = &index["releases"]["v1.36.2"][&name];
        assert!(name.starts_with("envtest-v1.36.2-linux-") && name.ends_with(".tar.gz"));
        assert_eq!(entry["selfLink"], format!("https://example.org/releases/{name}"));
        assert_eq!(entry["hash"].as_str().unwrap().len(), 128);
    }
}
