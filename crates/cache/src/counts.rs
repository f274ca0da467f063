//! Counts of one collection, for metrics by resource.
//!
//! The counts of a collection start at zero again after it was replaced, which Prometheus allows for counters.

use std::fmt;
use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets, Count};

/// The upper ends of the buckets of wait times, in microseconds.
static WAIT_BUCKETS: Buckets = Buckets::of_durations(&[
    5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000,
    3_000_000,
]);

/// The kind of index that a list used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListIndex {
    /// No index: a range of keys.
    None,
    /// The index of a field.
    Field,
    /// The index of a label.
    Label,
}

impl ListIndex {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::None, Self::Field, Self::Label];

    /// The value of the label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Field => "field",
            Self::Label => "label",
        }
    }
}

/// The lists with one index.
#[derive(Debug, Default)]
pub struct ListCounts {
    /// The number of lists.
    pub lists: Count,
    /// The number of objects that they examined.
    pub fetched: Count,
}

/// The counts of a collection.
pub struct CollectionCounts {
    /// Events from the store, each of which is dispatched to its watches.
    pub events: Count,
    /// Loads of all objects.
    pub loads: Count,
    /// Objects of these loads.
    pub loaded: Count,
    /// Stored values that are not objects.
    pub undecodable: Count,
    /// Comparisons with the store that found no difference.
    pub checks: Count,
    /// Comparisons that found a difference.
    pub differences: Count,
    /// Lists from the cache, by [`ListIndex`].
    pub lists: [ListCounts; ListIndex::ALL.len()],
    /// Objects that lists from the cache tested by their selectors.
    pub evaluated: Count,
    /// Objects that lists from the cache returned.
    pub returned: Count,
    /// Lists from the history of the store.
    pub lists_from_store: Count,
    /// Consistent lists that were answered.
    pub consistent_reads: Count,
    /// Consistent lists that failed, since the cache did not reach the newest state in time.
    pub inconsistent_reads: Count,
    /// The time that lists waited until the cache was fresh enough.
    pub waits: AtomicHistogram,
}

impl Default for CollectionCounts {
    fn default() -> Self {
        Self {
            events: Count::new(),
            loads: Count::new(),
            loaded: Count::new(),
            undecodable: Count::new(),
            checks: Count::new(),
            differences: Count::new(),
            lists: Default::default(),
            evaluated: Count::new(),
            returned: Count::new(),
            lists_from_store: Count::new(),
            consistent_reads: Count::new(),
            inconsistent_reads: Count::new(),
            waits: AtomicHistogram::new(&WAIT_BUCKETS),
        }
    }
}

impl CollectionCounts {
    /// Counts a list from the cache with `fetched` examined, `evaluated` tested and `returned` objects.
    pub fn listed(&self, index: ListIndex, fetched: usize, evaluated: usize, returned: usize) {
        let of_index = &self.lists[index as usize];
        of_index.lists.increment();
        of_index.fetched.add(fetched as u64);
        self.evaluated.add(evaluated as u64);
        self.returned.add(returned as u64);
    }

    /// Counts a consistent list. `time` is its wait for the cache.
    pub fn waited(&self, time: Duration, was_reached: bool) {
        self.waits.observe_duration(time);
        if was_reached { self.consistent_reads.increment() } else { self.inconsistent_reads.increment() }
    }

    pub(crate) fn loaded(&self, objects: usize) {
        self.loads.increment();
        self.loaded.add(objects as u64);
    }
}

impl fmt::Debug for CollectionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectionCounts").field("events", &self.events).finish_non_exhaustive()
    }
}
