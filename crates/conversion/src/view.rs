//! Views: how the objects of a stored kind are shown in one of its versions.
//!
//! Objects may lie in the store in any version, since the version in which a server stores can change; a view therefore finds its
//! conversion by what an object says it is in. Nothing here knows which versions are served.

use keelson_meta::{GroupVersion, GroupVersionKind};

use crate::conversion::Conversion;

/// A kind in one version.
#[derive(Debug)]
pub struct View {
    /// The `apiVersion` of the objects as they are shown.
    pub api_version: String,
    /// The conversions that lead here; none for a kind with one version.
    sources: Vec<&'static Conversion>,
    /// The `apiVersion`s of versions that have the same fields, where nothing but that tells them apart.
    renamed: Vec<String>,
    /// Whether nothing but this version can be stored.
    sole: bool,
}

/// How an object gets into a view.
#[derive(Clone, Copy, Debug)]
pub enum Passage {
    /// It is in the version already.
    Same,
    /// It has the fields of the version, under another name.
    Renamed,
    /// It goes through this.
    Through(&'static Conversion),
}

impl View {
    /// The view of a kind in a version.
    pub fn new(kind: &GroupVersionKind) -> Self {
        let sources: Vec<_> = Conversion::leading_to(&kind.kind, (&kind.group, &kind.version)).collect();
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

    /// How an object that is stored in this `apiVersion` gets into the view; `None` when its kind does not know that version.
    pub fn passage(&self, stored: &str) -> Option<Passage> {
        if stored == self.api_version {
            return Some(Passage::Same);
        }
        if self.renamed.iter().any(|known| known == stored) {
            return Some(Passage::Renamed);
        }
        self.sources.iter().find(|source| source.from_api_version() == stored).map(|source| Passage::Through(source))
    }

    /// The `apiVersion`s that stored objects may be in: first that of the view, then each that leads to it.
    pub fn readable(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().map(|source| source.from_api_version());
        let others = sources.chain(self.renamed.iter().map(String::as_str));
        std::iter::once(&*self.api_version).chain(others.filter(|other| *other != self.api_version))
    }

    /// Whether every stored object is in this version, so that none has to be looked at: a kind of the program that never had
    /// another one. That a kind is served in one version does not say so.
    pub fn is_sole(&self) -> bool {
        self.sole
    }
}

#[cfg(test)]
mod tests {
    use keelson_resources::Catalogue;

    use super::*;

    #[test]
    fn every_served_version_of_what_is_stored_can_be_reached_from_the_stored_form() {
        for resource in Catalogue::builtin().resources().filter(|resource| resource.is_persisted()) {
            for version in &resource.versions {
                let view = View::new(&resource.gvk(&version.name));
                assert!(matches!(view.passage(&view.api_version), Some(Passage::Same)));
                let stored = resource.default_storage_kind().expect("it is stored").group_version().to_string();
                assert!(view.passage(&stored).is_some(), "{} from {stored}", view.api_version);
                assert!(view.passage("nowhere/v1").is_none());
            }
        }
    }

    #[test]
    fn events_of_either_group_lead_to_the_other() {
        let events = Catalogue::builtin().resource("events.k8s.io", "events").expect("events");
        let Some(Passage::Through(conversion)) = View::new(&events.gvk("v1")).passage("v1") else {
            panic!("no conversion")
        };
        assert!(!conversion.is_rename());
        assert_eq!(conversion.to_api_version(), "events.k8s.io/v1");
    }
}
