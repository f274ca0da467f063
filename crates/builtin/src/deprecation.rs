//! Deprecated versions of kinds. Clients get a warning whenever they use one (KEP-1693).
//!
//! The declaration of a group has the release of the deprecation, that of the removal, and the replacement, like
//! upstream's types.

use keelson_meta::Release;

use crate::groups::group;

/// The releases in which a version of a kind was deprecated and is removed, as minor versions of Kubernetes 1.
pub(crate) struct Deprecation {
    version: &'static str,
    kinds: &'static [&'static str],
    since: u8,
    until: Option<u8>,
    /// The `apiVersion` and kind of the replacement.
    instead: Option<&'static str>,
}

impl Deprecation {
    /// Sets the `apiVersion` and kind of the replacement.
    pub(crate) const fn instead(mut self, instead: &'static str) -> Self {
        self.instead = Some(instead);
        self
    }
}

/// The warning for clients that use this version of a kind; `None` if it is not deprecated in the release.
pub fn deprecation(release: Release, group_name: &str, version: &str, kind: &str) -> Option<String> {
    let deprecations = group(group_name)?.deprecations;
    let found = deprecations.iter().find(|known| known.kinds.contains(&kind) && known.version == version)?;
    if u32::from(found.since) > release.minor() {
        return None;
    }
    let slash = if group_name.is_empty() { "" } else { "/" };
    let until = found.until.map(|until| format!(", unavailable in v1.{until}+")).unwrap_or_default();
    let instead = found.instead.map(|instead| format!("; use {instead}")).unwrap_or_default();
    Some(format!("{group_name}{slash}{version} {kind} is deprecated in v1.{}+{until}{instead}", found.since))
}

/// A version that is deprecated but is not removed.
pub(crate) const fn stays(version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { version, kinds, since, until: None, instead: None }
}

/// A version that is removed three releases after its deprecation, like all versions that are not stable.
pub(crate) const fn goes(version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { until: Some(since + 3), ..stays(version, kinds, since) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GROUPS;

    #[test]
    fn deprecation_warnings_name_the_release_and_the_replacement() {
        let text = |group, version, kind| deprecation(Release::V1_36, group, version, kind).unwrap_or_default();
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
    fn deprecations_list_only_served_versions() {
        for group in GROUPS {
            for (known, kind) in
                group.deprecations.iter().flat_map(|known| known.kinds.iter().map(move |kind| (known, kind)))
            {
                let is_served = |release| {
                    let resource = crate::catalogue_of(release).by_kind(group.declaration.name, kind);
                    resource.is_some_and(|found| found.version(known.version).is_some())
                };
                assert!(is_served(Release::V1_36) || is_served(Release::V1_37), "{kind}");
            }
        }
    }
}
