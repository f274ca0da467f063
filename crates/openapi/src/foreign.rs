//! The document of a part of the API that another server serves and describes itself.
//!
//! It is published as it was fetched, under the name that its content gives it, so that all servers name it alike.

use std::sync::Arc;

use keelson_meta::json::json;

use crate::document::{self, Document};
use crate::json::member;
use crate::piece::Entry;

/// A document of version 3 that another server made.
#[derive(Debug)]
pub struct ForeignDocument {
    path: String,
    document: Arc<Document>,
    entry: Entry,
}

impl ForeignDocument {
    /// The document of the part of the API at a path such as `apis/apps/v1`.
    pub fn new(path: &str, content: Vec<u8>) -> Arc<Self> {
        let document = Document::new(content);
        let url = format!("/openapi/v3/{path}?hash={}", document.hash);
        let line = member(path, &json!({ "serverRelativeURL": url }));
        let entry = Entry { digest: document::digest(&line), line };
        Arc::new(Self { path: path.to_owned(), document: Arc::new(document), entry })
    }

    /// The path of the part.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The document.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }
}
