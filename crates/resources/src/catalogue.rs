//! The catalogue of the built-in resources: all groups, and the tables by which a resource is found.
//!
//! It is made of the declarations once, and is read where a server is composed. What answers requests asks the surface
//! instead, which knows the resources of others too.

use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;

use crate::collection::Collection;
use crate::declare::GroupDeclaration;
use crate::group::Group;
use crate::groups::GROUPS;
use crate::resource::{Resource, ServedVersion, Text};

/// All built-in groups with their resources: what a server serves before anything else is added while it runs.
#[derive(Debug)]
pub struct Catalogue {
    groups: Vec<Arc<Group>>,
    by_plural: HashMap<Text, HashMap<Text, Arc<Resource>>>,
    collections: Vec<Arc<Collection>>,
}

impl Catalogue {
    /// The built-in resources. The tables are made at the first call, in some microseconds.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
        BUILTIN.get_or_init(|| Self::new(GROUPS.iter().map(GroupDeclaration::group).map(Arc::new).collect()))
    }

    /// All groups, in the order of discovery; the core group is the first.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// A group by name, empty for the core group.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// All resources, by group and plural name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.resources)
    }

    /// The resource of a path's group, version and plural name.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<(&Arc<Resource>, &Arc<ServedVersion>)> {
        let resource = self.resource(group, plural)?;
        Some((resource, resource.version(version)?))
    }

    /// A resource in whatever version.
    pub fn resource(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural.get(group)?.get(plural)
    }

    /// The resource whose objects are of a kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.group(group)?.resources.iter().find(|resource| resource.kind == kind)
    }

    /// What is stored: each prefix once, in the order of the first resource of each.
    pub fn collections(&self) -> &[Arc<Collection>] {
        &self.collections
    }

    /// The collection in which a resource's objects are stored; `None` when they are not stored.
    pub fn collection_of(&self, resource: &Resource) -> Option<&Arc<Collection>> {
        let prefix = resource.storage_prefix()?;
        self.collections.iter().find(|collection| collection.prefix == *prefix)
    }

    fn new(groups: Vec<Arc<Group>>) -> Self {
        let mut by_plural: HashMap<Text, HashMap<Text, Arc<Resource>>> = HashMap::new();
        for resource in groups.iter().flat_map(|group| &group.resources) {
            by_plural.entry(resource.group.clone()).or_default().insert(resource.plural.clone(), resource.clone());
        }
        let resources = groups.iter().flat_map(|group| &group.resources);
        let collections = Collection::all(resources).into_iter().map(Arc::new).collect();
        Self { groups, by_plural, collections }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use keelson_meta::names::NameRule;

    use super::*;
    use crate::resource::Verb;

    #[test]
    fn resources_and_versions_stand_in_the_order_of_discovery() {
        let groups = Catalogue::builtin().groups();
        assert_eq!(groups[0].name, "", "the core group is first");
        assert!(groups[1..].is_sorted_by_key(|group| (std::cmp::Reverse(group.priority), group.name.clone())));
        for group in groups {
            assert!(group.versions.is_sorted_by_key(|version| std::cmp::Reverse(version.priority)), "{}", group.name);
            assert!(group.resources.is_sorted_by_key(|resource| resource.plural.clone()), "{}", group.name);
        }
    }

    #[test]
    fn a_resource_belongs_to_its_group_and_is_served_in_its_versions() {
        for group in Catalogue::builtin().groups() {
            for resource in &group.resources {
                assert_eq!(resource.group, group.name, "{}", resource.plural);
                assert!(!resource.versions.is_empty(), "{}", resource.plural);
                assert!(resource.versions.iter().all(|version| group.serves(&version.name)), "{}", resource.plural);
            }
            for version in &group.versions {
                let is_there = |resource: &Arc<Resource>| resource.version(&version.name).is_some();
                assert!(group.resources.iter().any(is_there), "{}/{}", group.name, version.name);
            }
        }
    }

    #[test]
    fn names_follow_from_kinds() {
        for resource in Catalogue::builtin().resources() {
            assert_eq!(resource.singular, resource.kind.to_lowercase());
            assert_eq!(resource.plural, resource.plural.to_lowercase());
        }
    }

    #[test]
    fn verbs_and_subresources_are_in_alphabetical_order() {
        for resource in Catalogue::builtin().resources() {
            for version in &resource.versions {
                assert!(version.verbs.is_sorted_by_key(|verb| verb.as_str()), "{}", resource.plural);
                assert!(version.subresources.is_sorted_by_key(|part| part.name.clone()), "{}", resource.plural);
                for part in &version.subresources {
                    assert!(part.verbs.is_sorted_by_key(|verb| verb.as_str()), "{}/{}", resource.plural, part.name);
                }
            }
        }
    }

    #[test]
    fn what_can_be_watched_is_stored_and_nothing_else() {
        for resource in Catalogue::builtin().resources() {
            let watched = resource.versions.iter().any(|version| version.allows(Verb::Watch));
            assert_eq!(watched, resource.is_persisted(), "{}", resource.plural);
        }
    }

    #[test]
    fn stored_forms_are_versions_that_are_served() {
        let catalogue = Catalogue::builtin();
        for resource in catalogue.resources() {
            if let Some(stored) = resource.default_storage_kind() {
                let owner =
                    catalogue.by_kind(&stored.group, &stored.kind).expect("the stored kind is in the catalogue");
                assert!(owner.version(&stored.version).is_some(), "{stored:?}");
            }
        }
    }

    #[test]
    fn prefixes_are_where_kubernetes_puts_them() {
        for collection in Catalogue::builtin().collections() {
            let resource = &collection.resources[0];
            let place = match (&*resource.group, &*resource.plural) {
                ("", "nodes") => "minions",
                ("", "services") => "services/specs",
                ("", "endpoints") => "services/endpoints",
                ("", "replicationcontrollers") => "controllers",
                ("networking.k8s.io", "ingresses") => "ingress",
                ("apiextensions.k8s.io", plural) => &format!("apiextensions.k8s.io/{plural}"),
                ("apiregistration.k8s.io", plural) => &format!("apiregistration.k8s.io/{plural}"),
                // Whatever the group: deployments lie beside pods.
                (_, plural) => plural,
            };
            assert_eq!(collection.key_prefix(), format!("/registry/{place}/"));
        }
    }

    #[test]
    fn no_collection_lies_within_another() {
        let prefixes: Vec<String> = Catalogue::builtin().collections().iter().map(|it| it.key_prefix()).collect();
        for (index, prefix) in prefixes.iter().enumerate() {
            let others = prefixes.iter().enumerate().filter(|(other, _)| *other != index);
            assert!(others.map(|(_, other)| other).all(|other| !other.starts_with(prefix.as_str())), "{prefix}");
        }
    }

    #[test]
    fn only_events_share_a_collection() {
        for collection in Catalogue::builtin().collections() {
            let groups: Vec<&str> = collection.resources.iter().map(|resource| &*resource.group).collect();
            match &*collection.prefix {
                "events" => assert_eq!(groups, ["", "events.k8s.io"]),
                _ => assert_eq!(groups.len(), 1, "{}", collection.prefix),
            }
            assert!(collection.resources.iter().all(|resource| resource.is_namespaced() == collection.namespaced));
            assert_eq!(collection.paths.iter().collect::<HashSet<_>>().len(), collection.paths.len());
        }
    }

    #[test]
    fn pods_are_dispatched_by_node() {
        let catalogue = Catalogue::builtin();
        let pods = catalogue.collection_of(catalogue.resource("", "pods").expect("pods")).expect("stored");
        assert_eq!(pods.dispatch.map(|index| &*pods.paths[index]), Some("spec.nodeName"));
    }

    #[test]
    fn lookups_find_what_is_served_and_nothing_else() {
        let catalogue = Catalogue::builtin();
        let (resource, version) = catalogue.lookup("apps", "v1", "deployments").expect("deployments");
        assert_eq!((&*resource.kind, &*version.name), ("Deployment", "v1"));
        assert!(version.has_status());
        assert!(version.subresource("scale").is_some());
        for (group, version, plural) in
            [("apps", "v2", "deployments"), ("", "v1", "deployments"), ("apps", "v1", "pods")]
        {
            assert!(catalogue.lookup(group, version, plural).is_none(), "{group}/{version} {plural}");
        }
        let version = |name| catalogue.lookup("resource.k8s.io", name, "devicetaintrules").is_some();
        assert!(version("v1alpha3") && version("v1beta2") && !version("v1"));
        assert_eq!(
            catalogue.by_kind("autoscaling", "HorizontalPodAutoscaler").map(|r| &*r.versions[0].name),
            Some("v2")
        );
    }

    #[test]
    fn names_are_checked_by_the_rule_of_their_kind() {
        let rule = |group, plural| Catalogue::builtin().resource(group, plural).expect("a built-in resource").name_rule;
        assert_eq!(rule("", "configmaps"), NameRule::DnsSubdomain);
        assert_eq!(rule("", "namespaces"), NameRule::DnsLabel);
        assert_eq!(rule("rbac.authorization.k8s.io", "clusterroles"), NameRule::PathSegment);
    }
}
