//! `keelson serve --shared-keys-dir`: the keys that all servers on a store share, in a read-only directory.
//!
//! An example is a Secret that is mounted into a container. The start copies the files into the data directory before
//! the server reads its keys there. They replace the files of an earlier start.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::private_file;

/// The files of the directory. All of them must exist.
const SHARED: [&str; 4] = ["ca.crt", "ca.key", "sa.key", "sa.pub"];

/// Copies the keys into a data directory.
///
/// # Errors
/// When a key is missing or can't be written.
pub(crate) fn install(shared: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let mut contents = Vec::new();
    for name in SHARED {
        let file = shared.join(name);
        let content = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        if content.trim().is_empty() {
            bail!("{} is empty", file.display());
        }
        contents.push((name, content));
    }
    let own = data_dir.join("pki");
    DirBuilder::new().recursive(true).mode(0o700).create(&own).with_context(|| format!("making {}", own.display()))?;
    for (name, content) in contents {
        let file = own.join(name);
        if fs::read_to_string(&file).is_ok_and(|known| known == content) {
            continue;
        }
        let writing = || format!("writing {}", file.display());
        let partial = own.join(format!("{name}.shared"));
        // An interrupted start may have left a partial file.
        let _absent = fs::remove_file(&partial);
        private_file::write(&partial, &content).with_context(writing)?;
        fs::rename(&partial, &file).with_context(writing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn shared_keys_replace_own_ones() {
        let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in SHARED {
            fs::write(shared.path().join(name), format!("shared {name}")).unwrap();
        }
        fs::create_dir(data.path().join("pki")).unwrap();
        fs::write(data.path().join("pki/sa.key"), "own").unwrap();
        fs::write(data.path().join("pki/serving.crt"), "own").unwrap();
        for _ in 0..2 {
            install(shared.path(), data.path()).unwrap();
            let read = |name: &str| fs::read_to_string(data.path().join("pki").join(name)).unwrap();
            assert_eq!((read("sa.key"), read("serving.crt")), ("shared sa.key".to_owned(), "own".to_owned()));
            let mode = fs::metadata(data.path().join("pki/ca.key")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn missing_shared_keys_change_nothing() {
        let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(shared.path().join("ca.crt"), "shared").unwrap();
        let error = format!("{:#}", install(shared.path(), data.path()).unwrap_err());
        assert!(error.contains("ca.key"), "{error}");
        assert!(!data.path().join("pki").exists());
    }
}
