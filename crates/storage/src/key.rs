//! Keys of the store: slash-separated paths, ordered bytewise.
//!
//! A type of its own, so that the key of the store is not taken for one relative to a collection. What a path means is
//! decided above.

use std::fmt;
use std::sync::Arc;

/// A path such as `/registry/pods/default/web-0`. Keys order by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(Arc<str>);

impl StoreKey {
    /// The key with this path.
    pub fn new(path: impl Into<Arc<str>>) -> Self {
        Self(path.into())
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first key behind this one.
    #[must_use]
    pub fn behind(&self) -> Self {
        Self::new(behind(&self.0))
    }

    /// The first key behind all keys that start with `prefix`: the end of a range over the prefix.
    ///
    /// `prefix` ends in an ASCII character (prefixes end in `/`), so adding one to its last byte keeps it valid.
    pub fn prefix_end(prefix: &str) -> Self {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self::new(String::from_utf8_lossy(&end).into_owned())
    }
}

/// The first text behind this one, in the order of keys: also of keys that are relative to a collection.
pub fn behind(key: &str) -> String {
    format!("{key}\0")
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
