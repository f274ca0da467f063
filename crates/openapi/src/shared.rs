//! The definitions and settings shared by the documents of all group versions.
//!
//! Every document uses the same few definitions: object metadata, `Status`, the options of a delete. Each is rendered
//! once in each format and then copied. So a document of a custom group version costs only the rendering of its own
//! paths.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use keelson_meta::json::{Value, json};
use keelson_schema::{SchemaRef, Schemas};

use crate::definitions::Kinds;
use crate::description::VersionDescription;
use crate::document_scope::DocumentScope;
use crate::json::member;
use crate::piece::DocumentPart;
use crate::protobuf;
use crate::schema::Dialect;

/// The name of the only security scheme.
const BEARER_TOKEN: &str = "BearerToken";

/// The security schemes, as both versions write them: a token in a header.
pub(crate) fn security_schemes() -> Value {
    let description = "Bearer Token authentication";
    json!({ (BEARER_TOKEN): { "type": "apiKey", "description": description, "name": "authorization", "in": "header" } })
}

/// The security schemes of all operations.
pub(crate) fn security() -> Value {
    json!([{ (BEARER_TOKEN): [] }])
}

/// The format of a rendered piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rendering {
    V3,
    V2Json,
    V2Protobuf,
}

/// Schemas, the version of the server, and the common parts of documents.
#[derive(Debug)]
pub struct SharedDefinitions {
    pub(crate) schemas: &'static Schemas,
    server_version: String,
    kinds: Kinds,
    definitions: HashMap<&'static str, Definition>,
    /// The pages outside of groups: `/api/`, `/apis/`, `/version/`.
    pub(crate) pages: [DocumentPart; 3],
}

#[derive(Debug)]
struct Definition {
    schema: SchemaRef<'static>,
    /// The rendered definition in each format, indexed by [`Rendering`].
    rendered: [OnceLock<Vec<u8>>; 3],
}

impl SharedDefinitions {
    /// Creates the shared definitions for a server of this version. `DeleteOptions` and `WatchEvent` list all of
    /// `versions` as theirs; as in kube-apiserver, these are the built-in versions.
    pub fn new(schemas: &'static Schemas, versions: &[VersionDescription], server_version: &str) -> Arc<Self> {
        let definition = |schema: SchemaRef<'static>| {
            let name = schema.definition_name()?;
            Some((name, Definition { schema, rendered: Default::default() }))
        };
        Arc::new(Self {
            schemas,
            server_version: server_version.to_owned(),
            kinds: Kinds::new(versions, schemas),
            definitions: schemas.definitions().filter_map(definition).collect(),
            pages: Default::default(),
        })
    }

    /// The pages outside of groups, in the order of `pages`.
    pub(crate) fn parts() -> [DocumentScope<'static>; 3] {
        [DocumentScope::CoreVersions, DocumentScope::Groups, DocumentScope::CodeVersion]
    }

    pub(crate) fn info(&self) -> Value {
        json!({ "title": "Kubernetes", "version": self.server_version })
    }

    /// A definition as a member of the enclosing object or message.
    pub(crate) fn definition(&self, name: &str, rendering: Rendering) -> &[u8] {
        let Some(Definition { schema, rendered }) = self.definitions.get(name) else { return &[] };
        rendered[rendering as usize].get_or_init(|| match rendering {
            Rendering::V3 => member(name, &Dialect::V3.definition(*schema, &self.kinds)),
            Rendering::V2Json => member(name, &Dialect::V2.definition(*schema, &self.kinds)),
            Rendering::V2Protobuf => protobuf::definition(name, &Dialect::V2.definition(*schema, &self.kinds)),
        })
    }
}
