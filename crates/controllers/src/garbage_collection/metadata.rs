//! What garbage collection reads of an object: a few fields of its metadata, and nothing of the rest.

use keelson_cache::Entry;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use serde::Deserialize;
use serde::de::IgnoredAny;

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

    /// Whether the object is being deleted and waits for garbage collection.
    pub(super) fn waits_for_collection(&self) -> bool {
        self.holds(FINALIZER_ORPHAN) || self.holds(FINALIZER_FOREGROUND)
    }
}

impl OwnerReference {
    /// Whether the owner, deleted in the foreground, waits for this object.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}
