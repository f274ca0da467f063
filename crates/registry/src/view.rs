//! How stored objects are shown to a request: in the version that was asked for, whatever version they are stored in.
//!
//! Most kinds have one version, and then nothing here costs anything: bytes are shown as they are. A kind whose versions
//! differ only by name has its header replaced; only where fields differ is an object decoded and converted.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_codec::StoredObject;
use keelson_conversion::{Passage, View};
use keelson_meta::{GroupVersionKind, Object, Revision};

use crate::target::Target;

/// A collection in the version of a request.
#[derive(Clone, Debug)]
pub struct VersionedView {
    kind: GroupVersionKind,
    view: Option<Arc<View>>,
    /// Whether the kind has no other version, which is the case of most.
    sole: bool,
}

impl VersionedView {
    /// The view of a target.
    pub fn of(target: &Target) -> Self {
        let view = target.version.view().filter(|_| target.resource.is_persisted()).cloned();
        Self { kind: target.kind().clone(), sole: view.as_deref().is_none_or(View::is_sole), view }
    }

    /// The kind in this version.
    pub fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    /// Whether the object is stored in this version, so that its bytes are shown as they are.
    pub fn is_same(&self, object: &StoredObject) -> bool {
        self.sole || self.view.as_ref().is_some_and(|view| object.api_version() == view.api_version)
    }

    /// Whether items of lists are the stored bytes, whichever version an object is stored in: items do not name their
    /// version, so it is enough that no version of the kind has other fields.
    pub fn shows_stored_items(&self) -> bool {
        self.view.as_deref().is_none_or(View::is_rename)
    }

    /// The object with the fields of this version. Its header may still name another version.
    ///
    /// Cost: nothing where the fields are the same; else the object is decoded, converted and encoded.
    pub fn show<'a>(&self, object: &'a StoredObject) -> Cow<'a, StoredObject> {
        let passage = self.view.as_ref().and_then(|view| view.passage(object.api_version()));
        match passage {
            Some(Passage::Through(conversion)) if !conversion.is_rename() => {
                let mut converted = object.decode(Revision::ZERO);
                converted.remove_meta("resourceVersion");
                if let Err(error) = conversion.convert(&mut converted) {
                    // Shown as it is stored: that is better than a list that can't be read at all.
                    tracing::error!(%error, "a stored object can't be converted");
                    return Cow::Borrowed(object);
                }
                Cow::Owned(StoredObject::encode(&converted))
            }
            Some(Passage::Same | Passage::Renamed | Passage::Through(_)) | None => Cow::Borrowed(object),
        }
    }

    /// The object in this version, decoded.
    pub fn decode(&self, object: &StoredObject, revision: Revision) -> Object {
        let mut decoded = self.show(object).decode(revision);
        decoded.set_type(&self.kind);
        decoded
    }

    /// Appends the object in this version.
    pub fn write_object(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) {
        if self.is_same(object) {
            object.write_object(revision, out);
        } else {
            self.show(object).write_object_as(&self.kind, revision, out);
        }
    }

    /// Appends the object in this version as an item of a list.
    pub fn write_item(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) {
        if self.is_same(object) {
            object.write_item(revision, out);
        } else {
            self.show(object).write_item(revision, out);
        }
    }
}
