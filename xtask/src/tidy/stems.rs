//! One folder for each API group, with a file for each concern under the same name in every group.
//!
//! So a developer adds a kind in one folder, and finds a concern by its name. Parts of a concern are in a folder of its
//! name. The core group has many kinds, so its parts are named after families of kinds. Shared modules are next to the
//! groups and listed here.

use std::collections::BTreeSet;

use super::Finding;

/// The folder of the groups.
const GROUPS: &str = "crates/builtin/src/";
/// The file in which a group declares its resources. It identifies the folder of a group.
const DECLARATION: &str = "declaration";

/// The concerns of a group.
const CONCERNS: [&str; 8] =
    ["column_docs", "columns", "conversion", DECLARATION, "defaults", "strategy", "validation", "warnings"];
/// Modules of the core group only.
const OF_CORE: [&str; 2] = ["allocation", "older"];

/// Modules shared by all groups.
const SHARED: [&str; 11] = [
    "catalogue",
    "completion",
    "converting",
    "defaulting",
    "deprecation",
    "group",
    "groups",
    "lib",
    "strategy",
    "surface",
    "validating",
];

/// The families of kinds in the core group, and the common parts of pods in all workloads.
const CORE: &str = "core";
const CORE_FAMILIES: [&str; 15] = [
    "config",
    "endpoints",
    "image",
    "limits",
    "namespaces",
    "nodes",
    "pod",
    "replication",
    "service_accounts",
    "services",
    "status",
    "template",
    "tests",
    "volume_claims",
    "volumes",
];

pub(super) fn check<'p>(places: impl Iterator<Item = &'p str> + Clone) -> Vec<Finding> {
    let files = places.filter_map(|place| Some((place, place.strip_prefix(GROUPS)?.strip_suffix(".rs")?)));
    let declared =
        files.clone().filter_map(|(_, below)| below.split_once('/').filter(|(_, file)| *file == DECLARATION));
    let groups: BTreeSet<&str> = declared.map(|(group, _)| group).collect();
    let misplaced = files.filter_map(|(place, below)| {
        let mut steps = below.split('/');
        let (first, concern, family) = (steps.next()?, steps.next(), steps.next());
        let is_placed = match (groups.contains(first), concern, family) {
            (false, ..) => SHARED.contains(&first),
            (true, None, _) => true,
            (true, Some(concern), _) if first == CORE && OF_CORE.contains(&concern) => true,
            (true, Some(concern), Some(family)) if first == CORE => {
                CONCERNS.contains(&concern) && CORE_FAMILIES.contains(&family)
            }
            (true, Some(concern), _) => CONCERNS.contains(&concern),
        };
        let text = "is neither a concern of an API group nor shared by all: see xtask/src/tidy/stems.rs";
        (!is_placed).then(|| Finding::fault(place, text))
    });
    misplaced.collect()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_file_of_a_group_has_the_name_of_a_concern() {
        let declared = ["crates/builtin/src/core/declaration.rs", "crates/builtin/src/rbac/declaration.rs"];
        let named = [
            "crates/builtin/src/rbac.rs",
            "crates/builtin/src/rbac/strategy.rs",
            "crates/builtin/src/rbac/validation/roles.rs",
            "crates/builtin/src/core/strategy/pod.rs",
            "crates/builtin/src/core/strategy/pod/resize.rs",
            "crates/builtin/src/core/allocation/ports.rs",
            "crates/builtin/src/validating/at.rs",
            "crates/registry/src/get.rs",
        ];
        assert!(check(declared.into_iter().chain(named)).is_empty());
        for misplaced in [
            "crates/builtin/src/rbac/rules.rs",
            "crates/builtin/src/core/strategy/pods.rs",
            "crates/builtin/src/apps/columns.rs",
            "crates/builtin/src/pods.rs",
        ] {
            let found = check(declared.into_iter().chain([misplaced]));
            assert_eq!(found.iter().map(|found| found.place.as_str()).collect::<Vec<_>>(), [misplaced]);
        }
    }
}
