//! What garbage collection reads of an object: a few fields of its metadata, and nothing of the rest.

use std::borrow::Cow;

use keelson_cache::Entry;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

const METADATA: &[u8] = b"\"metadata\":";

/// The part of `metadata` that is about life and death. A field of another type than it should be reads as the default:
/// then the object has no owners and is left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    /// `uid`
    pub(super) uid: String,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// The same, as far as the index needs it, without a copy: it is told of every object that is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ties<'a> {
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
}

impl<'a> Ties<'a> {
    pub(super) fn read(entry: &'a Entry) -> Self {
        Self::read_from(entry.object.bytes()).unwrap_or_else(|error| {
            tracing::warn!(key = %entry.key, %error, "the metadata of an object can't be read");
            Self::default()
        })
    }

    /// Reads from where the metadata of a stored object begins to where it ends: to look for the end first would cost most.
    fn read_from(object: &'a [u8]) -> serde_json::Result<Self> {
        // Only the kind and the apiVersion stand before it.
        let start = object.windows(METADATA.len()).position(|part| part == METADATA);
        let metadata = start.map_or(&b"{}"[..], |start| &object[start + METADATA.len()..]);
        Self::deserialize(&mut serde_json::Deserializer::from_slice(metadata))
    }

    /// Whether the object has no owners and is not being deleted.
    pub(super) fn is_free(&self) -> bool {
        self.deletion_timestamp.is_none() && self.owner_references.is_none()
    }

    /// Whether nothing has changed since the object was like this, and it is not being deleted.
    pub(super) fn are_those_of(&self, before: &Ties<'_>) -> bool {
        let [now, then] = [self, before].map(|ties| ties.owner_references.map(RawValue::get));
        self.deletion_timestamp.is_none() && before.deletion_timestamp.is_none() && now == then
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn owners(&self) -> Vec<OwnerReference> {
        self.owner_references.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default()
    }

    /// Whether the object is being deleted and waits for garbage collection.
    pub(super) fn waits_for_collection(&self) -> bool {
        let finalizers = || self.finalizers.and_then(|list| serde_json::from_str(list.get()).ok());
        self.is_deleted()
            && finalizers().is_some_and(|finalizers: Vec<String>| {
                finalizers.iter().any(|held| held == FINALIZER_ORPHAN || held == FINALIZER_FOREGROUND)
            })
    }
}

/// An element of `metadata.ownerReferences`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OwnerReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    block_owner_deletion: Option<bool>,
}

impl Metadata {
    pub(super) fn read(entry: &Entry) -> Self {
        serde_json::from_slice(entry.object.metadata()).unwrap_or_else(|error| {
            tracing::warn!(key = %entry.key, %error, "the metadata of an object can't be read");
            Self::default()
        })
    }

    pub(super) fn owners(&self) -> &[OwnerReference] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(super) fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether the object is being deleted and held by this finalizer.
    pub(super) fn holds(&self, finalizer: &str) -> bool {
        self.is_deleted() && self.finalizers().iter().any(|held| held == finalizer)
    }
}

impl OwnerReference {
    /// Whether the owner, deleted in the foreground, waits for this object.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ties(metadata: &str) -> Ties<'_> {
        serde_json::from_str(metadata).unwrap()
    }

    #[test]
    fn only_owners_and_deletion_tie_an_object() {
        let free = r#"{"name":"a","labels":{"ownerReferences":"b"},"ownerReferences":null,"managedFields":[{"fieldsV1":{"f:metadata":{"f:ownerReferences":{}}}}]}"#;
        assert!(ties(free).is_free() && ties(free).are_those_of(&ties("{}")));
        assert!(ties(free).owners().is_empty());
        for tied in [r#"{"ownerReferences":[]}"#, r#"{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#] {
            assert!(!ties(tied).is_free() && !ties(tied).are_those_of(&ties(free)), "{tied}");
        }
    }

    #[test]
    fn only_the_metadata_of_the_object_itself_counts() {
        let object = br#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"\"metadata\":","uid":"u"},"spec":{"template":{"metadata":{"deletionTimestamp":"t","ownerReferences":[]}}}}"#;
        let read = Ties::read_from(object).unwrap();
        assert_eq!((&*read.uid, read.is_free()), ("u", true));
        let bare = Ties::read_from(br#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#).unwrap();
        assert!(bare.is_free() && bare.uid.is_empty());
    }

    #[test]
    fn an_object_that_is_being_deleted_waits_for_collection_if_it_says_so() {
        for (finalizers, waits) in [("orphan", true), ("foregroundDeletion", true), ("example.org/mine", false)] {
            let held = format!(r#"{{"uid":"u","finalizers":["a/b","{finalizers}"]}}"#);
            let leaving = held.replace(r#""uid""#, r#""deletionTimestamp":"t","uid""#);
            assert!(!ties(&held).waits_for_collection());
            assert_eq!((ties(&leaving).waits_for_collection(), &*ties(&leaving).uid), (waits, "u"));
        }
    }

    #[test]
    fn ties_stay_the_same_while_the_owners_do() {
        let owned = r#"{"labels":{"a":"b"},"ownerReferences":[{"uid":"u"}]}"#;
        assert!(ties(owned).are_those_of(&ties(r#"{"ownerReferences":[{"uid":"u"}],"finalizers":[]}"#)));
        assert!(!ties(owned).are_those_of(&ties(r#"{"ownerReferences":[{"uid":"v"}]}"#)));
        assert!(!ties("{}").are_those_of(&ties(owned)));
        let leaving = r#"{"deletionTimestamp":"t","ownerReferences":[{"uid":"u"}]}"#;
        assert!(!ties(leaving).are_those_of(&ties(owned)) && !ties(leaving).are_those_of(&ties(leaving)));
    }
}
