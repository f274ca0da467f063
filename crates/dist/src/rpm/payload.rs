//! The files of an RPM package: a cpio archive of the kind `newc`.
//!
//! The entries of the payload have the numbers and the order of the header's list of files.

use std::fmt::Write as _;

use crate::files::{Content, File};

const END: &str = "TRAILER!!!";

/// The archive of these files. Their paths start with `./`.
pub(super) fn cpio(files: &[(&str, &File)], seconds: u64) -> Vec<u8> {
    let mut archive = Vec::new();
    for (place, (path, file)) in files.iter().enumerate() {
        add(&mut archive, place as u64 + 1, &format!("./{path}"), mode(file).into(), seconds, content(file));
    }
    add(&mut archive, 0, END, 0, 0, &[]);
    archive
}

/// The mode of a file with its type.
pub(super) fn mode(file: &File) -> u16 {
    let kind = match &file.content {
        Content::Bytes(_) => 0o100_000,
        Content::Directory => 0o040_000,
        Content::Link(_) => 0o120_000,
    };
    kind | u16::try_from(file.mode & 0o7777).unwrap_or_default()
}

/// The content of a file in the archive; of a link, its target.
pub(super) fn content(file: &File) -> &[u8] {
    match &file.content {
        Content::Bytes(bytes) => bytes,
        Content::Link(to) => to.as_bytes(),
        Content::Directory => &[],
    }
}

fn add(archive: &mut Vec<u8>, inode: u64, name: &str, mode: u64, seconds: u64, content: &[u8]) {
    let mut head = "070701".to_owned();
    // Inode, mode, user, group, links, time, size, device numbers, length of the name, and an unused checksum.
    let fields = [inode, mode, 0, 0, 1, seconds, content.len() as u64, 0, 1, 0, 0, name.len() as u64 + 1, 0];
    for field in fields {
        let _infallible = write!(head, "{field:08x}");
    }
    archive.extend_from_slice(head.as_bytes());
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
