//! The aggregated form: one document for all groups, identified by the hash of its content.
//!
//! The document consists of the names of groups and the JSON of their versions, which fragments contain. The tag of a
//! small document is kube-apiserver's: the SHA-512 of the whole content. The tag of a larger document is the hash of
//! its fragments' hashes. Both depend on the content alone, so servers with equal content have equal tags.

use std::fmt::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha512};

use crate::json;
use crate::negotiate::AggregatedForm;
use crate::order::OrderedGroup;
use crate::source::{DiscoveredKind, DiscoveredResource, DiscoveredSubresource, Freshness, Text, VersionSource};

/// The content size up to which the whole content is hashed, in bytes. The built-in resources have a quarter of it.
/// Hashing this size takes half a millisecond.
const HASHED_WHOLE_BYTES: usize = 256 * 1024;

/// A document with its tag.
#[derive(Clone, Debug)]
pub struct Document {
    /// The JSON, with a final line feed.
    pub json: Bytes,
    /// The value of the `ETag` header without quotes. It is the same for all forms and encodings of equal content.
    pub etag: String,
    compressed: OnceLock<Bytes>,
}

impl Document {
    /// The JSON compressed by `compress`, which is called only the first time.
    pub fn compressed(&self, compress: impl FnOnce(&[u8]) -> Bytes) -> Bytes {
        self.compressed.get_or_init(|| compress(&self.json)).clone()
    }
}

/// The documents of some groups in both forms, each built on demand.
#[derive(Debug, Default)]
pub(crate) struct Aggregated {
    /// The list without a kind, and its tag.
    content: OnceLock<(Vec<u8>, String)>,
    forms: [OnceLock<Document>; 2],
}

impl Aggregated {
    /// Returns true if a form exists, and its compressed form if `compressed` is set.
    pub(crate) fn is_ready(&self, form: AggregatedForm, compressed: bool) -> bool {
        self.forms[form.index()].get().is_some_and(|made| !compressed || made.compressed.get().is_some())
    }

    /// Returns true if the content exists.
    pub(crate) fn is_made(&self) -> bool {
        self.content.get().is_some()
    }

    /// The document of `groups`, which must return equal groups in each call.
    pub(crate) fn document<'g, G>(&self, form: AggregatedForm, groups: impl Fn() -> G) -> &Document
    where
        G: Iterator<Item = &'g OrderedGroup>,
    {
        self.forms[form.index()].get_or_init(|| {
            let (content, etag) = self.content.get_or_init(|| {
                let content = list(groups());
                // As upstream, the hash does not include kind and version.
                let is_small = content.len() <= HASHED_WHOLE_BYTES;
                let digest = if is_small { Sha512::digest(&content) } else { digest_of_digests(groups()) };
                (content, upper_hex(&digest))
            });
            Document { json: with_kind(form, content), etag: etag.clone(), compressed: OnceLock::new() }
        })
    }
}

/// The entry of a source in the `versions` of its group.
pub(crate) fn version(source: &VersionSource) -> Vec<u8> {
    json::to_vec(&Version {
        version: &source.version,
        resources: source.resources.iter().map(resource).collect(),
        freshness: match source.freshness {
            Freshness::Current => "Current",
            Freshness::Stale => "Stale",
        },
    })
}

/// The list of groups without a kind.
fn list<'g>(groups: impl Iterator<Item = &'g OrderedGroup>) -> Vec<u8> {
    let mut out = br#"{"metadata":{},"items":["#.to_vec();
    for (position, group) in groups.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"metadata":{"#);
        if !group.name().is_empty() {
            out.extend_from_slice(br#""name":"#);
            out.extend_from_slice(&json::to_vec(&group.name()));
        }
        out.extend_from_slice(br#"},"versions":["#);
        json::join(&mut out, group.versions.iter().map(|version| version.aggregated()));
        out.extend_from_slice(b"]}");
    }
    out.extend_from_slice(b"]}");
    out
}

/// The hash of names and versions in order, each version by its hash.
fn digest_of_digests<'g>(groups: impl Iterator<Item = &'g OrderedGroup>) -> sha2::digest::Output<Sha512> {
    let mut hash = Sha512::new();
    for group in groups {
        for number in [group.name().len(), group.versions.len()] {
            hash.update((number as u64).to_be_bytes());
        }
        hash.update(group.name());
        group.versions.iter().for_each(|version| hash.update(version.digest()));
    }
    hash.finalize()
}

/// The content with `kind` and `apiVersion` before its first field.
fn with_kind(form: AggregatedForm, content: &[u8]) -> Bytes {
    let head = format!("{{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"{}\",", form.api_version());
    [head.as_bytes(), &content[1..], b"\n"].concat().into()
}

fn upper_hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(2 * digest.len()), |mut hex, byte| {
        write!(hex, "{byte:02X}").expect("a string can be written to");
        hex
    })
}

#[derive(Serialize)]
struct Version<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<Resource<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    resource: &'a str,
    response_kind: Kind<'a>,
    scope: &'a str,
    singular_resource: &'a str,
    verbs: Verbs<'a>,
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    short_names: &'a [Text],
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    categories: &'a [Text],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Subresource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subresource<'a> {
    subresource: &'a str,
    response_kind: Kind<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted_types: Vec<Kind<'a>>,
    verbs: Verbs<'a>,
}

/// The verbs of a resource. Upstream shows an omitted list as null.
type Verbs<'a> = Option<&'a [Text]>;

/// A kind in the document. It is always written, because old clients fail if it is missing or null.
#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

fn resource(resource: &DiscoveredResource) -> Resource<'_> {
    Resource {
        resource: &resource.plural,
        response_kind: kind(&resource.kind),
        scope: &resource.scope,
        singular_resource: &resource.singular,
        verbs: verbs(&resource.verbs),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: resource.subresources.iter().map(subresource).collect(),
    }
}

fn subresource(subresource: &DiscoveredSubresource) -> Subresource<'_> {
    Subresource {
        subresource: &subresource.name,
        response_kind: kind(&subresource.kind),
        accepted_types: subresource.accepted.iter().map(kind).collect(),
        verbs: verbs(&subresource.verbs),
    }
}

fn verbs(verbs: &[Text]) -> Verbs<'_> {
    (!verbs.is_empty()).then_some(verbs)
}

fn kind(kind: &DiscoveredKind) -> Kind<'_> {
    Kind { group: &kind.group, version: &kind.version, kind: &kind.kind }
}
