//! A rendered piece of a part of the API: its document of version 3, its line in the index, and what it adds to version 2.
//!
//! Each is made when it is first asked for. Indexes need the hash of a document, not the document. Of custom group versions, of
//! which there may be thousands, nothing but that line is kept: the rest is made anew for who asks, which takes less than a
//! millisecond for one of them.

use std::sync::{Arc, OnceLock};

use keelson_meta::json::json;

use crate::document::{self, Document};
use crate::json::member;
use crate::part::Part;
use crate::shared::{Rendering, Shared};
use crate::{v2, v3};

/// What was made of a part so far.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    document: OnceLock<Arc<Document>>,
    entry: OnceLock<Entry>,
    v2_json: OnceLock<Arc<Addition>>,
    v2_protobuf: OnceLock<Arc<Addition>>,
}

/// A part's line in the index of version 3.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The member of `paths`.
    pub(crate) line: Vec<u8>,
    /// The hash of `line`.
    pub(crate) digest: [u8; 64],
}

/// What a part adds to the document of version 2.
#[derive(Debug)]
pub(crate) struct Addition {
    /// Its paths, each as a member of what holds all.
    pub(crate) paths: Vec<(String, Vec<u8>)>,
    /// The names of the shared definitions that they refer to, directly or not.
    pub(crate) shared_definitions: Vec<&'static str>,
    /// Definitions of its own, each as a member of what holds all.
    pub(crate) own_definitions: Vec<(String, Vec<u8>)>,
}

impl Piece {
    pub(crate) fn document(&self, part: Part<'_>, shared: &Shared) -> Arc<Document> {
        let make = || Arc::new(Document::new(v3::document(part, shared)));
        if part.is_builtin() { self.document.get_or_init(make).clone() } else { make() }
    }

    pub(crate) fn has_document(&self) -> bool {
        self.document.get().is_some()
    }

    pub(crate) fn entry(&self, part: Part<'_>, shared: &Shared) -> &Entry {
        self.entry.get_or_init(|| {
            let known = self.document.get().map(|document| document.hash.clone());
            let hash = known.unwrap_or_else(|| document::hash(&v3::document(part, shared)));
            let path = part.path();
            let line = member(&path, &json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }));
            Entry { digest: document::digest(&line), line }
        })
    }

    /// `rendering` is one of those of version 2.
    pub(crate) fn addition(&self, part: Part<'_>, shared: &Shared, rendering: Rendering) -> Arc<Addition> {
        let kept = if rendering == Rendering::V2Protobuf { &self.v2_protobuf } else { &self.v2_json };
        let make = || Arc::new(v2::addition(part, shared, rendering));
        if part.is_builtin() { kept.get_or_init(make).clone() } else { make() }
    }
}
