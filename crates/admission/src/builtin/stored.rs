//! The stored objects of a kind, as plugins read them from the watch cache of this server.
//!
//! Reads do not wait for the newest revision. A plugin that must see the latest writes calls `catch_up` first.

use std::sync::Arc;

use keelson_cache::{Collection, Entry};
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;

/// The largest number of objects of a namespace that are read for one write, and their largest size in bytes. Reading
/// them takes a few milliseconds.
pub(crate) const MOST_READ: usize = 100;
pub(crate) const MOST_READ_BYTES: u64 = 256 * 1024;

/// The stored objects of a built-in kind.
pub(crate) struct StoredObjects(Arc<Collection>);

impl StoredObjects {
    /// The stored objects of a resource that is always served.
    ///
    /// # Errors
    /// 500 if the resource is not served.
    pub(crate) fn new(registry: &Registry, group: &str, plural: &str) -> Result<Self, ApiError> {
        Ok(Self(registry.target(group, plural)?.collection()?.clone()))
    }

    /// The collection in the cache.
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
    /// The number and bytes of the objects, if they exceed the limits for one write.
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

/// The first key of the objects of a namespace, and the key after the last one.
pub(crate) fn bounds(namespace: &str) -> (String, String) {
    (format!("{namespace}/"), format!("{namespace}0"))
}

fn decoded(entry: &Entry) -> Object {
    entry.object().decode(entry.revision)
}
