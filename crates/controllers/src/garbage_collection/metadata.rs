//! The few metadata fields that garbage collection reads, taken from an object's stored bytes.
//!
//! The collector reads every object of every kind, so it decodes no other field.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use keelson_supervision::warn_repeated;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::elsewhere::RemoteObject;

/// The part of `metadata` about ownership and deletion. A field of the wrong type reads as absent: the object then has
/// no owners and is left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata<'e> {
    /// `uid`
    #[serde(borrow)]
    pub(super) uid: Cow<'e, str>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerReference<'e>>>,
}

/// The part of the metadata that the index needs. The index sees every write, so it takes nearly all of this from the
/// cache entry without decoding the object.
#[derive(Clone, Copy)]
pub(super) struct Ties<'e> {
    of: OwnerText<'e>,
    /// The owner references as JSON.
    pub(super) references: Option<&'e str>,
}

#[derive(Clone, Copy)]
enum OwnerText<'e> {
    Here(&'e Entry),
    Elsewhere(&'e RemoteObject),
}

impl<'e> Ties<'e> {
    pub(super) fn from_entry(entry: &'e Entry) -> Self {
        Self { of: OwnerText::Here(entry), references: entry.owner_references() }
    }

    pub(super) fn of_elsewhere(object: &'e RemoteObject) -> Self {
        Self { of: OwnerText::Elsewhere(object), references: object.references.as_deref() }
    }

    /// Returns true if the object has no owners and is not being deleted.
    pub(super) fn is_free(self) -> bool {
        !self.is_deleted() && self.references.is_none()
    }

    /// Returns true if owners and deletion are the same as in `before`, and the object is not being deleted.
    pub(super) fn are_those_of(self, before: Self) -> bool {
        !self.is_deleted() && !before.is_deleted() && self.references == before.references
    }

    pub(super) fn key(self) -> &'e Arc<str> {
        match self.of {
            OwnerText::Here(entry) => &entry.key,
            OwnerText::Elsewhere(object) => &object.key,
        }
    }

    pub(super) fn is_deleted(self) -> bool {
        match self.of {
            OwnerText::Here(entry) => entry.terminating,
            OwnerText::Elsewhere(object) => object.is_deleted,
        }
    }

    /// The parsed owner references. Invalid JSON has none.
    pub(super) fn owners(self) -> Vec<OwnerReference<'e>> {
        self.references.and_then(|list| serde_json::from_str(list).ok()).unwrap_or_default()
    }

    /// Returns true if the object is being deleted and waits for garbage collection.
    pub(super) fn waits_for_collection(self) -> bool {
        self.is_deleted() && {
            let object;
            let metadata = match self.of {
                OwnerText::Here(entry) => {
                    object = entry.object();
                    Metadata::read(&entry.key, object.metadata())
                }
                OwnerText::Elsewhere(object) => Metadata::of_elsewhere(object),
            };
            metadata.holds(FINALIZER_ORPHAN) || metadata.holds(FINALIZER_FOREGROUND)
        }
    }

    pub(super) fn uid(self) -> Cow<'e, str> {
        match self.of {
            OwnerText::Here(entry) => Cow::Owned(entry.object().uid().into_owned()),
            OwnerText::Elsewhere(object) => Cow::Borrowed(&object.uid),
        }
    }
}

/// An element of `metadata.ownerReferences`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OwnerReference<'e> {
    #[serde(borrow)]
    pub(super) api_version: Cow<'e, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'e, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'e, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'e, str>,
    block_owner_deletion: Option<bool>,
}

impl<'e> Metadata<'e> {
    /// Reads the metadata of an object from its JSON.
    pub(super) fn read(key: &str, text: &'e [u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_else(|error| {
            warn_repeated!(key; key, %error, "the metadata of an object can't be read");
            Self::default()
        })
    }

    pub(super) fn of_elsewhere(object: &'e RemoteObject) -> Self {
        Self {
            uid: Cow::Borrowed(&object.uid),
            deletion_timestamp: object.is_deleted.then_some(IgnoredAny),
            finalizers: Some(object.finalizers.clone()),
            owner_references: object.references.as_deref().and_then(|list| serde_json::from_str(list).ok()),
        }
    }

    pub(super) fn owners(&self) -> &[OwnerReference<'e>] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(super) fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns true if the object is being deleted and has this finalizer.
    pub(super) fn holds(&self, finalizer: &str) -> bool {
        self.is_deleted() && self.finalizers().iter().any(|held| held == finalizer)
    }
}

