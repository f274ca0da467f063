//! The definitions and settings shared by the documents of all group versions.
//!
//! Every document uses the same few definitions: object metadata, `Status`, the options of a delete. Each is rendered
//! once in each format and then copied. So a document of a custom group version costs only the rendering of its own
//! paths.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

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
pub struct SharedDefinitions {
    pub(crate) schemas: &'static Schemas,
    server_version: String,
    lookup: LazyLock<Lookup, Box<dyn FnOnce() -> Lookup + Send>>,
    /// The pages outside of groups: `/api/`, `/apis/`, `/version/`.
    pub(crate) pages: [DocumentPart; 3],
}

/// The definitions by name, and the kinds of each.
struct Lookup {
    kinds: Kinds,
    definitions: HashMap<&'static str, Definition>,
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
        let lookup = Lookup::new(schemas, versions);
        Self::with(schemas, server_version, move || lookup)
    }

    /// As [`new`](Self::new), but calls `versions` at the first use. Many servers for tests never use them.
    pub fn deferred(
        schemas: &'static Schemas,
        versions: impl FnOnce() -> Vec<VersionDescription> + Send + 'static,
        server_version: &str,
    ) -> Arc<Self> {
        Self::with(schemas, server_version, move || Lookup::new(schemas, &versions()))
    }

    fn with(
        schemas: &'static Schemas,
        server_version: &str,
        lookup: impl FnOnce() -> Lookup + Send + 'static,
    ) -> Arc<Self> {
        let (server_version, lookup) = (server_version.to_owned(), LazyLock::new(Box::new(lookup) as Box<_>));
        Arc::new(Self { schemas, server_version, lookup, pages: Default::default() })
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
        let Lookup { kinds, definitions } = &*self.lookup;
        let Some(Definition { schema, rendered }) = definitions.get(name) else { return &[] };
        rendered[rendering as usize].get_or_init(|| match rendering {
            Rendering::V3 => member(name, &Dialect::V3.definition(*schema, kinds)),
            Rendering::V2Json => member(name, &Dialect::V2.definition(*schema, kinds)),
            Rendering::V2Protobuf => protobuf::definition(name, &Dialect::V2.definition(*schema, kinds)),
        })
    }
}

impl Lookup {
    fn new(schemas: &'static Schemas, versions: &[VersionDescription]) -> Self {
        let definition = |schema: SchemaRef<'static>| {
            let name = schema.definition_name()?;
            Some((name, Definition { schema, rendered: Default::default() }))
        };
        let kinds = Kinds::new(versions, schemas);
        Self { kinds, definitions: schemas.definitions().filter_map(definition).collect() }
    }
}

impl fmt::Debug for SharedDefinitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDefinitions").field("server_version", &self.server_version).finish_non_exhaustive()
    }
}
