//! Completes stored objects of older servers when they are read.
//!
//! Some objects lack a field or a default that all objects have today, and some are in a version that is no longer
//! served. The store keeps them unchanged until the next write. An object is completed in its stored version. So a
//! [`Completion`] has the defaults and the schema of each version.

use std::fmt;
use std::sync::Arc;

use keelson_cache::Complete;
use keelson_codec::{ParsedObject, StoredObject};
use keelson_meta::{GroupVersionKind, Release, Revision};
use keelson_schema::{Schema, WalkOptions, WalkReport};

use crate::converting::RetiredVersions;
use crate::core::older::StoredFields;
use crate::defaulting::Defaults;

/// The options for the schema walk. Fields of newer servers are kept.
const COMPLETE: WalkOptions = WalkOptions { prune: false, ..WalkOptions::STORE };

/// Completes the objects of one collection.
#[derive(Debug)]
pub(crate) struct Completion {
    forms: Vec<Form>,
    /// True if objects may be stored in versions that are no longer served.
    has_retired: bool,
    /// Fields that older servers did not store.
    fields: Option<StoredFields>,
}

/// A kind in a version in which objects may be stored.
struct Form {
    api_version: String,
    kind: String,
    defaults: Option<Defaults>,
    schema: Schema,
}

impl Completion {
    /// Creates the completion for objects stored as one of these kinds of a release. Returns `None` if no kind has defaults,
    /// versions that are no longer served, or fields that older servers did not store.
    pub(crate) fn for_kinds(
        release: Release,
        kinds: impl Iterator<Item = GroupVersionKind>,
        fields: Option<StoredFields>,
    ) -> Option<Arc<dyn Complete>> {
        let mut has_retired = false;
        let form = |kind: GroupVersionKind| {
            let schema = Schema::of_release(release, &kind.group, &kind.version, &kind.kind)?;
            has_retired |= RetiredVersions::has_any(&kind.group, &kind.kind);
            let (api_version, defaults) = (kind.group_version().to_string(), Defaults::for_kind(&kind));
            Some(Form { api_version, kind: kind.kind, defaults, schema })
        };
        let forms: Vec<Form> = kinds.filter_map(form).collect();
        let is_needed = has_retired || fields.is_some() || forms.iter().any(|form| form.defaults.is_some());
        is_needed.then(|| -> Arc<dyn Complete> { Arc::new(Self { forms, has_retired, fields }) })
    }

    fn form(&self, api_version: &str, kind: &str) -> Option<&Form> {
        self.forms.iter().find(|form| form.api_version == api_version && form.kind == kind)
    }

    /// Converts an object from a version that is no longer served, and fills in defaults. Returns `None` for an object
    /// that does not fit its schema; it stays unchanged.
    fn convert_retired(&self, stored: &StoredObject) -> Option<StoredObject> {
        let retired = RetiredVersions::find(stored.api_version(), stored.kind())?;
        let mut object = stored.decode(Revision::ZERO);
        retired.convert(&mut object).ok()?;
        let form = self.form(object.api_version()?, object.kind()?)?;
        if let Some(defaults) = form.defaults {
            defaults.fill(&mut object);
        }
        let mut report = WalkReport::default();
        form.schema.get().walk(&mut object, &mut report, WalkOptions::STORE);
        report.fault().is_none().then(|| StoredObject::encode(&object))
    }
}

impl Complete for Completion {
    /// Cost: less than checking its bytes, unless a field is missing. An object that does not fit its schema stays
    /// unchanged. It can still be read, and its next write reports the faults.
    fn complete(&self, checked: &ParsedObject) -> Option<StoredObject> {
        let stored = checked.object();
        let Some(form) = self.form(stored.api_version(), stored.kind()) else {
            return if self.has_retired { self.convert_retired(stored) } else { None };
        };
        let is_complete = form.defaults.is_none_or(|defaults| !defaults.lacks(checked));
        let lacking = self.fields.filter(|fields| fields.lacks(checked));
        if is_complete && lacking.is_none() {
            return None;
        }
        let mut object = stored.decode(Revision::ZERO);
        let mut report = WalkReport::default();
        form.defaults.iter().for_each(|defaults| defaults.fill(&mut object));
        lacking.into_iter().for_each(|fields| fields.fill(&mut object));
        form.schema.get().walk(&mut object, &mut report, COMPLETE);
        let complete = StoredObject::encode(&object);
        (report.fault().is_none() && complete != *stored).then_some(complete)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.api_version)
    }
}
