//! The files of a package: their paths, modes and contents, independent of the package format.
//!
//! Contents are in memory: the largest is a program of some 30 MB.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};

/// Files by their path from the root, without a leading slash. Directories above a file need no entry of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(BTreeMap<String, File>);

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) mode: u32,
    pub(crate) content: Content,
    /// The user and group of a file that is not root's.
    pub(crate) owner: u32,
    /// True for settings, which an upgrade keeps.
    pub(crate) is_configuration: bool,
}

/// The contents of a file.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Arc<[u8]>),
    /// A symbolic link to this path.
    Link(String),
    Directory,
}

impl File {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Link(_) | Content::Directory => &[],
        }
    }
}

impl Files {
    /// Adds a file with these bytes.
    pub(crate) fn add(&mut self, path: impl Into<String>, mode: u32, bytes: impl Into<Arc<[u8]>>) -> &mut File {
        self.insert(path.into(), mode, Content::Bytes(bytes.into()))
    }

    /// Adds a copy of a file of this machine.
    ///
    /// # Errors
    /// When it can't be read.
    pub(crate) fn copy(&mut self, path: impl Into<String>, mode: u32, from: &Path) -> Result<&mut File> {
        let bytes = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        Ok(self.add(path, mode, bytes))
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: impl Into<String>, to: impl Into<String>) {
        self.insert(path.into(), 0o777, Content::Link(to.into()));
    }

    /// Adds a directory. Only empty directories and directories of other users than root need an entry.
    pub(crate) fn directory(&mut self, path: impl Into<String>, mode: u32) -> &mut File {
        self.insert(path.into(), mode, Content::Directory)
    }

    /// All entries in the order of their paths.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// All entries and their parent directories. Each directory comes before its content.
    pub(crate) fn with_directories(&self) -> Self {
        let mut all = self.clone();
        for path in self.0.keys() {
            for above in Path::new(path).ancestors().skip(1).filter_map(Path::to_str).filter(|above| !above.is_empty())
            {
                if !all.0.contains_key(above) {
                    all.directory(above, 0o755);
                }
            }
        }
        all
    }

    /// The bytes of all files together.
    pub(crate) fn size(&self) -> u64 {
        self.0.values().map(|file| file.bytes().len() as u64).sum()
    }

    fn insert(&mut self, path: String, mode: u32, content: Content) -> &mut File {
        let file = File { mode, content, owner: 0, is_configuration: false };
        // A second entry of a path replaces the first.
        match self.0.entry(path) {
            Entry::Occupied(mut there) => {
                there.insert(file);
                there.into_mut()
            }
            Entry::Vacant(free) => free.insert(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_their_files() {
        let mut files = Files::default();
        files.add("usr/bin/keelson", 0o755, *b"program");
        files.directory("usr", 0o700);
        let all = files.with_directories();
        let paths: Vec<_> = all.iter().map(|(path, file)| (path, file.mode)).collect();
        assert_eq!(paths, [("usr", 0o700), ("usr/bin", 0o755), ("usr/bin/keelson", 0o755)]);
    }
}
