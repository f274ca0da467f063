//! Stored objects that differ from those of today, and what they become when they are read. They lack a field or a default that all
//! objects have now, are in a version that is no longer served, or have fields that their definition declares no more.
//!
//! The store keeps them as they are until somebody writes them. An object is completed in the version that it lies in the store
//! in, so that a [`Completion`] knows the defaults and the schema of each version of what is stored together. Knows nothing
//! of who reads.

use std::fmt;
use std::sync::Arc;

use keelson_cache::Complete;
use keelson_codec::{Checked, StoredObject};
use keelson_conversion::Retired;
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
    /// Objects may lie in the store in versions that are no longer served.
    has_retired: bool,
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
    Defaults(Option<Defaults>, Schema),
    /// Of a custom resource: its schema may have got defaults and lost fields since.
    Structural(Schema),
}

impl Completion {
    /// For objects that are stored as one of these kinds; `None` if none of them has defaults or versions that are no longer served.
    pub(crate) fn of(
        kinds: impl Iterator<Item = (GroupVersionKind, Option<Defaults>, Option<Schema>)>,
    ) -> Option<Arc<dyn Complete>> {
        let mut has_retired = false;
        let form = |(kind, defaults, schema): (GroupVersionKind, Option<Defaults>, Option<Schema>)| {
            let api_version = kind.group_version().to_string();
            let schema = schema?;
            let rules = if schema.get().is_structural() {
                FormRules::Structural(schema)
            } else {
                has_retired |= Retired::has_any(&kind.group, &kind.kind);
                FormRules::Defaults(defaults, schema)
            };
            Some(Form { api_version, kind: kind.kind, rules })
        };
        let forms: Vec<Form> = kinds.filter_map(form).collect();
        let has_work = |form: &Form| !matches!(form.rules, FormRules::Defaults(None, _));
        let is_needed = has_retired || forms.iter().any(has_work);
        is_needed.then(|| -> Arc<dyn Complete> { Arc::new(Self { forms, has_retired }) })
    }

    fn form(&self, api_version: &str, kind: &str) -> Option<&Form> {
        self.forms.iter().find(|form| form.api_version == api_version && form.kind == kind)
    }

    /// Leads an object of a version that is no longer served to one that is, with the defaults of that. An object of a shape that its
    /// version does not allow stays as it is.
    fn lead_from_retired(&self, stored: &StoredObject) -> Option<StoredObject> {
        let retired = Retired::of(stored.api_version(), stored.kind())?;
        let mut object = stored.decode(Revision::ZERO);
        retired.convert(&mut object).ok()?;
        let form = self.form(object.api_version()?, object.kind()?)?;
        let (FormRules::Defaults(_, schema) | FormRules::Structural(schema)) = &form.rules;
        if let FormRules::Defaults(Some(defaults), _) = &form.rules {
            defaults.fill(&mut object);
        }
        let mut report = WalkReport::default();
        schema.get().walk(&mut object, &mut report, WalkOptions::STORE);
        report.fault().is_none().then(|| StoredObject::encode(&object))
    }
}

impl Complete for Completion {
    /// Cost: less than checking its text took, unless it lacks something. An object that is not of its kind's types stays as it
    /// is: it can still be read, and its next writer is told.
    fn complete(&self, checked: &Checked) -> Option<StoredObject> {
        let stored = checked.object();
        let Some(form) = self.form(stored.api_version(), stored.kind()) else {
            return if self.has_retired { self.lead_from_retired(stored) } else { None };
        };
        let is_complete = match &form.rules {
            FormRules::Defaults(defaults, _) => defaults.is_none_or(|defaults| !defaults.lacks(checked)),
            FormRules::Structural(schema) => schema.get().is_shape_of(&stored.bytes()),
        };
        if is_complete {
            return None;
        }
        let mut object = stored.decode(Revision::ZERO);
        let mut report = WalkReport::default();
        match &form.rules {
            FormRules::Defaults(defaults, schema) => {
                defaults.iter().for_each(|defaults| defaults.fill(&mut object));
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
