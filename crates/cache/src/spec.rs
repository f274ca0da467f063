//! The description of a collection that is to be made: where its objects are stored, and what of them is looked at.
//!
//! Nothing here reads an object. The cache does not know how a resource is declared; whoever does says it with a
//! [`CollectionSpec`].

use std::fmt;
use std::sync::Arc;

use keelson_codec::{Checked, FieldPath, StoredObject};

/// What is stored together under one prefix, and what of it is looked at.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// The prefix of all its keys in the store, ending in `/`: `/registry/pods/`. No prefix of a cache starts another.
    pub prefix: String,
    /// The fields by which objects are selected or found, beyond name and namespace.
    pub fields: Vec<FieldPath>,
    /// The place in `fields` of the field by which events are dispatched and objects are indexed, such as
    /// `spec.nodeName` of pods.
    pub dispatch: Option<usize>,
    /// What an object is completed by when it is read.
    pub complete: Option<Arc<dyn Complete>>,
    /// Whether its objects name their kind and version in lists too, as custom resources do.
    pub typed_items: bool,
}

/// Which fields are kept beside the objects of a collection, and where.
///
/// It travels with every entry, tree and snapshot: whoever holds one reads its fields as they were laid out then, also
/// when the collection has been replaced by one with others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub(crate) fields: Vec<FieldPath>,
    /// The paths of these fields as they are written: `spec.nodeName`.
    names: Vec<Box<str>>,
    pub(crate) dispatch: Option<usize>,
    /// Whether objects name their kind and version in lists.
    pub(crate) typed_items: bool,
}

impl Layout {
    /// These fields, one of which may be the one by which events are dispatched and objects are indexed.
    pub(crate) fn new(fields: Vec<FieldPath>, dispatch: Option<usize>) -> Self {
        let names = fields.iter().map(|path| path.steps().join(".").into()).collect();
        Self { fields, names, dispatch, typed_items: false }
    }

    /// The same of objects that name their kind and version in lists, or that do not.
    pub(crate) fn with_typed_items(self, typed_items: bool) -> Self {
        Self { typed_items, ..self }
    }

    /// The paths of the fields that are kept, by their places.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The place of a field, such as `spec.nodeName`, among those that are kept. Linear in their number, of which there are
    /// a few.
    pub fn place(&self, path: &str) -> Option<usize> {
        self.names.iter().position(|kept| **kept == *path)
    }

    /// The place of a field, if it is the one by which events are dispatched and objects are indexed.
    pub(crate) fn dispatched(&self, path: &str) -> Option<usize> {
        self.dispatch.filter(|place| self.names.get(*place).is_some_and(|kept| **kept == *path))
    }
}

/// Completes what was stored before there was something that all objects have today.
pub trait Complete: fmt::Debug + Send + Sync {
    /// The object with what it lacks; `None` where it lacks nothing. Runs for every object that is read, so the latter must be
    /// cheap.
    fn complete(&self, stored: &Checked) -> Option<StoredObject>;
}
