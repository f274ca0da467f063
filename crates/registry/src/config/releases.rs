//! The releases of Kubernetes that introduced each version of resources with several versions.
//!
//! During an upgrade, and until a rollback is ruled out, servers of the previous release must be able to read the
//! store.

use std::ops::RangeInclusive;

use keelson_meta::GroupResource;
use keelson_resources::{Catalogue, Text};

/// The minor versions of the releases that are known.
const KNOWN: RangeInclusive<u32> = 32..=37;

/// Versions of a resource with the minor versions of the releases in which they came, the newest first.
type Versions = &'static [(&'static str, u32)];

/// Resources with the minor versions of the releases in which their versions came, the newest version first.
const CAME: &[(&str, &str, Versions)] = &[
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", MUTATING),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", MUTATING),
    ("certificates.k8s.io", "clustertrustbundles", &[("v1", 37), ("v1beta1", 33), ("v1alpha1", 27)]),
    ("coordination.k8s.io", "leasecandidates", &[("v1beta1", 33), ("v1alpha2", 32)]),
    ("networking.k8s.io", "ipaddresses", NETWORKING),
    ("networking.k8s.io", "servicecidrs", NETWORKING),
    ("resource.k8s.io", "deviceclasses", DEVICES),
    ("resource.k8s.io", "devicetaintrules", &[("v1", 37), ("v1beta2", 36), ("v1alpha3", 33)]),
    ("resource.k8s.io", "resourceclaims", DEVICES),
    ("resource.k8s.io", "resourceclaimtemplates", DEVICES),
    ("resource.k8s.io", "resourceslices", DEVICES),
    ("scheduling.k8s.io", "podgroups", GROUPS),
    ("scheduling.k8s.io", "workloads", GROUPS),
    ("storage.k8s.io", "volumeattributesclasses", &[("v1", 34), ("v1beta1", 31)]),
    ("storagemigration.k8s.io", "storageversionmigrations", &[("v1", 37), ("v1beta1", 35)]),
];
const MUTATING: Versions = &[("v1", 36), ("v1beta1", 34), ("v1alpha1", 32)];
const GROUPS: Versions = &[("v1beta1", 37), ("v1alpha3", 37)];
const NETWORKING: Versions = &[("v1", 33), ("v1beta1", 31)];
const DEVICES: Versions = &[("v1", 34), ("v1beta2", 33), ("v1beta1", 32)];

/// The storage versions that servers of a release such as `1.34` can read, for resources whose default version they
/// cannot. Resources that the release lacks keep the default.
///
/// # Errors
/// The release does not exist, or is not known.
pub(super) fn readable_by(release: &str, catalogue: &Catalogue) -> Result<Vec<(GroupResource, Text)>, String> {
    let minor =
        release.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok()).filter(|minor| KNOWN.contains(minor));
    let (first, last) = (*KNOWN.start(), *KNOWN.end());
    let minor =
        minor.ok_or(format!("kubernetes={release} is not one of kubernetes=1.{first} to kubernetes=1.{last}"))?;
    let mut found = Vec::new();
    for (group, plural, versions) in CAME {
        let Some(resource) = catalogue.resource(group, plural) else { continue };
        let usual = resource.default_storage_kind().map(|kind| kind.version);
        let is_readable = |version: &&(&str, u32)| version.1 <= minor;
        if versions.iter().filter(is_readable).any(|(version, _)| usual.as_deref() == Some(*version)) {
            continue;
        }
        let is_there = |version: &&(&str, u32)| is_readable(version) && resource.version(version.0).is_some();
        if let Some((version, _)) = versions.iter().find(is_there) {
            found.push((resource.group_resource(), (*version).into()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use keelson_meta::Release;

    use super::*;

    #[test]
    fn older_releases_get_the_newest_version_that_they_read() {
        let check_in = |emulated: Release, release: &str, expected: &[(&str, &str)]| {
            let found = readable_by(release, keelson_builtin::catalogue_of(emulated)).unwrap();
            let found: Vec<(String, &str)> =
                found.iter().map(|(resource, version)| (resource.resource.clone(), &**version)).collect();
            let expected: Vec<(String, &str)> =
                expected.iter().map(|(resource, version)| ((*resource).to_owned(), *version)).collect();
            assert_eq!(found, expected, "{release}");
        };
        let check = |release: &str, expected: &[(&str, &str)]| check_in(Release::V1_36, release, expected);
        let of_devices = ("devicetaintrules", "v1alpha3");
        let of_policies = [("mutatingadmissionpolicies", "v1beta1"), ("mutatingadmissionpolicybindings", "v1beta1")];
        check_in(Release::V1_37, "1.37", &[]);
        check_in(Release::V1_37, "1.36", &[]);
        check_in(Release::V1_37, "1.35", &[of_policies[0], of_policies[1], of_devices]);
        check("1.37", &[]);
        check("1.36", &[]);
        check("1.35", &[]);
        check("1.34", &[]);
        let newer = [
            ("mutatingadmissionpolicies", "v1alpha1"),
            ("mutatingadmissionpolicybindings", "v1alpha1"),
            ("deviceclasses", "v1beta2"),
            ("resourceclaims", "v1beta2"),
            ("resourceclaimtemplates", "v1beta2"),
            ("resourceslices", "v1beta2"),
            ("volumeattributesclasses", "v1beta1"),
        ];
        check("1.33", &newer);
        let oldest = [
            ("mutatingadmissionpolicies", "v1alpha1"),
            ("mutatingadmissionpolicybindings", "v1alpha1"),
            ("clustertrustbundles", "v1alpha1"),
            ("leasecandidates", "v1alpha2"),
            ("ipaddresses", "v1beta1"),
            ("servicecidrs", "v1beta1"),
            ("deviceclasses", "v1beta1"),
            ("resourceclaims", "v1beta1"),
            ("resourceclaimtemplates", "v1beta1"),
            ("resourceslices", "v1beta1"),
            ("volumeattributesclasses", "v1beta1"),
        ];
        check("1.32", &oldest);
        for unknown in ["1.31", "1.38", "2.33", "1.x", "", "33"] {
            assert!(readable_by(unknown, keelson_builtin::catalogue()).is_err(), "{unknown}");
        }
    }

    #[test]
    fn the_table_of_releases_has_all_resources_with_several_versions() {
        let newest = keelson_builtin::catalogue_of(Release::NEWEST);
        let several = newest.resources().filter(|resource| resource.versions.len() > 1);
        let unknown: Vec<String> = several
            .filter(|it| !CAME.iter().any(|(group, plural, _)| (*group, *plural) == (&*it.group, &*it.plural)))
            .map(|resource| resource.group_resource().to_string())
            .collect();
        assert_eq!(unknown, ["horizontalpodautoscalers.autoscaling"], "both of its versions are older");
        for (group, plural, versions) in CAME {
            let resource = newest.resource(group, plural).unwrap();
            let known: Vec<&str> = versions.iter().map(|(version, _)| *version).collect();
            assert!(resource.versions.iter().all(|version| known.contains(&&*version.name)), "{plural}");
        }
    }
}
