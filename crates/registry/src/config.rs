//! What an operator can set about the generic verbs.

use std::collections::HashSet;
use std::time::Duration;

/// Settings of a [`crate::Registry`].
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Whether lists are cut into chunks at all: the feature gate `APIListChunking` of KEP-365. Off, `limit` and
    /// `continue` are ignored and no token is ever given out.
    pub chunking: bool,
    /// Resources (`secrets`, `roles.rbac.authorization.k8s.io`) that are never chunked, because a token shows the name
    /// of an object.
    pub unchunked: HashSet<String>,
    /// Whether `limit` is honoured at `resourceVersion=0` also when no `resourceVersionMatch` is stated.
    pub limit_at_any_version: bool,
    /// How much work one chunk may be.
    pub bounds: ListBounds,
    /// How long a read waits for a revision that has not been seen yet before it answers 504.
    pub revision_wait: Duration,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_interval: Duration,
    /// The shortest time a watch lasts when the client states none; the longest is twice that.
    pub min_watch_timeout: Duration,
}

/// Bounds of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// How many entries a limited, selected list looks at before it returns what it has found, with a token.
    pub scan: usize,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            chunking: true,
            unchunked: HashSet::new(),
            limit_at_any_version: false,
            bounds: ListBounds::default(),
            revision_wait: Duration::from_secs(3),
            bookmark_interval: Duration::from_mins(1),
            min_watch_timeout: Duration::from_mins(30),
        }
    }
}

impl Default for ListBounds {
    /// 100,000 entries: about 10 ms of one core.
    fn default() -> Self {
        Self { scan: 100_000 }
    }
}
