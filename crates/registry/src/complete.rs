//! Completes stored objects of custom resources when they are read.
//!
//! Some objects lack a default that their schema has today, and some have fields that it no longer declares. The store
//! keeps them unchanged until the next write. An object is completed in its stored version, so a [`Completion`] has the
//! schema of each version.

use std::fmt;
use std::sync::Arc;

use keelson_cache::Complete;
use keelson_codec::{ParsedObject, StoredObject};
use keelson_meta::{GroupVersionKind, Revision};
use keelson_schema::{Schema, WalkOptions, WalkReport};

/// The generation of a custom resource that was stored without one.
const FIRST_GENERATION: i64 = 1;

/// Completes the objects of one collection.
#[derive(Debug)]
pub(crate) struct Completion {
    forms: Vec<Form>,
}

/// A kind in a version in which its objects may be stored.
struct Form {
    api_version: String,
    kind: String,
    schema: Schema,
}

impl Completion {
    /// A completion for objects stored as one of these kinds. `None` if no kind has a structural schema.
    pub(crate) fn for_kinds<'k>(
        kinds: impl Iterator<Item = (&'k GroupVersionKind, Option<&'k Schema>)>,
    ) -> Option<Arc<dyn Complete>> {
        let form = |(kind, schema): (&GroupVersionKind, Option<&Schema>)| {
            let schema = schema.filter(|schema| schema.get().is_structural())?.clone();
            Some(Form { api_version: kind.group_version().to_string(), kind: kind.kind.clone(), schema })
        };
        let forms: Vec<Form> = kinds.filter_map(form).collect();
        (!forms.is_empty()).then(|| -> Arc<dyn Complete> { Arc::new(Self { forms }) })
    }
}

impl Complete for Completion {
    /// Cost: less than the check of the text, unless the object lacks something. An object that does not fit its schema
    /// stays as it is: it remains readable, and the next write to it gets the errors.
    fn complete(&self, checked: &ParsedObject) -> Option<StoredObject> {
        let stored = checked.object();
        let is_of = |form: &&Form| form.api_version == stored.api_version() && form.kind == stored.kind();
        let schema = self.forms.iter().find(is_of)?.schema.get();
        if schema.is_shape_of(&stored.bytes()) {
            return None;
        }
        let mut object = stored.decode(Revision::ZERO);
        let mut report = WalkReport::default();
        // Fields that the schema no longer declares are hidden. The store has them until the object's next write.
        schema.drop_malformed_metadata(&mut object);
        if object.generation().unwrap_or_default() == 0 {
            object.set_meta("generation", FIRST_GENERATION);
        }
        schema.walk(&mut object, &mut report, WalkOptions::STORE);
        let complete = StoredObject::encode(&object);
        (report.fault().is_none() && complete != *stored).then_some(complete)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.api_version)
    }
}
