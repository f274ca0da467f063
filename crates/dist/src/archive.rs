//! Reproducible archives: tar, gzip, and the `ar` of Debian packages. Equal files give equal bytes.
//!
//! Entries have the time of the release, no owner names, and a fixed order.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use crate::files::{Content, Files};

/// A tar archive of the files, below a directory of this name (empty for none). All files have the time of the release.
///
/// # Errors
/// When a path is too long for the tar format.
pub(crate) fn tar(files: &Files, below: &str, seconds: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, file) in files.with_directories().iter() {
        let mut header = Header::new_gnu();
        header.set_mode(file.mode);
        header.set_mtime(seconds);
        header.set_uid(file.owner.into());
        header.set_gid(file.owner.into());
        header.set_size(file.bytes().len() as u64);
        let path = format!("{below}{path}");
        let added = match &file.content {
            Content::Bytes(bytes) => {
                header.set_entry_type(EntryType::Regular);
                archive.append_data(&mut header, &path, &**bytes)
            }
            Content::Directory => {
                header.set_entry_type(EntryType::Directory);
                archive.append_data(&mut header, format!("{path}/"), std::io::empty())
            }
            Content::Link(to) => {
                header.set_entry_type(EntryType::Symlink);
                archive.append_link(&mut header, &path, to)
            }
        };
        added.with_context(|| format!("packing {path}"))?;
    }
    archive.into_inner().context("packing")
}

/// The bytes in gzip, at the highest compression level.
///
/// # Errors
/// Never in practice, because the output is in memory.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    writer.write_all(bytes).context("compressing")?;
    writer.finish().context("compressing")
}

/// The `ar` archive of these members, in the format of dpkg.
pub(crate) fn ar(members: &[(&str, &[u8])], seconds: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let head = format!("{name:<16}{seconds:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        archive.extend_from_slice(head.as_bytes());
        archive.extend_from_slice(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_are_the_same_bytes() {
        let mut files = Files::default();
        files.add("etc/a", 0o600, *b"text");
        files.link("etc/b", "a");
        let made = || gzip(&tar(&files, "x/", 7).unwrap()).unwrap();
        assert_eq!(made(), made());
        let tar = tar(&files, "x/", 7).unwrap();
        let mut archive = tar::Archive::new(&*tar);
        let paths = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        assert_eq!(paths.collect::<Vec<_>>(), ["x/etc/", "x/etc/a", "x/etc/b"]);
    }

    #[test]
    fn ar_members_begin_at_even_offsets() {
        let archive = ar(&[("debian-binary", b"2.0"), ("control", b"x")], 1);
        assert_eq!(&archive[..8], b"!<arch>\n");
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 2);
        assert_eq!(&archive[72..79], b"control");
    }
}
