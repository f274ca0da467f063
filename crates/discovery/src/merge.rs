//! Merges the fragments of all servers on one store, which may differ in release or settings. The result has one
//! fragment for each group version that is built in on any of them.
//!
//! Custom resources and aggregated APIs are in the store, so every server lists them itself, and they are not merged.
//! Priorities of groups and versions are parameters, since other servers' documents lack them. The result depends only
//! on the set of served resources, so all servers compute the same.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::fragment::Fragment;
use crate::source::{DiscoveredResource, DiscoveredSubresource, Freshness, SourceOrder, Text, VersionSource};

/// A version of a group in another server's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVersion {
    /// The group. Empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The freshness of its resources.
    pub freshness: Freshness,
    /// Its resources, in displayed order.
    pub resources: Vec<DiscoveredResource>,
}

/// The priorities of a version: that of its group and its own within the group, higher first.
type Priorities = (u32, u32);

/// The built-in resources of other servers on the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerDocuments {
    /// The name of this server. If servers differ, the first one by name has precedence.
    pub own: String,
    /// The versions of each other server, by server name.
    pub versions: BTreeMap<String, Arc<Vec<ServedVersion>>>,
    /// The priorities of versions that this server does not serve, by group and version.
    pub priorities: HashMap<(String, String), Priorities>,
}

/// The resources of one version on a server.
type VersionResources<'s> = (&'s str, &'s [DiscoveredResource]);

impl PeerDocuments {
    /// Returns the merged fragments. `None` if other servers add nothing.
    ///
    /// Cost: a comparison of all servers' resources in each version, and the rendering of versions with differences.
    pub fn merge(&self, fragments: &[Arc<Fragment>]) -> Option<Vec<Arc<Fragment>>> {
        let mut elsewhere: BTreeMap<(&str, &str), Vec<VersionResources<'_>>> = BTreeMap::new();
        for (server, versions) in &self.versions {
            for version in versions.iter().filter(|version| version.freshness == Freshness::Current) {
                let shown = elsewhere.entry((&version.group, &version.version)).or_default();
                shown.push((server, &version.resources));
            }
        }
        let mut merged = Vec::with_capacity(fragments.len());
        let mut adds = false;
        for fragment in fragments {
            let source = fragment.source();
            let mut shown = elsewhere.remove(&(&*source.group, &*source.version)).unwrap_or_default();
            shown.retain(|(_, resources)| !are_shown_alike(resources, &source.resources));
            if source.order != SourceOrder::BuiltIn || shown.is_empty() {
                merged.push(fragment.clone());
                continue;
            }
            shown.push((&self.own, &source.resources));
            merged.push(Fragment::new(VersionSource { resources: union(shown), ..source.clone() }));
            adds = true;
        }
        for ((group, version), shown) in elsewhere {
            let places = self.priorities.get(&(group.to_owned(), version.to_owned())).copied().unwrap_or_default();
            merged.push(Fragment::new(VersionSource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                group_priority: places.0,
                version_priority: places.1,
                order: SourceOrder::BuiltIn,
                freshness: Freshness::Current,
                resources: union(shown),
            }));
            adds = true;
        }
        adds.then_some(merged)
    }
}

fn are_shown_alike(one: &[DiscoveredResource], other: &[DiscoveredResource]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_shown_alike(other))
}

/// The union of the resources of all servers, by name.
fn union(mut shown: Vec<VersionResources<'_>>) -> Vec<DiscoveredResource> {
    shown.sort_by_key(|(server, _)| *server);
    let mut resources: BTreeMap<&str, DiscoveredResource> = BTreeMap::new();
    for resource in shown.into_iter().flat_map(|(_, resources)| resources) {
        match resources.get_mut(&*resource.plural) {
            Some(known) => add(known, resource),
            None => drop(resources.insert(&resource.plural, resource.clone())),
        }
    }
    resources.into_values().collect()
}

/// Adds the verbs of a resource on another server. Also its storage version, which only this server's own description
/// contains.
fn add(known: &mut DiscoveredResource, other: &DiscoveredResource) {
    if known.storage_version_hash.is_none() {
        known.storage_version_hash.clone_from(&other.storage_version_hash);
    }
    if known.is_shown_alike(other) {
        return;
    }
    add_verbs(&mut known.verbs, &other.verbs);
    for subresource in &other.subresources {
        match known.subresources.iter_mut().find(|known| known.name == subresource.name) {
            Some(DiscoveredSubresource { verbs, .. }) => add_verbs(verbs, &subresource.verbs),
            None => known.subresources.push(subresource.clone()),
        }
    }
    known.subresources.sort_by(|a, b| a.name.cmp(&b.name));
}

