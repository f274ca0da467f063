//! A stored object without its skeleton, for caches that keep skeletons in another form.
//!
//! The header is apart from the skeleton too, since it is equal for all objects of a kind and version, and lists compare
//! it for every object.

use bytes::Bytes;

use super::shared::Parts;
use super::{API_VERSION_START, KIND_START, StoredHeader, StoredObject, header_text};

/// The parts of a stored object that are not its skeleton: shared parts, offsets, lengths.
#[derive(Clone, Debug)]
pub struct StoredShape {
    parts: Parts,
    body: u32,
    splice: u32,
    length: u32,
}

/// The stored bytes of an object before its metadata: kind and apiVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderText<'a>(&'a [u8]);

impl StoredShape {
    /// The object with this skeleton.
    ///
    /// # Panics
    /// If the skeleton has another length than the object's.
    pub fn with_skeleton(&self, skeleton: Bytes) -> StoredObject {
        assert_eq!(skeleton.len(), self.skeleton_len(), "a skeleton belongs to the shape of its object");
        StoredObject { bytes: skeleton, parts: self.parts.clone(), body: self.body, splice: self.splice }
    }

    /// The size of the whole object in bytes.
    pub fn size(&self) -> usize {
        let parts = self.parts.as_deref().unwrap_or_default();
        self.skeleton_len() + parts.iter().map(|part| part.text.len()).sum::<usize>()
    }

    /// The length of the skeleton in bytes.
    pub const fn skeleton_len(&self) -> usize {
        self.length as usize
    }
}

impl StoredObject {
    /// The object without its skeleton.
    pub fn shape(&self) -> StoredShape {
        let length = u32::try_from(self.bytes.len()).expect("the marks of an object are smaller numbers");
        StoredShape { parts: self.parts.clone(), body: self.body, splice: self.splice, length }
    }

    /// Kind and apiVersion, as stored.
    pub fn header(&self) -> HeaderText<'_> {
        HeaderText(&self.bytes[..self.body as usize])
    }
}

impl<'a> HeaderText<'a> {
    /// The stored bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The header in bytes from [`bytes`](Self::bytes).
    pub const fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns true if this is the header of a kind and version. One comparison. Escaped names compare unequal.
    pub fn is(self, header: &StoredHeader) -> bool {
        *self.0 == *header.0
    }

    /// The stored kind. Escapes are not decoded, since no kind needs any.
    pub fn kind(self) -> &'a str {
        header_text(self.0, KIND_START.len())
    }

    /// The stored apiVersion. Escapes are not decoded, since no apiVersion needs any.
    pub fn api_version(self) -> &'a str {
        let kind_end = KIND_START.len() + self.kind().len() + 1;
        header_text(self.0, kind_end + API_VERSION_START.len())
    }
}
