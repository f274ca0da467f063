//! Keys of the store: slash-separated paths in byte order.
//!
//! Store keys have their own type, so that code does not confuse them with keys relative to a collection. Other modules
//! define the meaning of a path.

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

    /// The first key after this one.
    #[must_use]
    pub fn behind(&self) -> Self {
        Self::new(behind(&self.0))
    }

    /// The first key after all keys that start with `prefix`: the end of a range over the prefix.
    ///
    /// `prefix` ends in an ASCII character (usually `/`), so incrementing its last byte keeps it valid.
    pub fn prefix_end(prefix: &str) -> Self {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self::new(String::from_utf8_lossy(&end).into_owned())
    }
}

/// The first text after this one in key order. Also for keys relative to a collection.
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
