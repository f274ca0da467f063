//! Settings of a cache: the amount of history, and the interval of comparisons with its store.
//!
//! Defaults are those of API servers on etcd. [`CollectionSpec`](crate::CollectionSpec) defines collections.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Clock;
use keelson_supervision::Supervisor;

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
    /// The retention of events in the history.
    pub history: Duration,
    /// The limit of all histories in bytes, beyond the newest state. Excess events are dropped early.
    pub history_bytes: u64,
    /// The limit of kept query views in bytes. Views being built may take twice as much.
    pub view_bytes: u64,
    /// The interval of one comparison of every collection with the store. `None` disables it.
    pub check_interval: Option<Duration>,
    /// Supervises the tasks of the cache.
    pub supervisor: Supervisor,
    /// Measures the age of events.
    pub clock: Arc<dyn Clock>,
}

impl CacheConfig {
    /// The default limits with this clock, without comparisons with the store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            history: DEFAULT_HISTORY,
            history_bytes: DEFAULT_HISTORY_BYTES,
            view_bytes: DEFAULT_VIEW_BYTES,
            check_interval: None,
            supervisor: Supervisor::default(),
            clock,
        }
    }
}
