//! The state of a collection at a revision, and collections that begin with such a state.
//!
//! Both share trees and interned values. `fork.rs` has the state of a whole cache.

use std::sync::Arc;

use keelson_meta::Revision;

use super::{Collection, Live, Unreadable};
use crate::encodings::EncodingCounts;
use crate::environment::Environment;
use crate::fork::CollectionState;
use crate::packing::Pool;

impl Collection {
    /// A collection that begins with the state of another one at a revision.
    pub(crate) fn from_state(state: &CollectionState, revision: Revision, environment: Arc<Environment>) -> Self {
        let CollectionState { prefix, decoder, trees, encodings, unreadable } = state;
        let (encodings, unreadable) = (encodings.clone(), unreadable.clone());
        let live = Live { trees: trees.clone(), encodings, revision, unreadable, removed: None };
        let decoder = decoder.forked(Arc::new(Pool::new(environment.packer.clone())));
        let collection = Self::begin(prefix.clone(), decoder, live, environment);
        collection.counts.loaded(trees.entries.len());
        collection
    }

    /// The state at a revision that the watermark has reached, for a fork. `None` if it is not known.
    ///
    /// Cost: a few pointers, unless there are newer changes.
    pub(crate) fn state_at(&self, revision: Revision) -> Option<CollectionState> {
        let state = |trees, encodings, unreadable| CollectionState {
            prefix: self.prefix.clone(),
            decoder: self.decoder.forked(self.decoder.pool.clone()),
            trees,
            encodings,
            unreadable,
        };
        {
            let live = self.live.read();
            if live.removed.is_some() {
                return None;
            }
            if live.revision <= revision {
                return Some(state(live.trees.clone(), live.encodings.clone(), live.unreadable.clone()));
            }
            if !live.unreadable.is_empty() {
                return None;
            }
        }
        let trees = self.snapshot_at(revision).ok()?.trees;
        let encodings = EncodingCounts::new(trees.entries.iter().map(|entry| entry.encoding));
        Some(state(trees, encodings, Unreadable::new()))
    }
}
