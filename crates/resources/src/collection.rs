//! Collections: what is stored together under one prefix.
//!
//! A collection is laid out by its resources: which fields are looked at, and by which one events are dispatched. Its objects
//! are the cache's.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::resource::{Resource, Text};

/// The layout of what is stored under one prefix. Usually one resource's; core and `events.k8s.io` events share one.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The place below `/registry/`, without slashes at its ends.
    pub prefix: Text,
    /// Whether its keys are `<namespace>/<name>`.
    pub namespaced: bool,
    /// The resources that show it. The first is in the group that it is stored in.
    pub resources: Vec<Arc<Resource>>,
    /// The stored paths that its resources' selectable fields read and those that they note, each once.
    pub paths: Vec<Text>,
    /// The index in `paths` of the one by which events are dispatched.
    pub dispatch: Option<usize>,
}

impl Collection {
    /// The prefix of all its keys: `/registry/pods/`.
    pub fn key_prefix(&self) -> String {
        format!("/registry/{}/", self.prefix)
    }

    /// The collections of some resources, in the order of the first resource of each.
    pub fn all<'r>(resources: impl Iterator<Item = &'r Arc<Resource>>) -> Vec<Self> {
        let mut places: HashMap<&Text, usize> = HashMap::new();
        let mut stored: Vec<Vec<Arc<Resource>>> = Vec::new();
        for resource in resources {
            let Some(prefix) = resource.storage_prefix() else { continue };
            let place = *places.entry(prefix).or_insert(stored.len());
            if place == stored.len() {
                stored.push(Vec::new());
            }
            stored[place].push(resource.clone());
        }
        stored.into_iter().filter_map(Self::of).collect()
    }

    /// The collection of resources that are stored under one prefix, the first of them in the group that it is stored in.
    /// `None` when there are none, or the first is not stored.
    fn of(resources: Vec<Arc<Resource>>) -> Option<Self> {
        let first = resources.first()?;
        let (prefix, namespaced) = (first.storage_prefix()?.clone(), first.is_namespaced());
        let mut paths: Vec<Text> = Vec::new();
        let selectable =
            resources.iter().flat_map(|resource| resource.selectable_fields.iter().flat_map(|field| &field.paths));
        for path in selectable.chain(resources.iter().flat_map(|resource| &resource.noted)) {
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        let dispatch = resources.iter().rev().find_map(|resource| resource.dispatch.as_ref());
        let dispatch = dispatch.and_then(|wanted| paths.iter().position(|path| path == wanted));
        Some(Self { prefix, namespaced, resources, paths, dispatch })
    }
}
