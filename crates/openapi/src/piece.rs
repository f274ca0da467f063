//! The rendered content of one part of the API: its version 3 document, its line in the index, and its addition to
//! version 2.
//!
//! Each of them is built on demand and then kept, so a change of one part among thousands renders only that part. The
//! index needs only the hash of a document. For custom group versions everything is kept compressed, and a document is
//! kept only after its first request.

use std::sync::{Arc, OnceLock};

use keelson_meta::json::json;

use crate::addition::{Addition, PackedAddition};
use crate::descriptions::DocumentEncoding;
use crate::document::{self, Document};
use crate::document_scope::DocumentScope;
use crate::json::member;
use crate::shared::{Rendering, SharedDefinitions};
use crate::{v2, v3};

/// The rendered parts so far.
#[derive(Debug, Default)]
pub(crate) struct DocumentPart {
    document: OnceLock<Arc<Document>>,
    protobuf: OnceLock<Arc<Document>>,
    entry: OnceLock<Entry>,
    v2_json: OnceLock<StoredAddition>,
    v2_protobuf: OnceLock<StoredAddition>,
}

/// The stored addition to version 2.
#[derive(Debug)]
enum StoredAddition {
    Whole(Arc<Addition>),
    Packed(PackedAddition),
}

/// A line in the version 3 index.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The member of `paths`.
    pub(crate) line: Vec<u8>,
    /// The hash of `line`.
    pub(crate) digest: [u8; 64],
}

impl DocumentPart {
    pub(crate) fn document(&self, scope: DocumentScope<'_>, shared: &SharedDefinitions) -> Arc<Document> {
        let make = || {
            let rendered = v3::document(scope, shared);
            Arc::new(if scope.is_builtin() { Document::new(rendered) } else { Document::packed(&rendered) })
        };
        self.document.get_or_init(make).clone()
    }

    /// The version 3 document as protobuf, with the hash of the JSON document.
    pub(crate) fn protobuf(&self, scope: DocumentScope<'_>, shared: &SharedDefinitions) -> Arc<Document> {
        let make = || {
            let json = self.document(scope, shared);
            Arc::new(json.as_protobuf().expect("the document was rendered as JSON"))
        };
        self.protobuf.get_or_init(make).clone()
    }

    pub(crate) fn has_document(&self, encoding: DocumentEncoding) -> bool {
        match encoding {
            DocumentEncoding::Json => self.document.get().is_some(),
            DocumentEncoding::Protobuf => self.protobuf.get().is_some(),
        }
    }

    pub(crate) fn entry(&self, scope: DocumentScope<'_>, shared: &SharedDefinitions) -> &Entry {
        self.entry.get_or_init(|| {
            let known = self.document.get().map(|document| document.hash.clone());
            let hash = known.unwrap_or_else(|| document::hash(&v3::document(scope, shared)));
            let path = scope.path();
            let line = member(&path, &json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }));
            Entry { digest: document::digest(&line), line }
        })
    }

    /// The addition in a `rendering` of version 2.
    pub(crate) fn addition(
        &self,
        scope: DocumentScope<'_>,
        shared: &SharedDefinitions,
        rendering: Rendering,
    ) -> Arc<Addition> {
        let kept = if rendering == Rendering::V2Protobuf { &self.v2_protobuf } else { &self.v2_json };
        let kept = kept.get_or_init(|| {
            let made = v2::addition(scope, shared, rendering);
            match scope.is_builtin() {
                true => StoredAddition::Whole(Arc::new(made)),
                false => StoredAddition::Packed(PackedAddition::new(&made)),
            }
        });
        match kept {
            StoredAddition::Whole(addition) => addition.clone(),
            StoredAddition::Packed(packed) => Arc::new(packed.unpack()),
        }
    }
}
