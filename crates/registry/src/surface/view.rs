//! The conversion path of a stored kind to one of its versions.
//!
//! The storage version of a server can change, so stored objects may have any version. A view therefore selects the
//! conversion by the `apiVersion` of an object. It does not know which versions are served.

use keelson_meta::{GroupVersion, GroupVersionKind};

use crate::kind_rules::Conversion;

/// A kind in one version.
#[derive(Debug)]
pub struct View {
    /// The `apiVersion` of the converted objects.
    pub api_version: String,
    /// The conversions to this version; none for a kind with one version.
    sources: Vec<&'static dyn Conversion>,
    /// The `apiVersion`s of versions with the same fields, which differ by name alone.
    renamed: Vec<String>,
    /// True if only this version can be stored.
    sole: bool,
}

/// The conversion path of an object to the version of a view.
#[derive(Clone, Copy, Debug)]
pub enum ConversionPath {
    /// The object is in this version already.
    Same,
    /// The object has the fields of this version, under another name.
    Renamed,
    /// The object is converted by this conversion.
    Through(&'static dyn Conversion),
}

impl View {
    /// A view of a kind in a version. `sources` are the conversions from its other versions.
    pub fn converting(kind: &GroupVersionKind, sources: Vec<&'static dyn Conversion>) -> Self {
        let sole = sources.iter().all(|source| source.is_identity());
        Self { api_version: kind.group_version().to_string(), sources, renamed: Vec::new(), sole }
    }

    /// A view of a kind whose versions all have the same fields. `others` are the names of the other versions. The
    /// versions of such a kind can change while it has stored objects, so the `apiVersion` of each object is read.
    pub fn renaming<'o>(kind: &GroupVersionKind, others: impl Iterator<Item = &'o str>) -> Self {
        let api_version =
            |version: &str| GroupVersion { group: kind.group.clone(), version: version.to_owned() }.to_string();
        let renamed = others.map(api_version).collect();
        Self { api_version: kind.group_version().to_string(), sources: Vec::new(), renamed, sole: false }
    }

    /// The conversion path of an object with this stored `apiVersion`; `None` for an unknown version.
    pub fn passage(&self, stored: &str) -> Option<ConversionPath> {
        if stored == self.api_version {
            return Some(ConversionPath::Same);
        }
        if self.renamed.iter().any(|known| known == stored) {
            return Some(ConversionPath::Renamed);
        }
        self.sources
            .iter()
            .find(|source| source.source_api_version() == stored)
            .map(|source| ConversionPath::Through(*source))
    }

    /// The `apiVersion`s of stored objects that can be converted: first that of the view, then each other one.
    pub fn readable(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().map(|source| source.source_api_version());
        let others = sources.chain(self.renamed.iter().map(String::as_str));
        std::iter::once(&*self.api_version).chain(others.filter(|other| *other != self.api_version))
    }

    /// Returns true if every stored object has this version. This holds for a built-in kind that never had another one.
    /// A custom kind with one served version may have been stored in others.
    pub fn is_sole(&self) -> bool {
        self.sole
    }
}
