//! The environment of a cache's collections: what all of them have in common.
//!
//! One watermark, one bound for all histories, one set of counters: a collection has a pointer to them and nothing of its
//! own, so that an empty one is small.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keelson_meta::Revision;

use crate::history::Budget;
use crate::stats::Counters;
use crate::times::Times;
use crate::views::KeptViews;
use crate::watermark::Watermark;
use crate::written::Written;

/// What all collections of a cache have in common.
pub(crate) struct Environment {
    pub(crate) watermark: Watermark,
    pub(crate) budget: Arc<Budget>,
    pub(crate) written: Written,
    pub(crate) counters: Counters,
    pub(crate) views: KeptViews,
    pub(crate) times: Times,
    /// States below this revision are too old to be shown, whether or not they could be.
    expired: AtomicU64,
}

impl Environment {
    /// Nothing has been seen, and all histories together may hold so many bytes, and all views that are kept so many.
    pub(crate) fn new(history_bytes: u64, view_bytes: u64) -> Self {
        Self {
            watermark: Watermark::default(),
            budget: Arc::new(Budget::new(history_bytes)),
            written: Written::default(),
            counters: Counters::default(),
            views: KeptViews::new(view_bytes),
            times: Times::default(),
            expired: AtomicU64::new(0),
        }
    }

    /// States below a revision are not shown from now on.
    pub(crate) fn expire(&self, oldest: Revision) {
        self.expired.fetch_max(oldest.get(), Ordering::Relaxed);
    }

    /// The oldest revision of which a state may still be shown.
    pub(crate) fn unexpired(&self) -> Revision {
        Revision::new(self.expired.load(Ordering::Relaxed))
    }
}
