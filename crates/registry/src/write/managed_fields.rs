//! An object whose `metadata.managedFields` is kept as text beside it, and is parsed only when it is needed.
//!
//! Managed fields are a large part of an object, and most writes copy them unchanged. `crate::managed` interprets them.

use std::borrow::Cow;

use keelson_cache::Entry;
use keelson_codec::stored::ParsedObject;
use keelson_meta::json::Value;
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};
use keelson_patch::fields::Owners;
use keelson_supervision::error_repeated;

use crate::intake::conform;
use crate::managed::{set_managed, take_managed};
use crate::target::Target;
use crate::versions::convert;
use crate::warnings::Warnings;

/// An object to be stored.
pub struct ManagedObject {
    /// The object.
    pub object: Object,
    /// The managed fields as text, unless the object itself has them.
    pub managed_fields: Option<String>,
    /// True if its fields are in canonical order, since no field was added after the walk over the schema.
    pub is_canonical: bool,
}

impl ManagedObject {
    /// An object with fields that may have been added in any order.
    pub fn new(object: Object, managed_fields: Option<String>) -> Self {
        Self { object, managed_fields, is_canonical: false }
    }

    /// A stored object, decoded whole. Changes of it keep the order of its fields.
    pub fn stored(object: Object) -> Self {
        Self { object, managed_fields: None, is_canonical: true }
    }

    /// The canonical bytes: equal objects have equal bytes. No other place brings fields into order after a write has
    /// changed them.
    pub(crate) fn encode(self, target: &Target) -> ParsedObject {
        let Self { mut object, managed_fields, is_canonical } = self;
        if !is_canonical {
            put_in_canonical_order(target, &mut object);
        }
        ParsedObject::encode_with(&object, managed_fields.as_deref())
    }

    /// The object with its managed fields.
    pub(crate) fn with_managed_fields(&self) -> Object {
        let mut object = self.object.clone();
        if let Some(text) = &self.managed_fields {
            set_managed(&mut object, read(text));
        }
        object
    }
}

impl From<Object> for ManagedObject {
    fn from(object: Object) -> Self {
        Self::new(object, None)
    }
}

/// The live object of a write.
pub(crate) struct Live {
    /// The object, without `metadata.managedFields`.
    pub(crate) object: Object,
    /// The managed fields as text.
    pub(crate) managed_fields: Option<String>,
}

impl Live {
    /// The object in its stored version.
    pub(crate) fn stored(entry: &Entry) -> Self {
        let stored = entry.object();
        let (object, managed_fields) = stored.decode_apart(entry.revision);
        Self { object, managed_fields: managed_fields.map(Cow::into_owned) }
    }

    /// The object in the version of the request.
    ///
    /// # Errors
    /// 500 if it is in no version of its kind, or cannot be converted.
    pub(crate) async fn in_version_of(target: &Target, entry: &Entry) -> Result<Self, ApiError> {
        if target.resource.converter().is_some() {
            // An object that was converted before is not converted again.
            let shown = target.view().show_entry(entry).await?;
            let (mut object, _) = shown.decode_apart(entry.revision);
            object.set_type(target.kind());
            return Ok(Self { object, managed_fields: entry.object().managed_fields_text().map(Cow::into_owned) });
        }
        let mut live = Self::stored(entry);
        convert(target, &mut live.object, target.kind()).await?;
        Ok(live)
    }

    /// The object with its managed fields.
    pub(crate) fn with_managed_fields(&self) -> Object {
        let mut object = self.object.clone();
        set_managed(&mut object, self.managed_fields.as_deref().and_then(read));
        object
    }
}

/// Managed fields that are in an object during admission.
pub(super) struct DetachedManagedFields {
    text: Option<String>,
    value: Option<Value>,
}

impl DetachedManagedFields {
    /// Puts managed fields into an object that does not have them.
    pub(super) fn to(object: &mut Object, text: Option<String>) -> Self {
        let value = text.as_deref().and_then(read);
        if value.is_some() {
            set_managed(object, value.clone());
        }
        Self { text, value }
    }

    /// Removes the managed fields from the object again, unchanged or changed by admission. As upstream, invalid
    /// changes are ignored with a warning. Valid changes stay in the object, to be validated.
    pub(super) fn take_back(self, object: &mut Object, warnings: &Warnings) -> Option<String> {
        let Self { text, value } = self;
        let left = take_managed(object);
        if left == value {
            return text;
        }
        let changed = left?;
        match Owners::read(&changed) {
            Ok(_) => {
                set_managed(object, Some(changed));
                None
            }
            Err(error) => {
                warnings.add(format!(
                    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                     mutating admission controller; please fix your requests: {error}"
                ));
                text
            }
        }
    }
}

/// Moves added fields to their place in the schema of the object's version.
fn put_in_canonical_order(target: &Target, object: &mut Object) {
    let Some(GroupVersion { group, version }) = object.api_version().and_then(GroupVersion::parse) else { return };
    let kind = GroupVersionKind { group, version, kind: target.resource.kind.to_string() };
    if let Err(fault) = conform(target, &kind, object, &[], FieldValidation::Ignore) {
        error_repeated!(format_args!("{kind:?}"); ?kind, %fault, "fields that the server added to an object do not fit its schema");
    }
}

fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}
