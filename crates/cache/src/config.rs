//! Settings of a cache: the amount of history, and the interval of comparisons with its store.
//!
//! Defaults are those of API servers on etcd. [`CollectionSpec`](crate::CollectionSpec) defines collections.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Clock;
use keelson_supervision::Supervisor;

use crate::packing::Packing;

/// The default duration of history: the compaction interval of API servers on etcd.
pub const DEFAULT_HISTORY: Duration = Duration::from_secs(5 * 60);
/// The default interval of comparisons with the store.
pub const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// The default limit of all histories in bytes.
pub const DEFAULT_HISTORY_BYTES: u64 = 256 << 20;
/// The default limit of kept query views in bytes.
pub const DEFAULT_VIEW_BYTES: u64 = 128 << 20;

/// The settings of a cache.
#[derive(Clone)]
pub struct CacheConfig {
    /// The time for which the history keeps events.
    pub history: Duration,
    /// The limit of the bytes that all histories hold in addition to the newest state. Beyond it, the oldest events are
    /// dropped early.
    pub history_bytes: u64,
    /// The limit of kept query views in bytes. Views that are being built may use twice as much.
    pub view_bytes: u64,
    /// The interval in which each collection is compared once with the store. `None` disables the comparison.
    pub check_interval: Option<Duration>,
    /// The limits of plain and packed objects.
    pub packing: Packing,
    /// Supervises the tasks of the cache.
    pub supervisor: Supervisor,
    /// Measures the age of events.
    pub clock: Arc<dyn Clock>,
}

impl CacheConfig {
    /// Creates a configuration with the default limits and this clock, without comparisons with the store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            history: DEFAULT_HISTORY,
            history_bytes: DEFAULT_HISTORY_BYTES,
            view_bytes: DEFAULT_VIEW_BYTES,
            packing: Packing::default(),
            check_interval: None,
            supervisor: Supervisor::default(),
            clock,
        }
    }
}
