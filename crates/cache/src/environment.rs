//! The state shared by all collections of a cache.
//!
//! There is one watermark, one limit of all histories, and one set of counters. A collection has only a pointer to this
//! state, so that an empty collection is small.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keelson_meta::Revision;

use crate::history::Budget;
use crate::packing::Packer;
use crate::stats::Counters;
use crate::times::Times;
use crate::views::ViewCache;
use crate::watermark::Watermark;
use crate::written::WrittenObjects;

/// The state shared by all collections of a cache.
pub(crate) struct Environment {
    pub(crate) watermark: Watermark,
    pub(crate) budget: Arc<Budget>,
    pub(crate) written: WrittenObjects,
    pub(crate) counters: Counters,
    pub(crate) views: ViewCache,
    pub(crate) times: Times,
    pub(crate) packer: Arc<Packer>,
    /// States below this revision are expired, even if the history still has them.
    expired: AtomicU64,
}

impl Environment {
    /// Creates the state. The limits, in bytes, apply to all histories together, and to all sorted indexes together.
    pub(crate) fn new(history_bytes: u64, view_bytes: u64, packer: Arc<Packer>) -> Self {
        Self {
            watermark: Watermark::default(),
            budget: Arc::new(Budget::new(history_bytes)),
            written: WrittenObjects::default(),
            counters: Counters::default(),
            views: ViewCache::new(view_bytes),
            times: Times::default(),
            packer,
            expired: AtomicU64::new(0),
        }
    }

    /// Expires the states below a revision.
    pub(crate) fn expire(&self, oldest: Revision) {
        self.expired.fetch_max(oldest.get(), Ordering::Relaxed);
    }

    /// The oldest revision whose state may be returned.
    pub(crate) fn unexpired(&self) -> Revision {
        Revision::new(self.expired.load(Ordering::Relaxed))
    }
}
