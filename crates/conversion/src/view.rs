//! Views: what a collection can be shown as, numbered, so that a cache can keep one memo for each.
//!
//! A view is a collection in one of the versions that show it. Objects may lie in the store in any version, since the
//! version in which a server stores can change; a view therefore finds its conversion by what an object says it is in.

use std::sync::OnceLock;

use keelson_resources::{Catalogue, CollectionId, Resource};

use crate::conversion::Conversion;

/// The number of a view: its index in [`Views::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewId(pub u16);

/// A collection in one version.
#[derive(Debug)]
pub struct View {
    /// Its number.
    pub id: ViewId,
    /// Its place among the views of its collection, for memos that are kept with an object.
    pub slot: u8,
    /// The collection that it shows.
    pub collection: CollectionId,
    /// The group in which objects are shown, empty for the core group.
    pub group: &'static str,
    /// The version in which objects are shown.
    pub version: &'static str,
    /// The kind of the objects.
    pub kind: &'static str,
    /// The `apiVersion` of the objects as they are shown.
    pub api_version: String,
    /// The conversions that lead here; none for a kind with one version.
    sources: Vec<&'static Conversion>,
}

/// How an object gets into a view.
#[derive(Clone, Copy, Debug)]
pub enum Passage {
    /// It is in the version already.
    Same,
    /// It goes through this.
    Through(&'static Conversion),
}

/// All views of the built-in collections.
#[derive(Debug)]
pub struct Views {
    all: Vec<View>,
    /// The first view of each collection; those of one collection stand together.
    first: Vec<usize>,
}

impl View {
    /// How an object that is stored in this `apiVersion` gets into the view; `None` when its kind does not know that version.
    pub fn passage(&self, stored: &str) -> Option<Passage> {
        if stored == self.api_version {
            return Some(Passage::Same);
        }
        self.sources.iter().find(|source| source.from_api_version() == stored).map(|source| Passage::Through(source))
    }
}

impl View {
    /// Whether the kind is served in no other version.
    pub fn is_sole(&self) -> bool {
        self.sources.iter().all(|source| source.is_identity())
    }

    /// Whether all versions that lead here have the same fields, so that only the name of the version differs.
    pub fn is_rename(&self) -> bool {
        self.sources.iter().all(|source| source.is_rename() || source.is_identity())
    }
}

impl Views {
    /// The views of the built-in collections. They are made at the first call, in some microseconds.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Views> = OnceLock::new();
        BUILTIN.get_or_init(|| Self::new(Catalogue::builtin()))
    }

    /// All views, each at the index that its id says.
    pub fn all(&self) -> &[View] {
        &self.all
    }

    /// The view of a number that this gave out.
    pub fn get(&self, id: ViewId) -> &View {
        &self.all[usize::from(id.0)]
    }

    /// The views of a collection, each at the index that its slot says.
    pub fn of_collection(&self, collection: CollectionId) -> &[View] {
        let index = usize::from(collection.0);
        let end = self.first.get(index + 1).copied().unwrap_or(self.all.len());
        self.first.get(index).map_or(&[], |start| &self.all[*start..end])
    }

    /// The view in which a version of a resource shows its collection; `None` when it is not stored or not served.
    pub fn of(&self, resource: &Resource, version: &str) -> Option<&View> {
        let collection = Catalogue::builtin().collection_of(resource)?;
        let views = self.of_collection(collection.id).iter();
        views.into_iter().find(|view| view.group == resource.group && view.version == version)
    }

    fn new(catalogue: &'static Catalogue) -> Self {
        let mut views = Self { all: Vec::new(), first: Vec::new() };
        for collection in catalogue.collections() {
            let start = views.all.len();
            views.first.push(start);
            for resource in &collection.resources {
                for version in resource.versions {
                    let view = views.view(collection.id, start, resource, version.name);
                    views.all.push(view);
                }
            }
        }
        views
    }

    fn view(&self, collection: CollectionId, start: usize, resource: &'static Resource, version: &'static str) -> View {
        let next = self.all.len();
        View {
            id: ViewId(u16::try_from(next).expect("fewer than 65536 built-in views")),
            slot: u8::try_from(next - start).expect("fewer than 256 versions of a kind"),
            collection,
            group: resource.group,
            version,
            kind: resource.kind,
            api_version: resource.gvk(version).group_version().to_string(),
            sources: Conversion::leading_to(resource.kind, (resource.group, version)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_version_of_what_is_stored_is_a_view() {
        let views = Views::builtin();
        let mut served = 0;
        for resource in Catalogue::builtin().resources().filter(|resource| resource.is_persisted()) {
            for version in resource.versions {
                served += 1;
                let view = views.of(resource, version.name).expect("a view");
                assert_eq!((view.group, view.version, view.kind), (resource.group, version.name, resource.kind));
                assert!(matches!(view.passage(&view.api_version), Some(Passage::Same)));
                let stored = resource.storage_gvk().expect("it is stored").group_version().to_string();
                assert!(view.passage(&stored).is_some(), "{} from {stored}", view.api_version);
                assert!(view.passage("nowhere/v1").is_none());
            }
        }
        assert_eq!(views.all().len(), served);
    }

    #[test]
    fn numbers_and_slots_are_places() {
        let views = Views::builtin();
        for (index, view) in views.all().iter().enumerate() {
            assert_eq!(usize::from(view.id.0), index);
            assert_eq!(views.get(view.id).api_version, view.api_version);
            let beside = views.of_collection(view.collection);
            assert_eq!(beside[usize::from(view.slot)].id, view.id);
        }
        assert!(views.of_collection(CollectionId(u16::MAX)).is_empty());
    }

    #[test]
    fn events_are_one_collection_in_two_views() {
        let catalogue = Catalogue::builtin();
        let core = catalogue.resource("", "events").expect("core events");
        let new = catalogue.resource("events.k8s.io", "events").expect("events");
        let views = Views::builtin();
        let [core, new] = [core, new].map(|resource| views.of(resource, "v1").expect("a view"));
        assert_eq!((core.collection, core.slot, new.slot), (new.collection, 0, 1));
        let Some(Passage::Through(conversion)) = new.passage("v1") else { panic!("no conversion") };
        assert!(!conversion.is_rename());
        assert_eq!(conversion.to_api_version(), "events.k8s.io/v1");
    }

    #[test]
    fn what_is_not_stored_or_not_served_has_no_view() {
        let catalogue = Catalogue::builtin();
        let pods = catalogue.resource("", "pods").expect("pods");
        assert!(Views::builtin().of(pods, "v2").is_none());
        let reviews = catalogue.resource("authentication.k8s.io", "tokenreviews").expect("token reviews");
        assert!(Views::builtin().of(reviews, "v1").is_none());
    }
}
