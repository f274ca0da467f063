//! A document: its bytes, their hash, and their compressed form.
//!
//! The hash identifies the content, and is the same on every server. Of documents that may exist in thousands, only the
//! compressed form is kept. Most clients request that form; for others it is decompressed.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use keelson_meta::json::Value;
use sha2::{Digest, Sha512};

use crate::protobuf;

/// The compression level of packed documents. They are compressed once for each change and sent many times.
const LEVEL: u32 = 3;

/// A document with the hash of its content.
#[derive(Clone, Debug)]
pub struct Document {
    content: Content,
    /// The value of the `ETag` header without quotes, and of the `hash` parameter in the index.
    pub hash: String,
}

#[derive(Clone, Debug)]
enum Content {
    Plain { bytes: Bytes, compressed: OnceLock<Bytes> },
    Packed { gzip: Bytes, length: usize },
}

impl Document {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let hash = hash(&bytes);
        Self::hashed(bytes, hash)
    }

    /// Creates a document with a hash that was computed from the hashes of its parts.
    pub(crate) fn hashed(bytes: Vec<u8>, hash: String) -> Self {
        Self { content: Content::Plain { bytes: bytes.into(), compressed: OnceLock::new() }, hash }
    }

    /// Creates a document that is kept in gzip format.
    pub(crate) fn packed(bytes: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        encoder.write_all(bytes).expect("memory can be written to");
        let gzip = encoder.finish().expect("memory can be written to").into_boxed_slice();
        Self { content: Content::Packed { gzip: gzip.into(), length: bytes.len() }, hash: hash(bytes) }
    }

    /// Converts a version 3 document from JSON to protobuf, with the same hash and storage. `None` for invalid JSON.
    pub(crate) fn as_protobuf(&self) -> Option<Self> {
        let json: Value = serde_json::from_slice(&self.bytes()).ok()?;
        let bytes = protobuf::v3_document(&json);
        let made = match &self.content {
            Content::Plain { .. } => Self::hashed(bytes, self.hash.clone()),
            Content::Packed { .. } => Self { hash: self.hash.clone(), ..Self::packed(&bytes) },
        };
        Some(made)
    }

    /// The content.
    ///
    /// Cost: unpacking, about 0.1 ms, for a document of custom resources.
    pub fn bytes(&self) -> Bytes {
        match &self.content {
            Content::Plain { bytes, .. } => bytes.clone(),
            Content::Packed { gzip, length } => {
                let mut bytes = Vec::with_capacity(*length);
                GzDecoder::new(&**gzip).read_to_end(&mut bytes).expect("it was packed here");
                bytes.into()
            }
        }
    }

    /// The size of the content in bytes.
    pub fn length(&self) -> usize {
        match &self.content {
            Content::Plain { bytes, .. } => bytes.len(),
            Content::Packed { length, .. } => *length,
        }
    }

    /// The content in gzip format. `compress` is called at most once, and never if the content is kept in gzip format.
    pub fn compressed(&self, compress: impl FnOnce(&[u8]) -> Bytes) -> Bytes {
        match &self.content {
            Content::Plain { bytes, compressed } => compressed.get_or_init(|| compress(bytes)).clone(),
            Content::Packed { gzip, .. } => gzip.clone(),
        }
    }
}

/// Compares the content of documents.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bytes() == other.bytes()
    }
}

impl Eq for Document {}

/// The SHA-512 of the content.
pub(crate) fn digest(content: &[u8]) -> [u8; 64] {
    Sha512::digest(content).into()
}

/// The hash in the form of headers and URLs.
pub(crate) fn hash(content: &[u8]) -> String {
    digest(content).iter().fold(String::with_capacity(128), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("a string can be written to");
        hex
    })
}
