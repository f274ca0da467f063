//! OpenAPI: what can be sent to this server, in the forms that clients read.
//!
//! Version 3 has an index and a document for each group version; version 2 is one document. Both are rendered from one
//! model of operations, which is read off the catalogue. Documents are made when they are first asked for and then kept.
//! The operations, their parameters and their kinds are complete for what this server answers itself; schemas of objects
//! are not part of the documents, and clients that need one fall back on what they have built in.

mod operations;
mod parameters;
mod v2;
mod v3;

use std::fmt::Write;

use bytes::Bytes;
use sha2::{Digest, Sha512};

pub use v2::v2_document;
pub use v3::OpenApi;

/// A document with the hash of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The JSON.
    pub json: Bytes,
    /// The value of the `ETag` header without its quotes, and of the `hash` parameter by which the index refers to it.
    pub hash: String,
}

impl Document {
    pub(crate) fn new(json: Vec<u8>) -> Self {
        let hash = Sha512::digest(&json).iter().fold(String::with_capacity(128), |mut hex, byte| {
            write!(hex, "{byte:02X}").expect("a string can be written to");
            hex
        });
        Self { json: json.into(), hash }
    }
}
