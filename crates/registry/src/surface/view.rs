//! The conversion path of a stored kind to one of its versions.
//!
//! Stored objects may have any version, since the version in which a server stores can change, so a view selects the conversion by
//! the `apiVersion` of an object. It does not know which versions are served.

use keelson_meta::{GroupVersion, GroupVersionKind};

use crate::kind_rules::Conversion;

/// A kind in one version.
#[derive(Debug)]
pub struct View {
    /// The `apiVersion` of the objects as they are shown.
    pub api_version: String,
    /// The conversions that lead here; none for a kind with one version.
    sources: Vec<&'static dyn Conversion>,
    /// The `apiVersion`s of versions with the same fields, which differ in nothing else.
    renamed: Vec<String>,
    /// True if only this version can be stored.
    sole: bool,
}

/// The way of an object into a view.
#[derive(Clone, Copy, Debug)]
pub enum Passage {
    /// It is in the version already.
    Same,
    /// It has the fields of the version, under another name.
    Renamed,
    /// It goes through this.
    Through(&'static dyn Conversion),
}

impl View {
    /// The view of a kind in a version to which these conversions lead from its others.
    pub fn converting(kind: &GroupVersionKind, sources: Vec<&'static dyn Conversion>) -> Self {
        let sole = sources.iter().all(|source| source.is_identity());
        Self { api_version: kind.group_version().to_string(), sources, renamed: Vec::new(), sole }
    }

    /// The view of a kind in a version, where all its versions have the same fields: `others` are the names of its other
    /// versions. Which versions such a kind has can change while objects of it are stored, so that each of them is looked at.
    pub fn renaming<'o>(kind: &GroupVersionKind, others: impl Iterator<Item = &'o str>) -> Self {
        let api_version =
            |version: &str| GroupVersion { group: kind.group.clone(), version: version.to_owned() }.to_string();
        let renamed = others.map(api_version).collect();
        Self { api_version: kind.group_version().to_string(), sources: Vec::new(), renamed, sole: false }
    }

    /// The way of an object with this stored `apiVersion` into the view; `None` when its kind does not know the version.
    pub fn passage(&self, stored: &str) -> Option<Passage> {
        if stored == self.api_version {
            return Some(Passage::Same);
        }
        if self.renamed.iter().any(|known| known == stored) {
            return Some(Passage::Renamed);
        }
        self.sources.iter().find(|source| source.source_api_version() == stored).map(|source| Passage::Through(*source))
    }

    /// The `apiVersion`s that stored objects may be in: first that of the view, then each that leads to it.
    pub fn readable(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().map(|source| source.source_api_version());
        let others = sources.chain(self.renamed.iter().map(String::as_str));
        std::iter::once(&*self.api_version).chain(others.filter(|other| *other != self.api_version))
    }

    /// Returns true if every stored object has this version: a built-in kind that never had another one. A kind served in one
    /// version may have been stored in others.
    pub fn is_sole(&self) -> bool {
        self.sole
    }
}
