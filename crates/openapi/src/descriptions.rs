//! All OpenAPI documents for one set of group versions. They are assembled once for each change, and all requests share
//! them.
//!
//! Assembling only sorts the fragments. A document is built on demand from its fragments, and then kept as bytes.
//! Building the version 2 document takes longer than a request may block a thread, so callers check
//! [`Descriptions::is_ready`] first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use crate::custom::{self, CustomKind};
use crate::definitions::needed;
use crate::description::ResourceDescription;
use crate::document::{self, Document};
use crate::document_scope::DocumentScope;
use crate::foreign::ForeignDocument;
use crate::foreign_paths::{ForeignDefinitions, ForeignPaths, own_definition};
use crate::fragment::Fragment;
use crate::json::join;
use crate::piece::DocumentPart;
use crate::schema::Dialect;
use crate::shared::{Rendering, SharedDefinitions};
use crate::v2;

/// The format of a document. The version 3 index exists only as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentEncoding {
    /// JSON.
    Json,
    /// gnostic's protobuf messages, which client-go requests.
    Protobuf,
}

/// Identifies a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentId {
    /// The version 2 document.
    V2(DocumentEncoding),
    /// The version 3 index.
    V3Index,
    /// The version 3 document of a part of the API, by a path such as `api/v1` or `apis/apps/v1`.
    V3(String, DocumentEncoding),
}

/// The documents of one set of fragments. Immutable: a change builds a new one.
#[derive(Debug)]
pub struct Descriptions {
    shared: Arc<SharedDefinitions>,
    /// Sorted by path, each path once.
    fragments: Vec<Arc<Fragment>>,
    /// Documents of other servers, by path.
    foreign: BTreeMap<String, Arc<ForeignDocument>>,
    /// Version 2 paths of other servers, by path.
    foreign_paths: BTreeMap<String, Arc<ForeignPaths>>,
    index: OnceLock<Arc<Document>>,
    v2_json: OnceLock<Arc<Document>>,
    v2_protobuf: OnceLock<Arc<Document>>,
}

impl Descriptions {
    /// Assembles the documents of these fragments, which may have any order.
    pub fn assemble(shared: &Arc<SharedDefinitions>, fragments: &[Arc<Fragment>]) -> Self {
        let mut fragments = fragments.to_vec();
        fragments.sort_by(|a, b| a.path().cmp(b.path()));
        fragments.dedup_by(|later, earlier| later.path() == earlier.path());
        let (index, v2_json, v2_protobuf) = Default::default();
        Self {
            shared: shared.clone(),
            fragments,
            foreign: BTreeMap::new(),
            foreign_paths: BTreeMap::new(),
            index,
            v2_json,
            v2_protobuf,
        }
    }

    /// Returns the documents together with those of other servers, in version 3 and version 2. They replace this
    /// server's own parts with the same path.
    #[must_use]
    pub fn with_foreign(
        mut self,
        documents: impl IntoIterator<Item = Arc<ForeignDocument>>,
        paths: impl IntoIterator<Item = Arc<ForeignPaths>>,
    ) -> Self {
        self.foreign = documents.into_iter().map(|document| (document.path().to_owned(), document)).collect();
        // The trailing slash makes parts sort in the order of their paths.
        self.foreign_paths = paths.into_iter().map(|paths| (format!("{}/", paths.path()), paths)).collect();
        self.fragments.retain(|fragment| {
            !self.foreign.contains_key(fragment.path())
                && !self.foreign_paths.contains_key(&*format!("{}/", fragment.path()))
        });
        self
    }

    /// Returns a document, which is built on demand. `None` for an unknown part of the API.
    ///
    /// Cost: none if the document is [ready](Self::is_ready). Version 2 is built from all parts of the API.
    pub fn document(&self, wanted: &DocumentId) -> Option<Arc<Document>> {
        match wanted {
            DocumentId::V2(DocumentEncoding::Json) => {
                Some(self.v2_json.get_or_init(|| self.v2(Rendering::V2Json)).clone())
            }
            DocumentId::V2(DocumentEncoding::Protobuf) => {
                Some(self.v2_protobuf.get_or_init(|| self.v2(Rendering::V2Protobuf)).clone())
            }
            DocumentId::V3Index => Some(self.index.get_or_init(|| self.index()).clone()),
            DocumentId::V3(path, encoding) => match (self.foreign.get(path), encoding) {
                (Some(foreign), DocumentEncoding::Json) => Some(foreign.document().clone()),
                (Some(foreign), DocumentEncoding::Protobuf) => Some(foreign.protobuf()),
                (None, encoding) => self.scope(path).map(|(scope, piece)| match encoding {
                    DocumentEncoding::Json => piece.document(scope, &self.shared),
                    DocumentEncoding::Protobuf => piece.protobuf(scope, &self.shared),
                }),
            },
        }
    }

    /// Returns true if the document is already built, or is small enough to be built at once.
    pub fn is_ready(&self, wanted: &DocumentId) -> bool {
        match wanted {
            DocumentId::V2(DocumentEncoding::Json) => self.v2_json.get().is_some(),
            DocumentId::V2(DocumentEncoding::Protobuf) => self.v2_protobuf.get().is_some(),
            DocumentId::V3Index => self.index.get().is_some(),
            DocumentId::V3(path, encoding) => match (self.foreign.get(path), encoding) {
                (Some(_), DocumentEncoding::Json) => true,
                (Some(foreign), DocumentEncoding::Protobuf) => foreign.has_protobuf(),
                (None, encoding) => self.scope(path).is_none_or(|(_, piece)| piece.has_document(*encoding)),
            },
        }
    }

