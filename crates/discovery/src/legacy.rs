//! The legacy form: a document for the list of groups, one for each group, and one for each group version.
//!
//! The first two are assembled from entries of fragments, the third belongs to one fragment.

use serde::Serialize;

use crate::json;
use crate::order::OrderedGroup;
use crate::source::{DiscoveredKind, DiscoveredResource, Text, VersionSource};

/// `/api`: the versions of the core group, and this server's address for external clients.
pub(crate) fn api_versions(core: Option<&OrderedGroup>, server_address: &str) -> Vec<u8> {
    line(&ApiVersions {
        kind: "APIVersions",
        versions: core.iter().flat_map(|group| &group.versions).map(|version| &*version.source().version).collect(),
        server_address_by_client_cidrs: [ServerAddress { client_cidr: "0.0.0.0/0", server_address }],
    })
}

/// `/apis`: all groups except the core group.
pub(crate) fn group_list<'g>(groups: impl Iterator<Item = &'g OrderedGroup>) -> Vec<u8> {
    let mut out = br#"{"kind":"APIGroupList","apiVersion":"v1","groups":["#.to_vec();
    for (position, group) in groups.enumerate() {
        out.extend_from_slice(if position > 0 { &b",{"[..] } else { &b"{"[..] });
        write_group(&mut out, group);
    }
    out.extend_from_slice(b"]}\n");
    out
}

/// `/apis/<group>`
pub(crate) fn group(group: &OrderedGroup) -> Vec<u8> {
    let mut out = br#"{"kind":"APIGroup","apiVersion":"v1","#.to_vec();
    write_group(&mut out, group);
    out.push(b'\n');
    out
}

/// Appends the members of a group and the end of its object. The first version is the preferred one.
fn write_group(out: &mut Vec<u8>, group: &OrderedGroup) {
    out.extend_from_slice(br#""name":"#);
    out.extend_from_slice(&json::to_vec(&group.name()));
    out.extend_from_slice(br#","versions":["#);
    json::join(out, group.versions.iter().map(|version| version.entry()));
    out.extend_from_slice(br#"],"preferredVersion":"#);
    out.extend_from_slice(group.versions.first().map_or(&b"null"[..], |preferred| preferred.entry()));
    out.push(b'}');
}

/// The member of a group's `versions` for a source.
pub(crate) fn version_entry(source: &VersionSource) -> Vec<u8> {
    json::to_vec(&VersionEntry {
        group_version: group_version(&source.group, &source.version),
        version: &source.version,
    })
}

/// `/apis/<group>/<version>`, or `/api/<version>`, in which upstream omits `apiVersion`.
pub(crate) fn resources(source: &VersionSource) -> Vec<u8> {
    line(&ResourceList {
        kind: "APIResourceList",
        api_version: if source.group.is_empty() { "" } else { "v1" },
        group_version: group_version(&source.group, &source.version),
        resources: source.resources.iter().flat_map(|resource| with_subresources(source, resource)).collect(),
    })
}

fn line(document: &impl Serialize) -> Vec<u8> {
    let mut bytes = json::to_vec(document);
    bytes.push(b'\n');
    bytes
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiVersions<'a> {
    kind: &'static str,
    versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_address_by_client_cidrs: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    server_address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionEntry<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    group_version: String,
    resources: Vec<Resource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: &'a [Text],
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    short_names: &'a [Text],
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    categories: &'a [Text],
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<&'a str>,
}

/// Entries for a resource and its subresources. As upstream, a kind of the path's own group version is listed without
/// group and version.
fn with_subresources<'s>(
    source: &'s VersionSource,
    resource: &'s DiscoveredResource,
) -> impl Iterator<Item = Resource<'s>> {
    let elsewhere = |kind: &'s DiscoveredKind| {
        let own = kind.group == source.group && kind.version == source.version;
        if own { ("", "") } else { (&*kind.group, &*kind.version) }
    };
    let (group, version) = elsewhere(&resource.kind);
    let own = Resource {
        name: resource.plural.to_string(),
        singular_name: &resource.singular,
        namespaced: resource.is_namespaced(),
        group,
        version,
        kind: &resource.kind.kind,
        verbs: &resource.verbs,
        short_names: &resource.short_names,
        categories: &resource.categories,
        storage_version_hash: resource.storage_version_hash.as_deref(),
    };
    let parts = resource.subresources.iter().map(move |part| {
        let (group, version) = elsewhere(&part.kind);
        Resource {
            name: format!("{}/{}", resource.plural, part.name),
            singular_name: "",
            namespaced: resource.is_namespaced(),
            group,
            version,
            kind: &part.kind.kind,
            verbs: &part.verbs,
            short_names: &[],
            categories: &[],
            storage_version_hash: None,
        }
    });
    std::iter::once(own).chain(parts)
}
