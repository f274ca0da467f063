//! The order of groups and versions, and which source prevails.
//!
//! Groups stand by priority, then by name; versions by priority, then in the way Kubernetes compares version names.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::source::{Text, VersionSource};

/// One group with its versions in order.
#[derive(Clone, Debug)]
pub(crate) struct OrderedGroup {
    pub(crate) name: Text,
    pub(crate) versions: Vec<Arc<VersionSource>>,
}

/// Groups the sources and puts them in the order of discovery. Each group version appears once, from the source that prevails.
pub(crate) fn arrange(sources: &[Arc<VersionSource>]) -> Vec<OrderedGroup> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, &Arc<VersionSource>>> = BTreeMap::new();
    for source in sources {
        let versions = groups.entry(&source.group).or_default();
        let prevailing = versions.entry(&source.version).or_insert(source);
        if source.order < prevailing.order {
            *prevailing = source;
        }
    }
    let mut ordered: Vec<OrderedGroup> =
        groups.into_values().filter_map(|versions| group(versions.into_values())).collect();
    // The map has them by name already, and the sort is stable.
    ordered.sort_by_key(|group| Reverse(priority(group)));
    ordered
}

fn group<'a>(versions: impl Iterator<Item = &'a Arc<VersionSource>>) -> Option<OrderedGroup> {
    let mut versions: Vec<Arc<VersionSource>> = versions.cloned().collect();
    versions.sort_by(|a, b| {
        b.version_priority.cmp(&a.version_priority).then_with(|| compare_versions(&a.version, &b.version))
    });
    let name = versions.first()?.group.clone();
    Some(OrderedGroup { name, versions })
}

fn priority(group: &OrderedGroup) -> u32 {
    group.versions.iter().map(|version| version.group_priority).max().unwrap_or(0)
}

/// Which version name comes first: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then other names in alphabetical order.
fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// How mature a version is, by the word in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Maturity {
    Alpha,
    Beta,
    Stable,
}

/// Maturity, major and minor number of a name such as `v1beta2`; `None` when it is not of that form.
fn parse_version(name: &str) -> Option<(Maturity, u64, u64)> {
    let numbers = name.strip_prefix('v')?;
    let (major, maturity, minor) = if let Some((major, minor)) = numbers.split_once("alpha") {
        (major, Maturity::Alpha, number(minor)?)
    } else if let Some((major, minor)) = numbers.split_once("beta") {
        (major, Maturity::Beta, number(minor)?)
    } else {
        (numbers, Maturity::Stable, 0)
    };
    Some((maturity, number(major)?, minor))
}

/// A number without sign and leading zero.
fn number(digits: &str) -> Option<u64> {
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Freshness, SourceOrder};

    fn source(group: &str, version: &str, priorities: (u32, u32), order: SourceOrder) -> Arc<VersionSource> {
        Arc::new(VersionSource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            group_priority: priorities.0,
            version_priority: priorities.1,
            order,
            freshness: Freshness::Current,
            resources: Vec::new(),
        })
    }

    fn check(sources: &[Arc<VersionSource>], expected: &[&str]) {
        let arranged = arrange(sources);
        let names: Vec<String> = arranged
            .iter()
            .flat_map(|group| group.versions.iter().map(|version| format!("{}/{}", group.name, version.version)))
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn groups_stand_by_their_highest_priority_and_then_by_name() {
        let sources = [
            source("b.example.org", "v1", (1000, 100), SourceOrder::Custom),
            source("c.example.org", "v1", (1000, 15), SourceOrder::Aggregated),
            source("c.example.org", "v2", (5000, 15), SourceOrder::Aggregated),
            source("a.example.org", "v1", (1000, 100), SourceOrder::Custom),
        ];
        check(&sources, &["c.example.org/v2", "c.example.org/v1", "a.example.org/v1", "b.example.org/v1"]);
    }

    #[test]
    fn versions_of_equal_priority_stand_by_maturity_and_number() {
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
    fn of_several_sources_of_a_version_an_aggregated_server_prevails_over_custom_resources() {
        let sources = [
            source("g", "v1", (1, 1), SourceOrder::Custom),
            source("g", "v1", (2, 2), SourceOrder::Aggregated),
            source("g", "v1", (3, 3), SourceOrder::BuiltIn),
        ];
        let arranged = arrange(&sources);
        assert_eq!(arranged.len(), 1);
        assert_eq!(arranged[0].versions, vec![sources[1].clone()]);
    }
}