    /// All parts of the API, by path.
    fn parts(&self) -> Vec<(DocumentScope<'_>, &DocumentPart)> {
        let mut parts: Vec<(DocumentScope<'_>, &DocumentPart)> =
            SharedDefinitions::parts().into_iter().zip(&self.shared.pages).collect();
        let mut last = "";
        for fragment in &self.fragments {
            if fragment.has_group_page() && fragment.group_name() != last {
                parts.push((fragment.group_part(), &fragment.group));
                last = fragment.group_name();
            }
            parts.push((fragment.version_part(), &fragment.version));
        }
        parts
    }

    /// The part at a path.
    fn scope(&self, path: &str) -> Option<(DocumentScope<'_>, &DocumentPart)> {
        if let Some(page) =
            SharedDefinitions::parts().into_iter().zip(&self.shared.pages).find(|(scope, _)| scope.path() == path)
        {
            return Some(page);
        }
        if let Ok(place) = self.fragments.binary_search_by(|fragment| fragment.path().cmp(path)) {
            let fragment = &self.fragments[place];
            return Some((fragment.version_part(), &fragment.version));
        }
        let group = path.strip_prefix("apis/").filter(|group| !group.is_empty())?;
        let versions = format!("{path}/");
        let behind = &self.fragments[self.fragments.partition_point(|fragment| fragment.path() < &*versions)..];
        let mut of_group = behind.iter().take_while(|fragment| fragment.group_name() == group);
        of_group.find(|fragment| fragment.has_group_page()).map(|fragment| (fragment.group_part(), &fragment.group))
    }

    fn index(&self) -> Arc<Document> {
        let mut entries: Vec<_> = Vec::with_capacity(2 * self.fragments.len());
        entries.extend(self.parts().into_iter().map(|(scope, piece)| piece.entry(scope, &self.shared)));
        entries.extend(self.foreign.values().map(|foreign| foreign.entry()));
        // A line begins with the path in quotes. The quote sorts before every character that may continue a longer
        // path.
        entries.sort_by(|a, b| a.line.cmp(&b.line));
        let mut bytes = br#"{"paths":{"#.to_vec();
        join(&mut bytes, entries.iter().map(|entry| &*entry.line));
        bytes.extend_from_slice(b"}}");
        let digests: Vec<u8> = entries.iter().flat_map(|entry| entry.digest).collect();
        Arc::new(Document::hashed(bytes, document::hash(&digests)))
    }

    /// The names of custom kinds' definitions. Definitions of other servers must not replace these.
    fn custom_definitions<'d>(
        &self,
        parts: &[(DocumentScope<'d>, &DocumentPart)],
    ) -> HashMap<String, (&'d ResourceDescription, &'d CustomKind)> {
        if self.foreign_paths.is_empty() {
            return HashMap::new();
        }
        parts.iter().flat_map(|(scope, _)| scope.own_names(self.shared.schemas)).collect()
    }

    fn v2(&self, rendering: Rendering) -> Arc<Document> {
        let mut parts = self.parts();
        // All paths of a part begin with the part's own path, so sorting the parts sorts all paths.
        parts.sort_by_cached_key(|(scope, _)| format!("{}/", scope.path()));
        let mut definitions = ForeignDefinitions::default();
        let custom = self.custom_definitions(&parts);
        let own = |name: &str| {
            let of_custom = || {
                let (resource, kind) = custom.get(name)?;
                let of_kind = custom::definitions(resource, kind, Dialect::V2, self.shared.schemas);
                of_kind.into_iter().find(|(known, _)| known == name).map(|(_, definition)| definition)
            };
            own_definition(&self.shared, name).or_else(of_custom)
        };
        let mut foreign = self.foreign_paths.iter().peekable();
        let (mut paths, mut shared, mut own_definitions) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        for (scope, piece) in parts {
            let place = format!("{}/", scope.path());
            while let Some((_, part)) = foreign.next_if(|(path, _)| **path < place) {
                let names = definitions.take(part, &own);
                v2::join_paths(&mut paths, &part.rendered(&names, rendering), rendering);
            }
            // Parts are unpacked one at a time, so that only the output is held in memory.
            let addition = piece.addition(scope, &self.shared, rendering);
            v2::join_paths(&mut paths, &addition.paths, rendering);
            shared.extend(addition.shared_definitions.iter().copied());
            own_definitions.extend(addition.own_definitions.iter().cloned());
        }
        for (_, part) in foreign {
            let names = definitions.take(part, &own);
            v2::join_paths(&mut paths, &part.rendered(&names, rendering), rendering);
        }
        shared.extend(needed(definitions.shared(), self.shared.schemas));
        own_definitions.extend(definitions.rendered(rendering));
        let shared = shared.into_iter().map(|name| (name, self.shared.definition(name, rendering)));
        let own = own_definitions.iter().map(|(name, rendered)| (&**name, &**rendered));
        let definitions: BTreeMap<&str, &[u8]> = shared.chain(own).collect();
        Arc::new(Document::new(v2::document(&self.shared, rendering, &paths, definitions.into_values())))
    }
}
