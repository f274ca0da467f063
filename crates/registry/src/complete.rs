//! Objects that were stored before there was a default that all objects have today, and what they become when they are read.
//!
//! The store keeps them as they are until somebody writes them. An object is completed in the version that it lies in the store
//! in, so that a [`Completion`] knows the defaults and the schema of each version of what is stored together. Knows nothing
//! of who reads.

use std::fmt;
use std::sync::Arc;

use keelson_cache::Complete;
use keelson_codec::{Checked, StoredObject};
use keelson_defaults::Defaults;
use keelson_meta::{GroupVersionKind, Revision};
use keelson_schema::{Schema, WalkOptions, WalkReport};

/// What is done to an object that lacks a default. Fields of a newer server stay.
const COMPLETE: WalkOptions = WalkOptions { prune: false, ..WalkOptions::STORE };

/// Completes the objects of one collection.
#[derive(Debug)]
pub(crate) struct Completion {
    forms: Vec<Form>,
}

/// A kind in a version in which its objects may be stored.
struct Form {
    api_version: String,
    kind: String,
    defaults: Defaults,
    schema: Schema,
}

impl Completion {
    /// For objects that are stored as one of these kinds; `None` if none of them has defaults.
    pub(crate) fn of(
        kinds: impl Iterator<Item = (GroupVersionKind, Option<Defaults>, Option<Schema>)>,
    ) -> Option<Arc<dyn Complete>> {
        let form = |(kind, defaults, schema): (GroupVersionKind, Option<Defaults>, Option<Schema>)| {
            let api_version = kind.group_version().to_string();
            Some(Form { api_version, kind: kind.kind, defaults: defaults?, schema: schema? })
        };
        let forms: Vec<Form> = kinds.filter_map(form).collect();
        if forms.is_empty() { None } else { Some(Arc::new(Self { forms })) }
    }
}

impl Complete for Completion {
    /// Cost: less than checking its text took, unless it lacks something. An object that is not of its kind's types stays as it
    /// is: it can still be read, and its next writer is told.
    fn complete(&self, checked: &Checked) -> Option<StoredObject> {
        let stored = checked.object();
        let is_in = |form: &&Form| form.api_version == stored.api_version() && form.kind == stored.kind();
        let form = self.forms.iter().find(is_in)?;
        if !form.defaults.lacks(checked) {
            return None;
        }
        let mut object = stored.decode(Revision::ZERO);
        let mut report = WalkReport::default();
        form.defaults.fill(&mut object);
        form.schema.get().walk(&mut object, &mut report, COMPLETE);
        let complete = StoredObject::encode(&object);
        (report.faults().is_empty() && complete.bytes() != stored.bytes()).then_some(complete)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.api_version)
    }
}
