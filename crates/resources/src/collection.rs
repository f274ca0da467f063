//! Collections: what is stored together under one prefix.

use crate::resource::Resource;

/// The number of a collection: its index in `Catalogue::collections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionId(pub u16);

/// Objects that are stored under one prefix. Usually one resource's; core and `events.k8s.io` events share one.
#[derive(Debug)]
pub struct Collection {
    /// Its number.
    pub id: CollectionId,
    /// The place below `/registry/`, without slashes at its ends.
    pub prefix: &'static str,
    /// Whether its keys are `<namespace>/<name>`.
    pub namespaced: bool,
    /// The resources that show it. The first is in the group that it is stored in.
    pub resources: Vec<&'static Resource>,
    /// The stored paths that its resources' selectable fields read and those that they note, each once.
    pub paths: Vec<&'static str>,
    /// The index in `paths` of the one by which events are dispatched.
    pub dispatch: Option<usize>,
}

impl Collection {
    /// The prefix of all its keys: `/registry/pods/`.
    pub fn key_prefix(&self) -> String {
        format!("/registry/{}/", self.prefix)
    }

    /// The index in `paths` of a stored path.
    pub fn path_index(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|known| *known == path)
    }

    pub(crate) fn new(id: CollectionId, prefix: &'static str, namespaced: bool) -> Self {
        Self { id, prefix, namespaced, resources: Vec::new(), paths: Vec::new(), dispatch: None }
    }

    pub(crate) fn add(&mut self, resource: &'static Resource) {
        self.resources.push(resource);
        let selectable = resource.selectable_fields.iter().flat_map(|field| field.paths);
        for path in selectable.chain(resource.noted) {
            if !self.paths.contains(path) {
                self.paths.push(path);
            }
        }
        if let Some(path) = resource.dispatch {
            self.dispatch = self.path_index(path);
        }
    }
}
