//! The stored objects of a kind, as the plugins look at them: in the cache, which has what this server has been told of.
//!
//! Nothing is waited for here. A plugin that must not miss what was written a moment ago has to catch up first.

use std::sync::Arc;

use keelson_cache::{Collection, Entry};
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;

/// The most objects of a namespace that are read for a write, and the most bytes of them: a few milliseconds.
pub(crate) const MOST_READ: usize = 100;
pub(crate) const MOST_READ_BYTES: u64 = 256 * 1024;

/// The stored objects of a built-in kind.
pub(crate) struct Stored(Arc<Collection>);

impl Stored {
    /// Those of a resource that is always served.
    ///
    /// # Errors
    /// 500 when it is not.
    pub(crate) fn of(registry: &Registry, group: &str, plural: &str) -> Result<Self, ApiError> {
        Ok(Self(registry.target(group, plural)?.collection()?.clone()))
    }

    /// The collection of the cache.
    pub(crate) fn collection(&self) -> &Arc<Collection> {
        &self.0
    }

    /// The entry under a key: `<namespace>/<name>`, or `<name>`.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.0.get(key)
    }

    /// The object under a key.
    pub(crate) fn object(&self, key: &str) -> Option<Object> {
        self.get(key).map(|entry| decoded(&entry))
    }

    /// The number of objects of a namespace.
    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        let (from, to) = bounds(namespace);
        self.0.snapshot().count(&from, Some(&to))
    }

    /// All objects of a namespace.
    ///
    /// # Errors
    /// Their number and bytes, where there are more than may be read for a write.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Result<Vec<Object>, (usize, u64)> {
        let (from, to) = bounds(namespace);
        let snapshot = self.0.snapshot();
        let (count, bytes) = (snapshot.count(&from, Some(&to)), snapshot.bytes(&from, Some(&to)));
        if count > MOST_READ || bytes > MOST_READ_BYTES {
            return Err((count, bytes));
        }
        Ok(snapshot.range(&from, Some(&to)).map(|entry| decoded(entry)).collect())
    }
}

/// Between which keys the objects of a namespace are.
pub(crate) fn bounds(namespace: &str) -> (String, String) {
    (format!("{namespace}/"), format!("{namespace}0"))
}

fn decoded(entry: &Entry) -> Object {
    entry.object.decode(entry.revision)
}
