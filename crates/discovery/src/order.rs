//! The order of groups and versions, and the precedence of sources.
//!
//! Groups are sorted by priority, then by name. Versions are sorted by priority, then by Kubernetes' order of version
//! names. The result depends only on the set of fragments, never on their order.

use std::cmp::Reverse;
use std::sync::Arc;

use keelson_meta::version_names;

use crate::fragment::Fragment;

/// One group with its sorted versions, at least one.
#[derive(Clone, Debug)]
pub(crate) struct OrderedGroup {
    pub(crate) versions: Vec<Arc<Fragment>>,
}

impl OrderedGroup {
    pub(crate) fn name(&self) -> &str {
        self.versions.first().map_or("", |version| &version.source().group)
    }

    fn priority(&self) -> u32 {
        self.versions.iter().map(|version| version.source().group_priority).max().unwrap_or(0)
    }
}

/// Groups fragments and sorts the groups by name. Each group version appears once, from the source with precedence.
pub(crate) fn arrange(fragments: &[Arc<Fragment>]) -> Vec<OrderedGroup> {
    let mut sorted: Vec<&Arc<Fragment>> = fragments.iter().collect();
    // The fragments are mostly sorted already, since a change replaces only one of them.
    sorted.sort_by(|a, b| {
        let (left, right) = (a.source(), b.source());
        left.group
            .cmp(&right.group)
            .then_with(|| left.version.cmp(&right.version))
            .then_with(|| left.order.cmp(&right.order))
            .then_with(|| a.digest().cmp(b.digest()))
    });
    sorted.dedup_by(|later, earlier| is_same_version(later, earlier));
    sorted.chunk_by(|a, b| a.source().group == b.source().group).map(group).collect()
}

fn is_same_version(a: &Fragment, b: &Fragment) -> bool {
    (&a.source().group, &a.source().version) == (&b.source().group, &b.source().version)
}

/// The indexes of groups in the order of discovery.
pub(crate) fn shown(groups: &[OrderedGroup]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..groups.len()).collect();
    // Groups are sorted by name, and the sort is stable.
    places.sort_by_key(|place| Reverse(groups[*place].priority()));
    places
}

fn group(versions: &[&Arc<Fragment>]) -> OrderedGroup {
    let mut versions: Vec<Arc<Fragment>> = versions.iter().copied().cloned().collect();
    versions.sort_by(|a, b| {
        let (a, b) = (a.source(), b.source());
        b.version_priority.cmp(&a.version_priority).then_with(|| version_names::compare(&a.version, &b.version))
    });
    OrderedGroup { versions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Freshness, SourceOrder, VersionSource};

    fn source(group: &str, version: &str, priorities: (u32, u32), order: SourceOrder) -> Arc<Fragment> {
        Fragment::new(VersionSource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            group_priority: priorities.0,
            version_priority: priorities.1,
            order,
            freshness: Freshness::Current,
            resources: Vec::new(),
        })
    }

    fn check(sources: &[Arc<Fragment>], expected: &[&str]) {
        let mut given = sources.to_vec();
        for _ in 0..given.len() {
            given.rotate_left(1);
            let arranged = arrange(&given);
            let versions = shown(&arranged).into_iter().flat_map(|place| &arranged[place].versions);
            let names: Vec<String> =
                versions.map(|version| format!("{}/{}", version.source().group, version.source().version)).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn groups_are_sorted_by_highest_priority_and_name() {
        let sources = [
            source("b.example.org", "v1", (1000, 100), SourceOrder::Custom),
            source("c.example.org", "v1", (1000, 15), SourceOrder::Aggregated),
            source("c.example.org", "v2", (5000, 15), SourceOrder::Aggregated),
            source("a.example.org", "v1", (1000, 100), SourceOrder::Custom),
        ];
        check(&sources, &["c.example.org/v2", "c.example.org/v1", "a.example.org/v1", "b.example.org/v1"]);
    }

    #[test]
    fn versions_of_equal_priority_are_sorted_by_maturity_and_number() {
        let names = ["v1alpha1", "zeta", "v1", "v10", "v2beta1", "v2", "v1beta11", "v1beta2", "alpha", "v01"];
        let sources = names.map(|name| source("g", name, (1000, 100), SourceOrder::Custom));
        let expected = [
            "g/v10",
            "g/v2",
            "g/v1",
            "g/v2beta1",
            "g/v1beta11",
            "g/v1beta2",
            "g/v1alpha1",
            "g/alpha",
            "g/v01",
            "g/zeta",
        ];
        check(&sources, &expected);
    }

    #[test]
    fn an_aggregated_version_replaces_the_custom_resources_of_that_version() {
        let sources = [
            source("g", "v1", (1, 1), SourceOrder::Custom),
            source("g", "v1", (2, 2), SourceOrder::Aggregated),
            source("g", "v1", (3, 3), SourceOrder::BuiltIn),
        ];
        check(&sources, &["g/v1"]);
        let arranged = arrange(&sources);
        assert!(Arc::ptr_eq(&arranged[0].versions[0], &sources[1]));
    }
}
