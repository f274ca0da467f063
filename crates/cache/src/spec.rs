//! The specification of a collection: the prefix of its objects in the store, and the fields to keep.
//!
//! This module does not read objects. The cache must not know the declarations of resources: its caller translates each
//! into a [`CollectionSpec`].

use std::fmt;
use std::sync::Arc;

use keelson_codec::{FieldPath, ParsedObject, StoredObject};

/// A prefix of the store, and the layout of its objects.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// The prefix of all keys of the collection in the store, ending in `/`: `/registry/pods/`. No prefix of a cache
    /// begins with another one.
    pub prefix: String,
    /// The fields by which objects are selected or found, in addition to name and namespace.
    pub fields: Vec<FieldPath>,
    /// The index in `fields` of the field for dispatching events and indexing objects, such as `spec.nodeName` of pods.
    pub dispatch: Option<usize>,
    /// Completes objects when they are read.
    pub complete: Option<Arc<dyn Complete>>,
    /// True if list items include kind and apiVersion, as for custom resources.
    pub typed_items: bool,
}

/// The fields that a collection keeps with its objects, and their indexes.
///
/// Every entry, tree and snapshot has its layout. So its fields are read correctly even after another collection with
/// another layout has replaced its collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub(crate) fields: Vec<FieldPath>,
    /// The paths of these fields as text: `spec.nodeName`.
    names: Vec<Box<str>>,
    pub(crate) dispatch: Option<usize>,
    /// True if list items include kind and apiVersion.
    pub(crate) typed_items: bool,
}

impl Layout {
    /// Creates a layout of these fields. `dispatch` is the index of the field for dispatching and indexing, if any.
    pub(crate) fn new(fields: Vec<FieldPath>, dispatch: Option<usize>) -> Self {
        let names = fields.iter().map(|path| path.steps().join(".").into()).collect();
        Self { fields, names, dispatch, typed_items: false }
    }

    /// Returns the layout with this setting for list items.
    pub(crate) fn with_typed_items(self, typed_items: bool) -> Self {
        Self { typed_items, ..self }
    }

    /// The paths of the fields, by index.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The index of a field, such as `spec.nodeName`. The cost is linear in the small number of fields.
    pub fn place(&self, path: &str) -> Option<usize> {
        self.names.iter().position(|kept| **kept == *path)
    }

    /// The index of a field, if it is the field for dispatching and indexing.
    pub(crate) fn dispatched(&self, path: &str) -> Option<usize> {
        self.dispatch.filter(|place| self.names.get(*place).is_some_and(|kept| **kept == *path))
    }
}

/// Completes objects stored before a field or default existed.
pub trait Complete: fmt::Debug + Send + Sync {
    /// The completed object. `None` if the object is complete. That case must be cheap, since this runs for every
    /// object that is read.
    fn complete(&self, stored: &ParsedObject) -> Option<StoredObject>;
}
