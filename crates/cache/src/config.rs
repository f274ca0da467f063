//! Settings of a cache: how much of the past it keeps, and how often it is compared with its store.
//!
//! The defaults are those of API servers on etcd. What is served and from which store is not said here: see
//! [`CollectionSpec`](crate::CollectionSpec).

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Clock;
use keelson_supervision::Supervisor;

/// How long history is kept unless configured: what etcd-backed API servers compact after.
pub const DEFAULT_HISTORY: Duration = Duration::from_secs(5 * 60);
/// How often the cache is compared with the store, unless a server is told otherwise.
pub const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// How many bytes all histories may hold unless configured.
pub const DEFAULT_HISTORY_BYTES: u64 = 256 << 20;
/// How many bytes the views of queries that are kept may take, unless it is set otherwise.
pub const DEFAULT_VIEW_BYTES: u64 = 128 << 20;

/// How much of the past a cache keeps.
#[derive(Clone)]
pub struct CacheConfig {
    /// For how long an event stays in the history.
    pub history: Duration,
    /// How many bytes all histories together may hold beyond the newest state. What goes over it is dropped early.
    pub history_bytes: u64,
    /// How many bytes the views of queries that are kept may take together. While they are made they may take twice as much.
    pub view_bytes: u64,
    /// In what time every collection is compared with the store once; `None` is never.
    pub check_interval: Option<Duration>,
    /// Is told when a task of the cache dies.
    pub supervisor: Supervisor,
    /// Tells how old events are.
    pub clock: Arc<dyn Clock>,
}

impl CacheConfig {
    /// The default bounds, by this clock, and no comparisons with the store.
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
