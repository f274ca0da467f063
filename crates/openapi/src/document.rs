//! A document as it is kept and sent: its bytes, their hash, and their compressed form.
//!
//! The hash is a client's name for the content: equal content has equal hashes on every server.

use std::fmt::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest, Sha512};

/// A document with the hash of its content.
#[derive(Clone, Debug)]
pub struct Document {
    /// The content.
    pub bytes: Bytes,
    /// The value of the `ETag` header without its quotes, and of the `hash` parameter by which the index refers to it.
    pub hash: String,
    compressed: OnceLock<Bytes>,
}

impl Document {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let hash = hash(&bytes);
        Self::hashed(bytes, hash)
    }

    /// A document whose hash was made of those of its parts.
    pub(crate) fn hashed(bytes: Vec<u8>, hash: String) -> Self {
        Self { bytes: bytes.into(), hash, compressed: OnceLock::new() }
    }

    /// The content as `compress` makes it smaller, which is asked once.
    pub fn compressed(&self, compress: impl FnOnce(&[u8]) -> Bytes) -> Bytes {
        self.compressed.get_or_init(|| compress(&self.bytes)).clone()
    }
}

/// Documents are equal when their content is.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.hash == other.hash
    }
}

impl Eq for Document {}

/// The SHA-512 of some content.
pub(crate) fn digest(content: &[u8]) -> [u8; 64] {
    Sha512::digest(content).into()
}

/// The same as it is written in headers and URLs.
pub(crate) fn hash(content: &[u8]) -> String {
    digest(content).iter().fold(String::with_capacity(128), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("a string can be written to");
        hex
    })
}
