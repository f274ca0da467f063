//! The aggregated form: one document for all groups, named by the hash of its content.

use std::fmt::Write;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha512};

use crate::json;
use crate::negotiate::AggregatedForm;
use crate::order::OrderedGroup;
use crate::source::{DiscoveredKind, DiscoveredResource, DiscoveredSubresource, Freshness, Text, VersionSource};

/// A document with the tag by which clients keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The JSON, with a line break at its end.
    pub json: Bytes,
    /// The value of the `ETag` header without its quotes: the same for every form and encoding of equal content.
    pub etag: String,
}

/// The documents of some groups, in the order of `AggregatedForm::ALL`.
pub(crate) fn render(groups: &[OrderedGroup]) -> [Document; 2] {
    let list = List { metadata: Metadata { name: "" }, items: groups.iter().map(group).collect() };
    // Upstream hashes the list before it is given a kind and a version; so do we, to have its tags.
    let content = json::to_vec(&list);
    let etag = upper_hex(&Sha512::digest(&content));
    AggregatedForm::ALL.map(|form| Document { json: with_kind(form, &content), etag: etag.clone() })
}

/// The content with `kind` and `apiVersion` put before its first field.
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
struct List<'a> {
    metadata: Metadata<'a>,
    items: Vec<Group<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct Group<'a> {
    metadata: Metadata<'a>,
    versions: Vec<Version<'a>>,
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
    scope: &'static str,
    singular_resource: &'a str,
    verbs: &'a [Text],
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
    verbs: &'a [Text],
}

/// Never left out nor null: old clients break without it.
#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

fn group(group: &OrderedGroup) -> Group<'_> {
    Group {
        metadata: Metadata { name: &group.name },
        versions: group.versions.iter().map(|source| version(source)).collect(),
    }
}

fn version(source: &VersionSource) -> Version<'_> {
    Version {
        version: &source.version,
        resources: source.resources.iter().map(resource).collect(),
        freshness: match source.freshness {
            Freshness::Current => "Current",
            Freshness::Stale => "Stale",
        },
    }
}

fn resource(resource: &DiscoveredResource) -> Resource<'_> {
    Resource {
        resource: &resource.plural,
        response_kind: kind(&resource.kind),
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &resource.singular,
        verbs: &resource.verbs,
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: resource.subresources.iter().map(subresource).collect(),
    }
}

fn subresource(subresource: &DiscoveredSubresource) -> Subresource<'_> {
    Subresource { subresource: &subresource.name, response_kind: kind(&subresource.kind), verbs: &subresource.verbs }
}

fn kind(kind: &DiscoveredKind) -> Kind<'_> {
    Kind { group: &kind.group, version: &kind.version, kind: &kind.kind }
}