fn add_verbs(verbs: &mut Vec<Text>, more: &[Text]) {
    verbs.extend_from_slice(more);
    verbs.sort();
    verbs.dedup();
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{AggregatedForm, Documents, served_versions};

    /// The built-in versions without those of a group.
    fn without(group: &str) -> Vec<Arc<Fragment>> {
        crate::fragments(keelson_builtin::catalogue(), |_, _| true)
            .into_iter()
            .filter(|it| it.source().group != group)
            .collect()
    }

    /// The published versions of a server with these fragments.
    fn published(fragments: &[Arc<Fragment>]) -> Vec<ServedVersion> {
        let documents = Documents::assemble(fragments);
        let both = [documents.aggregated_core(AggregatedForm::V2), documents.aggregated_groups(AggregatedForm::V2)];
        let read = |json: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(json).unwrap();
            served_versions(&keelson_meta::json::to_value(&value).unwrap()).unwrap()
        };
        both.into_iter().flat_map(|document| read(&document.json)).collect()
    }

    /// The merged documents of a server, if other servers add anything.
    fn beside(own: &str, fragments: &[Arc<Fragment>], others: &[(&str, Vec<ServedVersion>)]) -> Option<Documents> {
        let places = crate::fragments(keelson_builtin::catalogue(), |_, _| true);
        let priorities = places.iter().map(|it| {
            let source = it.source();
            let name = (source.group.to_string(), source.version.to_string());
            (name, (source.group_priority, source.version_priority))
        });
        let peers = PeerDocuments {
            own: own.to_owned(),
            versions: others.iter().map(|(name, versions)| ((*name).to_owned(), Arc::new(versions.clone()))).collect(),
            priorities: priorities.collect(),
        };
        peers.merge(fragments).map(|merged| Documents::assemble(&merged))
    }

    fn tags(documents: &Documents) -> [String; 2] {
        [documents.aggregated_core(AggregatedForm::V2), documents.aggregated_groups(AggregatedForm::V2)]
            .map(|document| document.etag.clone())
    }

    #[test]
    fn merged_documents_are_equal_on_all_servers() {
        let (a, b, whole) = (without("batch"), without("apps"), without("none"));
        let on_a = beside("a", &a, &[("b", published(&b))]).unwrap();
        let on_b = beside("b", &b, &[("a", published(&a))]).unwrap();
        assert_eq!(tags(&on_a), tags(&on_b));
        // Priorities equal those of one server with all groups.
        assert_eq!(tags(&on_a), tags(&Documents::assemble(&whole)));
        assert!(on_a.group("batch").is_some() && Documents::assemble(&a).group("batch").is_none());
        assert!(beside("a", &whole, &[("b", published(&whole))]).is_none(), "nothing is added");
    }

    #[test]
    fn verbs_of_a_resource_are_merged_over_servers() {
        let whole = without("none");
        let mut less = published(&whole);
        let jobs = less.iter_mut().find(|it| it.group == "batch").unwrap();
        jobs.resources.retain(|resource| resource.plural == "jobs");
        jobs.resources[0].verbs.retain(|verb| verb != "delete");
        jobs.resources[0].subresources.clear();
        let merged = beside("a", &whole, &[("b", less)]).unwrap();
        assert_eq!(tags(&merged), tags(&Documents::assemble(&whole)));
    }

    #[test]
    fn other_differences_take_the_first_server_by_name() {
        let whole = without("none");
        let renamed = |name: &str| {
            let mut versions = published(&whole);
            let batch = versions.iter_mut().find(|it| it.group == "batch").unwrap();
            batch.resources[0].singular = Text::Owned(name.to_owned());
            versions
        };
        let on_b = beside("b", &whole, &[("a", renamed("first")), ("c", renamed("third"))]).unwrap();
        let text = String::from_utf8(on_b.aggregated_groups(AggregatedForm::V2).json.to_vec()).unwrap();
        assert!(text.contains("\"first\"") && !text.contains("\"third\""));
    }
}
