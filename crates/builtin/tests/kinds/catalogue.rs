//! Tests the declarations of all groups: order, names and storage keys.
//!
//! These rules apply to all groups.

use std::collections::HashSet;
use std::sync::Arc;

use keelson_builtin::{catalogue, catalogue_of};
use keelson_meta::Release;
use keelson_meta::names::NameRule;
use keelson_resources::{Resource, Verb};

#[test]
fn resources_and_versions_are_in_discovery_order() {
    let groups = catalogue().groups();
    assert_eq!(groups[0].name, "", "the core group is first");
    assert!(groups[1..].is_sorted_by_key(|group| (std::cmp::Reverse(group.priority), group.name.clone())));
    for group in groups {
        assert!(group.versions.is_sorted_by_key(|version| std::cmp::Reverse(version.priority)), "{}", group.name);
        assert!(group.resources.is_sorted_by_key(|resource| resource.plural.clone()), "{}", group.name);
    }
}

#[test]
fn a_resource_belongs_to_its_group_and_is_served_in_its_versions() {
    for group in catalogue().groups() {
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
    for resource in catalogue().resources() {
        assert_eq!(resource.singular, resource.kind.to_lowercase());
        assert_eq!(resource.plural, resource.plural.to_lowercase());
    }
}

#[test]
fn verbs_and_subresources_are_in_alphabetical_order() {
    for resource in catalogue().resources() {
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
fn only_persisted_resources_can_be_watched() {
    for resource in catalogue().resources() {
        let watched = resource.versions.iter().any(|version| version.allows(Verb::Watch));
        assert_eq!(watched, resource.is_persisted(), "{}", resource.plural);
    }
}

#[test]
fn stored_forms_are_versions_that_are_served() {
    let catalogue = catalogue();
    for resource in catalogue.resources() {
        if let Some(stored) = resource.default_storage_kind() {
            let owner = catalogue.by_kind(&stored.group, &stored.kind).expect("the stored kind is in the catalogue");
            assert!(owner.version(&stored.version).is_some(), "{stored:?}");
        }
    }
}

#[test]
fn prefixes_are_where_kubernetes_puts_them() {
    for collection in catalogue().collections() {
        let resource = &collection.resources[0];
        let place = match (&*resource.group, &*resource.plural) {
            ("", "nodes") => "minions",
            ("", "services") => "services/specs",
            ("", "endpoints") => "services/endpoints",
            ("", "replicationcontrollers") => "controllers",
            ("networking.k8s.io", "ingresses") => "ingress",
            ("apiextensions.k8s.io", plural) => &format!("apiextensions.k8s.io/{plural}"),
            ("apiregistration.k8s.io", plural) => &format!("apiregistration.k8s.io/{plural}"),
            // Regardless of the group: deployments are stored beside pods.
            (_, plural) => plural,
        };
        assert_eq!(collection.key_prefix(), format!("/registry/{place}/"));
    }
}

#[test]
fn no_collection_lies_within_another() {
    let prefixes: Vec<String> = catalogue().collections().iter().map(|it| it.key_prefix()).collect();
    for (index, prefix) in prefixes.iter().enumerate() {
        let others = prefixes.iter().enumerate().filter(|(other, _)| *other != index);
        assert!(others.map(|(_, other)| other).all(|other| !other.starts_with(prefix.as_str())), "{prefix}");
    }
}

#[test]
fn only_events_share_a_collection() {
    for collection in catalogue().collections() {
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
    let catalogue = catalogue();
    let pods = catalogue.collection_of(catalogue.resource("", "pods").expect("pods")).expect("stored");
    assert_eq!(pods.dispatch.map(|index| &*pods.paths[index]), Some("spec.nodeName"));
}

#[test]
fn lookups_find_only_served_resources() {
    let catalogue = catalogue();
    let (resource, version) = catalogue.lookup("apps", "v1", "deployments").expect("deployments");
    assert_eq!((&*resource.kind, &*version.name), ("Deployment", "v1"));
    assert!(version.has_status());
    assert!(version.subresource("scale").is_some());
    for (group, version, plural) in [("apps", "v2", "deployments"), ("", "v1", "deployments"), ("apps", "v1", "pods")] {
        assert!(catalogue.lookup(group, version, plural).is_none(), "{group}/{version} {plural}");
    }
    let version = |release, name| catalogue_of(release).lookup("resource.k8s.io", name, "devicetaintrules").is_some();
    for release in [Release::V1_36, Release::V1_37] {
        assert!(version(release, "v1alpha3") && version(release, "v1beta2") && !version(release, "v2"));
    }
    assert!(!version(Release::V1_36, "v1") && version(Release::V1_37, "v1"));
    assert_eq!(catalogue.by_kind("autoscaling", "HorizontalPodAutoscaler").map(|r| &*r.versions[0].name), Some("v2"));
}

#[test]
fn names_are_checked_by_the_rule_of_their_kind() {
    let rule = |group, plural| catalogue().resource(group, plural).expect("a built-in resource").name_rule;
    assert_eq!(rule("", "configmaps"), NameRule::DnsSubdomain);
    assert_eq!(rule("", "namespaces"), NameRule::DnsLabel);
    assert_eq!(rule("rbac.authorization.k8s.io", "clusterroles"), NameRule::PathSegment);
}
