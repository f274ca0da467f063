//! Versions of kinds that will go: clients are warned whenever they use one (KEP-1693).
//!
//! The table says when a version was given up, when it goes, and what takes its place, as upstream's types say it.

/// When a version of a kind was given up, and when it goes; all minor versions of Kubernetes 1.
struct Deprecation {
    group: &'static str,
    version: &'static str,
    kinds: &'static [&'static str],
    since: u8,
    until: Option<u8>,
    /// The `apiVersion` and kind that take its place.
    instead: Option<&'static str>,
}

const ADMISSION: &[&str] = &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
const DEVICES: &[&str] = &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];
const VOLUME_ATTRIBUTES: &str = "storage.k8s.io/v1 VolumeAttributesClass";

const DEPRECATIONS: &[Deprecation] = &[
    Deprecation { instead: Some("discovery.k8s.io/v1 EndpointSlice"), ..stays("", "v1", &["Endpoints"], 33) },
    stays("", "v1", &["ComponentStatus"], 19),
    goes("admissionregistration.k8s.io", "v1alpha1", ADMISSION, 35),
    goes("coordination.k8s.io", "v1beta1", &["LeaseCandidate"], 36),
    goes("coordination.k8s.io", "v1alpha2", &["LeaseCandidate"], 35),
    goes("networking.k8s.io", "v1beta1", &["IPAddress", "ServiceCIDR"], 34),
    goes("resource.k8s.io", "v1beta2", DEVICES, 36),
    goes("resource.k8s.io", "v1beta1", DEVICES, 35),
    goes("resource.k8s.io", "v1alpha3", &["DeviceTaintRule"], 36),
    Deprecation {
        instead: Some(VOLUME_ATTRIBUTES),
        ..goes("storage.k8s.io", "v1beta1", &["VolumeAttributesClass"], 34)
    },
];

/// What a client that uses this version of a kind is to be warned of; `None` for a version that stays.
pub fn deprecation(group: &str, version: &str, kind: &str) -> Option<String> {
    let found = DEPRECATIONS
        .iter()
        .find(|known| known.kinds.contains(&kind) && (known.group, known.version) == (group, version))?;
    let slash = if group.is_empty() { "" } else { "/" };
    let until = found.until.map(|until| format!(", unavailable in v1.{until}+")).unwrap_or_default();
    let instead = found.instead.map(|instead| format!("; use {instead}")).unwrap_or_default();
    Some(format!("{group}{slash}{version} {kind} is deprecated in v1.{}+{until}{instead}", found.since))
}

/// A version that is given up but not taken away.
const fn stays(group: &'static str, version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { group, version, kinds, since, until: None, instead: None }
}

/// A version that goes three releases after it is given up, as all do that are not stable.
const fn goes(group: &'static str, version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { until: Some(since + 3), ..stays(group, version, kinds, since) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    #[test]
    fn warnings_name_the_release_and_what_to_use() {
        let text = |group, version, kind| deprecation(group, version, kind).unwrap_or_default();
        assert_eq!(
            text("", "v1", "Endpoints"),
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        );
        assert_eq!(
            text("storage.k8s.io", "v1beta1", "VolumeAttributesClass"),
            "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; \
             use storage.k8s.io/v1 VolumeAttributesClass"
        );
        assert_eq!(text("", "v1", "Pod"), "");
        assert_eq!(text("storage.k8s.io", "v1", "VolumeAttributesClass"), "");
    }

    #[test]
    fn only_what_is_served_is_named() {
        for known in DEPRECATIONS {
            for kind in known.kinds {
                let resource = Catalogue::builtin().by_kind(known.group, kind);
                assert!(resource.is_some_and(|found| found.version(known.version).is_some()), "{kind}");
            }
        }
    }
}
