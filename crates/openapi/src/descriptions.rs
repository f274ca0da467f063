//! All documents of one set of group versions: put together once for each change, then shared by all requests.
//!
//! Putting them together is sorting. A document is made when it is first asked for, of what its fragments hold, and then kept as
//! bytes. Making the document of version 2 takes longer than a request may hold a thread: whoever serves it asks
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
use crate::piece::Piece;
use crate::schema::Dialect;
use crate::shared::{Rendering, SharedDefinitions};
use crate::v2;

/// The form of a document. The index of version 3 is only given as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentEncoding {
    /// JSON.
    Json,
    /// gnostic's protobuf messages, which client-go asks for.
    Protobuf,
}

/// Names one of the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it, in version 2.
    V2(DocumentEncoding),
    /// Where the documents of version 3 are.
    V3Index,
    /// The document of a part of the API in version 3, by a path such as `api/v1` or `apis/apps/v1`.
    V3(String, DocumentEncoding),
}

/// The documents of one set of fragments. Immutable; a change of the set makes a new one.
#[derive(Debug)]
pub struct Descriptions {
    shared: Arc<SharedDefinitions>,
    /// By path, each path once.
    fragments: Vec<Arc<Fragment>>,
    /// What other servers describe, by path.
    foreign: BTreeMap<String, Arc<ForeignDocument>>,
    /// The same in version 2.
    foreign_paths: BTreeMap<String, Arc<ForeignPaths>>,
    index: OnceLock<Arc<Document>>,
    v2_json: OnceLock<Arc<Document>>,
    v2_protobuf: OnceLock<Arc<Document>>,
}

impl Descriptions {
    /// The documents of these fragments; the order in which they are given does not matter.
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

    /// The same with what other servers describe in version 3 and in version 2, each part of the API instead of that of the same path.
    #[must_use]
    pub fn with_foreign(
        mut self,
        documents: impl IntoIterator<Item = Arc<ForeignDocument>>,
        paths: impl IntoIterator<Item = Arc<ForeignPaths>>,
    ) -> Self {
        self.foreign = documents.into_iter().map(|document| (document.path().to_owned(), document)).collect();
        // A slash at the end, by which parts are sorted as their paths are.
        self.foreign_paths = paths.into_iter().map(|paths| (format!("{}/", paths.path()), paths)).collect();
        self.fragments.retain(|fragment| {
            !self.foreign.contains_key(fragment.path())
                && !self.foreign_paths.contains_key(&*format!("{}/", fragment.path()))
        });
        self
    }

    /// A document, which is made if nobody has asked for it before; `None` where there is no such part of the API.
    ///
    /// Cost: none for what [is ready](Self::is_ready). Version 2 is made out of all parts.
    pub fn document(&self, wanted: &Wanted) -> Option<Arc<Document>> {
        match wanted {
            Wanted::V2(DocumentEncoding::Json) => Some(self.v2_json.get_or_init(|| self.v2(Rendering::V2Json)).clone()),
            Wanted::V2(DocumentEncoding::Protobuf) => {
                Some(self.v2_protobuf.get_or_init(|| self.v2(Rendering::V2Protobuf)).clone())
            }
            Wanted::V3Index => Some(self.index.get_or_init(|| self.index()).clone()),
            Wanted::V3(path, encoding) => match (self.foreign.get(path), encoding) {
                (Some(foreign), DocumentEncoding::Json) => Some(foreign.document().clone()),
                (Some(foreign), DocumentEncoding::Protobuf) => Some(foreign.protobuf()),
                (None, encoding) => self.scope(path).map(|(scope, piece)| match encoding {
                    DocumentEncoding::Json => piece.document(scope, &self.shared),
                    DocumentEncoding::Protobuf => piece.protobuf(scope, &self.shared),
                }),
            },
        }
    }

    /// Whether a document is there already, or is so small that it is made at once.
    pub fn is_ready(&self, wanted: &Wanted) -> bool {
        match wanted {
            Wanted::V2(DocumentEncoding::Json) => self.v2_json.get().is_some(),
            Wanted::V2(DocumentEncoding::Protobuf) => self.v2_protobuf.get().is_some(),
            Wanted::V3Index => self.index.get().is_some(),
            Wanted::V3(path, encoding) => match (self.foreign.get(path), encoding) {
                (Some(_), DocumentEncoding::Json) => true,
                (Some(foreign), DocumentEncoding::Protobuf) => foreign.has_protobuf(),
                (None, encoding) => self.scope(path).is_none_or(|(_, piece)| piece.has_document(*encoding)),
            },
        }
    }

    /// All parts of the API, by path.
    fn parts(&self) -> Vec<(DocumentScope<'_>, &Piece)> {
        let mut parts: Vec<(DocumentScope<'_>, &Piece)> =
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
    fn scope(&self, path: &str) -> Option<(DocumentScope<'_>, &Piece)> {
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
        // A line begins with the path, in quotes: the quote is before any character that a longer path goes on with.
        entries.sort_by(|a, b| a.line.cmp(&b.line));
        let mut bytes = br#"{"paths":{"#.to_vec();
        join(&mut bytes, entries.iter().map(|entry| &*entry.line));
        bytes.extend_from_slice(b"}}");
        let digests: Vec<u8> = entries.iter().flat_map(|entry| entry.digest).collect();
        Arc::new(Document::hashed(bytes, document::hash(&digests)))
    }

    /// The names of the definitions of custom kinds, which those of other servers must not replace.
    fn custom_definitions<'d>(
        &self,
        parts: &[(DocumentScope<'d>, &Piece)],
    ) -> HashMap<String, (&'d ResourceDescription, &'d CustomKind)> {
        if self.foreign_paths.is_empty() {
            return HashMap::new();
        }
        parts.iter().flat_map(|(scope, _)| scope.own_names(self.shared.schemas)).collect()
    }

    fn v2(&self, rendering: Rendering) -> Arc<Document> {
        let mut parts = self.parts();
        // All paths of a part begin with its own, so that in this order of the parts all paths are in order.
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
            // Of thousands of parts no more is held than what the document is made of.
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
