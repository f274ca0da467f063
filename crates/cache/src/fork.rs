//! The state with which the cache of a fork begins: the collections of another cache at one revision.
//!
//! The fork shares trees, objects and interned values with its origin, so its start costs a few pointers for each
//! collection, whatever the number of objects. Both caches copy the nodes that they change. History, watches and views
//! are not shared.

use std::sync::Arc;

use keelson_meta::Revision;

use crate::collection::{Collection, Unreadable};
use crate::encodings::EncodingCounts;
use crate::entry::Decoder;
use crate::trees::Trees;

/// The collections of a cache at one revision.
pub struct CacheState {
    pub(crate) revision: Revision,
    pub(crate) collections: Vec<CollectionState>,
}

/// A collection at that revision.
pub(crate) struct CollectionState {
    pub(crate) prefix: Box<str>,
    pub(crate) decoder: Decoder,
    pub(crate) trees: Trees,
    pub(crate) encodings: EncodingCounts,
    pub(crate) unreadable: Unreadable,
}

impl CacheState {
    /// The state of these collections at a revision that the watermark has reached. Skips collections whose state is
    /// not known: removed ones, and those that have unreadable values and newer changes.
    pub(crate) fn of(collections: &[Arc<Collection>], revision: Revision) -> Self {
        let collections = collections.iter().filter_map(|collection| collection.state_at(revision)).collect();
        Self { revision, collections }
    }

    /// The revision of the state.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The prefixes of the collections.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.collections.iter().map(|collection| &*collection.prefix)
    }

    /// Keeps the collections for whose prefix `keeps` returns true.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.collections.retain(|collection| keeps(&collection.prefix));
    }
}
