//! One version of a group as one source serves it, with the pieces of documents that speak of it.
//!
//! A fragment is rendered once, when it is made, and is shared by every set of documents that it is a part of: when one of
//! thousands of versions changes, the others are neither rendered nor hashed again.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest as _, Sha512};

use crate::source::VersionSource;
use crate::{aggregated, legacy};

/// A version of a group, rendered.
#[derive(Debug)]
pub struct Fragment {
    source: VersionSource,
    /// Its member of `versions` in the aggregated document.
    aggregated: Vec<u8>,
    /// The SHA-512 of `aggregated`.
    digest: [u8; 64],
    /// Its member of `versions` in the older form of its group.
    entry: Vec<u8>,
    /// Its resources in the older form. Few clients ask for them, so they are rendered when one does.
    resources: OnceLock<Bytes>,
}

impl Fragment {
    /// Renders what a source serves.
    pub fn new(source: VersionSource) -> Arc<Self> {
        let aggregated = aggregated::version(&source);
        let digest = Sha512::digest(&aggregated).into();
        let entry = legacy::version_entry(&source);
        Arc::new(Self { source, aggregated, digest, entry, resources: OnceLock::new() })
    }

    /// What the source serves.
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
