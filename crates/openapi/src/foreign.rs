//! The document of a part of the API that another server serves.
//!
//! The document is published unchanged. The hash of its content identifies it, and is the same on all servers.

use std::sync::{Arc, OnceLock};

use keelson_meta::json::{Value, json};

use crate::document::{self, Document};
use crate::from_v2;
use crate::json::member;
use crate::piece::Entry;

/// A version 3 document of another server.
#[derive(Debug)]
pub struct ForeignDocument {
    path: String,
    document: Arc<Document>,
    protobuf: OnceLock<Arc<Document>>,
    entry: Entry,
}

impl ForeignDocument {
    /// Creates the document of the part of the API with a path such as `apis/apps/v1`.
    pub fn new(path: &str, content: Vec<u8>) -> Arc<Self> {
        Self::from_document(path, Arc::new(Document::new(content)))
    }

    /// Converts the OpenAPI 2 document of a server without OpenAPI 3 into one OpenAPI 3 document for each of the paths.
    ///
    /// Cost: proportional to the document, so this must not run in a request.
    pub fn of_v2(v2: &Value, paths: &[String]) -> Vec<Arc<Self>> {
        let document = Arc::new(Document::new(from_v2::document(v2).to_string().into_bytes()));
        paths.iter().map(|path| Self::from_document(path, document.clone())).collect()
    }

    fn from_document(path: &str, document: Arc<Document>) -> Arc<Self> {
        let url = format!("/openapi/v3/{path}?hash={}", document.hash);
        let line = member(path, &json!({ "serverRelativeURL": url }));
        let entry = Entry { digest: document::digest(&line), line };
        Arc::new(Self { path: path.to_owned(), document, protobuf: OnceLock::new(), entry })
    }

    /// The path of the part.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The document.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// The document as protobuf. Invalid JSON is returned unchanged.
    pub(crate) fn protobuf(&self) -> Arc<Document> {
        let make = || self.document.as_protobuf().map_or_else(|| self.document.clone(), Arc::new);
        self.protobuf.get_or_init(make).clone()
    }

    pub(crate) fn has_protobuf(&self) -> bool {
        self.protobuf.get().is_some()
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }
}
