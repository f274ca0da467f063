//! One version of a group from one source, with its parts of the documents.
//!
//! A fragment is rendered once and shared by all sets of documents that contain it. A change of one among thousands of
//! versions neither renders nor hashes the others again.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest as _, Sha512};

use crate::source::VersionSource;
use crate::{aggregated, legacy};

/// A rendered version of a group.
#[derive(Debug)]
pub struct Fragment {
    source: VersionSource,
    /// The entry of the version in `versions` of the aggregated document.
    aggregated: Vec<u8>,
    /// The SHA-512 of `aggregated`.
    digest: [u8; 64],
    /// The entry of the version in `versions` of the legacy document of its group.
    entry: Vec<u8>,
    /// The resources of the version in the legacy form, rendered on demand, since few clients request them.
    resources: OnceLock<Bytes>,
}

impl Fragment {
    /// Renders a source.
    pub fn new(source: VersionSource) -> Arc<Self> {
        let aggregated = aggregated::version(&source);
        let digest = Sha512::digest(&aggregated).into();
        let entry = legacy::version_entry(&source);
        Arc::new(Self { source, aggregated, digest, entry, resources: OnceLock::new() })
    }

    /// The source.
    pub fn source(&self) -> &VersionSource {
        &self.source
    }

    pub(crate) fn aggregated(&self) -> &[u8] {
        &self.aggregated
    }

    pub(crate) fn digest(&self) -> &[u8; 64] {
        &self.digest
    }

    pub(crate) fn entry(&self) -> &[u8] {
        &self.entry
    }

    pub(crate) fn resources(&self) -> Bytes {
        self.resources.get_or_init(|| legacy::resources(&self.source).into()).clone()
    }
}
