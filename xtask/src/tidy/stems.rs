//! One name for one group of kinds: files that know the built-in kinds bear the name of their API group in every crate.
//!
//! The names are those of the files that declare the resources. Below the core group, which has many kinds, the names of families of kinds
//! are held to one list too. What all groups of a crate share stands beside them, and is listed with its reason.

use std::collections::BTreeSet;

use super::Finding;

/// Where each group has its declaration, and by that its name.
const DECLARATIONS: &str = "crates/resources/src/groups/";

/// The folders with a file for each group, or for those of which there is something to say.
const FOLDERS: [&str; 9] = [
    DECLARATIONS,
    "crates/conversion/src/groups/",
    "crates/defaults/src/groups/",
    "crates/registry/src/kinds/",
    "crates/tables/src/docs/",
    "crates/tables/src/groups/",
    "crates/validation/src/groups/",
    "crates/validation/src/tests/",
    "crates/validation/src/warnings/",
];

/// Files beside those of the groups, and why.
const SHARED: [(&str, &str); 7] = [
    ("crates/registry/src/kinds/classes.rs", "has what kinds with a class do alike"),
    ("crates/registry/src/kinds/gates.rs", "has the gated fields of all kinds"),
    ("crates/registry/src/kinds/status.rs", "has the first status of all kinds"),
    ("crates/registry/src/kinds/strategy.rs", "has the steps at which every kind is asked"),
    ("crates/validation/src/groups/conditions.rs", "has the conditions that kinds of several groups hold"),
    ("crates/validation/src/groups/go_form.rs", "shows values of several groups as Go does"),
    ("crates/validation/src/tests/warnings.rs", "has the tests of the warnings"),
];

/// The families of kinds of the core group.
const CORE: &str = "core/";
const CORE_FAMILIES: [&str; 12] = [
    "config",
    "endpoints",
    "limits",
    "namespaces",
    "nodes",
    "pod",
    "replication",
    "service_accounts",
    "services",
    "status",
    "volume_claims",
    "volumes",
];

pub(super) fn check<'p>(places: impl Iterator<Item = &'p str> + Clone) -> Vec<Finding> {
    let declared = places.clone().filter_map(|place| place.strip_prefix(DECLARATIONS)?.strip_suffix(".rs"));
    let groups: BTreeSet<&str> = declared.collect();
    let is_named = |place: &str| {
        FOLDERS.iter().filter_map(|folder| place.strip_prefix(folder)).all(|below| {
            let family = below.strip_prefix(CORE).map(stem);
            groups.contains(stem(below)) && family.is_none_or(|family| CORE_FAMILIES.contains(&family))
        })
    };
    let is_shared = |place: &str| SHARED.iter().any(|(shared, _)| *shared == place);
    let misnamed = places.filter(|place| !is_shared(place) && !is_named(place));
    misnamed
        .map(|place| Finding::fault(place, "bears the name of no API group, as the other crates have them"))
        .collect()
}

/// The first name of a path, without the ending of a file.
fn stem(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_file_of_a_group_bears_its_name() {
        let declared = ["crates/resources/src/groups/core.rs", "crates/resources/src/groups/rbac.rs"];
        let named = [
            "crates/registry/src/kinds/core/pod.rs",
            "crates/registry/src/kinds/strategy.rs",
            "crates/validation/src/groups/core/volumes.rs",
            "crates/validation/src/groups/rbac/roles.rs",
            "crates/registry/src/get.rs",
        ];
        assert!(check(declared.into_iter().chain(named)).is_empty());
        for misnamed in [
            "crates/registry/src/kinds/roles.rs",
            "crates/registry/src/kinds/core/pods.rs",
            "crates/validation/src/groups/webhooks.rs",
            "crates/tables/src/docs/apps.rs",
        ] {
            let found = check(declared.into_iter().chain([misnamed]));
            assert_eq!(found.iter().map(|found| found.place.as_str()).collect::<Vec<_>>(), [misnamed]);
        }
    }
}
