//! Checksums of all packages in one list, and the signature of that list.
//!
//! minisign signs the list, not each package, so that one signature covers a release.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::run;

const LIST: &str = "SHA256SUMS";

/// Writes the checksums of all files in a directory in the format of `sha256sum --check`. Signs the list if there is a
/// key.
///
/// # Errors
/// When a file can't be read, or minisign refuses the key.
pub(crate) fn write(directory: &Path, key: Option<&Path>) -> Result<()> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_file() && !name.starts_with(LIST) {
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            lines.push(format!("{}  {name}\n", HEXLOWER.encode(&Sha256::digest(bytes))));
        }
    }
    lines.sort_by(|one, other| one[64..].cmp(&other[64..]));
    let list = directory.join(LIST);
    std::fs::write(&list, lines.concat())?;
    let signature = directory.join(format!("{LIST}.minisig"));
    // A signature of an older list would fail verification, so it is removed.
    let _absent = std::fs::remove_file(&signature);
    if let Some(key) = key {
        let mut command = Command::new("minisign");
        command.arg("-S").arg("-s").arg(key).arg("-m").arg(&list).arg("-x").arg(&signature);
        run::output(&mut command)
            .context("signing with minisign, which reads a password from the terminal unless the key has none")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_list_by_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b", "a", "SHA256SUMS.minisig"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        write(directory.path(), None).unwrap();
        let list = std::fs::read_to_string(directory.path().join(LIST)).unwrap();
        let names: Vec<_> = list.lines().map(|line| &line[64..]).collect();
        assert_eq!(names, ["  a", "  b"]);
        assert!(list.starts_with("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"));
        assert!(!directory.path().join("SHA256SUMS.minisig").exists());
    }
}
