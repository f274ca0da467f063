//! Collections: the objects stored under one prefix.
//!
//! The resources of a collection determine its layout: the indexed fields, and the field by which events are
//! dispatched. The cache has the objects.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::resource::{Resource, Text};

/// The layout of the objects under one prefix. It usually has one resource. Core and `events.k8s.io` events share one.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The path below `/registry/`, without slashes at its ends.
    pub prefix: Text,
    /// True if its keys are `<namespace>/<name>`.
    pub namespaced: bool,
    /// The resources of these objects. The first is in the storage group.
    pub resources: Vec<Arc<Resource>>,
    /// The distinct stored paths of its resources' selectable and noted fields.
    pub paths: Vec<Text>,
    /// The index in `paths` of the dispatch field.
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
        stored.into_iter().filter_map(Self::new).collect()
    }

    /// The collection of resources with one prefix, the first of them in the storage group. `None` without resources,
    /// or if the first is not stored.
    fn new(resources: Vec<Arc<Resource>>) -> Option<Self> {
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
