//! Objects that were stored before there was a default that all objects have today, or that have fields of custom resources that
//! are declared no more, and what they become when they are read.
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
    rules: FormRules,
}

/// What is known of objects in a version.
enum FormRules {
    /// Of a built-in kind.
    Defaults(Defaults, Schema),
    /// Of a custom resource: its schema may have got defaults and lost fields since.
    Structural(Schema),
}

impl Completion {
    /// For objects that are stored as one of these kinds; `None` if none of them has defaults.
    pub(crate) fn of(
        kinds: impl Iterator<Item = (GroupVersionKind, Option<Defaults>, Option<Schema>)>,
    ) -> Option<Arc<dyn Complete>> {
        let form = |(kind, defaults, schema): (GroupVersionKind, Option<Defaults>, Option<Schema>)| {
            let api_version = kind.group_version().to_string();
            let rules = match (defaults, schema?) {
                (_, schema) if schema.get().is_structural() => FormRules::Structural(schema),
                (defaults, schema) => FormRules::Defaults(defaults?, schema),
            };
            Some(Form { api_version, kind: kind.kind, rules })
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
        let is_complete = match &form.rules {
            FormRules::Defaults(defaults, _) => !defaults.lacks(checked),
            FormRules::Structural(schema) => schema.get().is_shape_of(&stored.bytes()),
        };
        if is_complete {
            return None;
        }
        let mut object = stored.decode(Revision::ZERO);
        let mut report = WalkReport::default();
        match &form.rules {
            FormRules::Defaults(defaults, schema) => {
                defaults.fill(&mut object);
                schema.get().walk(&mut object, &mut report, COMPLETE);
            }
            // Fields that are declared no more are not shown. The store has them until the object's next write.
            FormRules::Structural(schema) => {
                schema.get().drop_malformed_metadata(&mut object);
                if object.generation().unwrap_or_default() == 0 {
                    object.set_meta("generation", FIRST_GENERATION);
                }
                schema.get().walk(&mut object, &mut report, WalkOptions::STORE);
            }
        }
        let complete = StoredObject::encode(&object);
        (report.fault().is_none() && complete != *stored).then_some(complete)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.api_version)
    }
}