impl OwnerReference<'_> {
    /// Returns true if an owner's foreground deletion waits for this object.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use keelson_cache::{Cache, CacheConfig, CollectionSpec};
    use keelson_meta::{Revision, SystemClock};
    use keelson_storage::memory::MemoryStore;
    use keelson_storage::{KeyValue, StoreKey};

    use super::*;

    /// The cache entry of a stored object.
    async fn entry(object: &str) -> Arc<Entry> {
        let spec = CollectionSpec {
            prefix: "/registry/things/".to_owned(),
            fields: Vec::new(),
            dispatch: None,
            complete: None,
            typed_items: false,
        };
        let config = CacheConfig::new(Arc::new(SystemClock));
        let cache = Cache::start(Arc::new(MemoryStore::new()), vec![spec], config).await.unwrap();
        let (key, value) = (StoreKey::new("/registry/things/a/b".to_owned()), object.to_owned().into());
        cache.collections()[0].decode(&KeyValue::new(key, value, Revision::new(1))).unwrap()
    }

    async fn with(metadata: &str) -> Arc<Entry> {
        entry(&format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"ownerReferences":[]}}}}"#))
            .await
    }

    #[tokio::test]
    async fn only_owners_and_deletion_tie_an_object() {
        let bare = with("{}").await;
        let free = with(r#"{"name":"a","labels":{"ownerReferences":"b"},"ownerReferences":null,"managedFields":[{"fieldsV1":{"f:metadata":{"f:ownerReferences":{}}}}]}"#).await;
        assert!(Ties::from_entry(&free).is_free() && Ties::from_entry(&free).are_those_of(Ties::from_entry(&bare)));
        assert!(Ties::from_entry(&free).owners().is_empty());
        for tied in [r#"{"ownerReferences":[]}"#, r#"{"deletionTimestamp":"2026-01-01T00:00:00Z"}"#] {
            let object = with(tied).await;
            assert!(
                !Ties::from_entry(&object).is_free()
                    && !Ties::from_entry(&object).are_those_of(Ties::from_entry(&free)),
                "{tied}"
            );
        }
    }

    #[tokio::test]
    async fn only_the_metadata_of_the_object_itself_counts() {
        let object = r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"\"metadata\":","uid":"u"},"spec":{"template":{"metadata":{"deletionTimestamp":"t","ownerReferences":[]}}}}"#;
        let object = entry(object).await;
        assert_eq!((&*Ties::from_entry(&object).uid(), Ties::from_entry(&object).is_free()), ("u", true));
        let bare = with("{}").await;
        assert!(Ties::from_entry(&bare).is_free() && Ties::from_entry(&bare).uid().is_empty());
    }

    #[tokio::test]
    async fn deleted_objects_with_collector_finalizers_wait_for_collection() {
        for (finalizers, waits) in [("orphan", true), ("foregroundDeletion", true), ("example.org/mine", false)] {
            let held = format!(r#"{{"uid":"u","finalizers":["a/b","{finalizers}"]}}"#);
            let terminating = held.replace(r#""finalizers""#, r#""deletionTimestamp":"t","finalizers""#);
            let (held, terminating) = (with(&held).await, with(&terminating).await);
            assert!(!Ties::from_entry(&held).waits_for_collection());
            assert_eq!(
                (Ties::from_entry(&terminating).waits_for_collection(), &*Ties::from_entry(&terminating).uid()),
                (waits, "u")
            );
        }
    }

    #[tokio::test]
    async fn ties_stay_the_same_while_the_owners_do() {
        let bare = with("{}").await;
        let owned = with(r#"{"labels":{"a":"b"},"ownerReferences":[{"uid":"u"}]}"#).await;
        let same = with(r#"{"ownerReferences":[{"uid":"u"}],"finalizers":[]}"#).await;
        let other = with(r#"{"ownerReferences":[{"uid":"v"}]}"#).await;
        let terminating = with(r#"{"deletionTimestamp":"t","ownerReferences":[{"uid":"u"}]}"#).await;
        let [owned, same, other, terminating] =
            [&owned, &same, &other, &terminating].map(|entry| Ties::from_entry(entry));
        assert_eq!(owned.owners()[0].uid, "u");
        assert!(owned.are_those_of(same) && !owned.are_those_of(other));
        assert!(!Ties::from_entry(&bare).are_those_of(owned));
        assert!(!terminating.are_those_of(owned) && !terminating.are_those_of(terminating));
    }
}
