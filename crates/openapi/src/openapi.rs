//! The documents as they are kept: each made when it is first asked for, and held as bytes from then on.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use keelson_meta::json::{Map, json};
use keelson_resources::Catalogue;
use keelson_schema::Schemas;
use sha2::{Digest, Sha512};

use crate::definitions::Kinds;
use crate::part::Part;
use crate::{v2, v3};

/// A document with the hash of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The content.
    pub bytes: Bytes,
    /// The value of the `ETag` header without its quotes, and of the `hash` parameter by which the index refers to it.
    pub hash: String,
}

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        let hash = hash(&bytes);
        Self { bytes: bytes.into(), hash }
    }
}

/// The form of a document. Version 3 is only given as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    Json,
    /// gnostic's protobuf messages, which client-go asks for.
    Protobuf,
}

/// The documents of a server.
#[derive(Debug)]
pub struct OpenApi {
    catalogue: &'static Catalogue,
    /// The version of the server, as the documents state it.
    server_version: String,
    kinds: OnceLock<Kinds>,
    v2_json: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
    index: OnceLock<Document>,
    /// Those of version 3 by the path below `/openapi/v3/`, such as `apis/apps/v1`.
    documents: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    part: Part,
    document: OnceLock<Document>,
}

impl OpenApi {
    /// The documents of the catalogue's groups. Nothing is rendered yet.
    pub fn new(catalogue: &'static Catalogue, server_version: &str) -> Self {
        let entry = |part: Part| (part.path(), Entry { part, document: OnceLock::new() });
        Self {
            catalogue,
            server_version: server_version.to_owned(),
            kinds: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
            index: OnceLock::new(),
            documents: Part::all(catalogue).into_iter().map(entry).collect(),
        }
    }

    /// `/openapi/v3`: where the documents are. It names their hashes, so the first call renders them all; only those that
    /// are asked for later are kept.
    pub fn index(&self) -> &Document {
        self.index.get_or_init(|| {
            let paths: Map = self
                .documents
                .iter()
                .map(|(path, entry)| {
                    let hash = entry.document.get().map_or_else(|| hash(&self.v3(entry.part)), |d| d.hash.clone());
                    (path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }))
                })
                .collect();
            Document::new(json!({ "paths": paths }).to_string().into_bytes())
        })
    }

    /// `/openapi/v3/<path>`: the document of a part of the API, whose path is such as `api/v1` or `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<&Document> {
        let entry = self.documents.get(path)?;
        Some(entry.document.get_or_init(|| Document::new(self.v3(entry.part))))
    }

    /// `/openapi/v2`: the document of the whole API.
    pub fn v2(&self, form: Form) -> &Document {
        let schemas = Schemas::builtin();
        match form {
            Form::Json => self
                .v2_json
                .get_or_init(|| Document::new(v2::json(self.catalogue, schemas, self.kinds(), &self.server_version))),
            Form::Protobuf => self.v2_protobuf.get_or_init(|| {
                Document::new(v2::protobuf(self.catalogue, schemas, self.kinds(), &self.server_version))
            }),
        }
    }

    fn v3(&self, part: Part) -> Vec<u8> {
        v3::document(part, Schemas::builtin(), self.kinds(), &self.server_version)
    }

    fn kinds(&self) -> &Kinds {
        self.kinds.get_or_init(|| Kinds::new(self.catalogue, Schemas::builtin()))
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().fold(String::with_capacity(128), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("a string can be written to");
        hex
    })
}
