//! Versions of kinds that will go: clients are warned whenever they use one (KEP-1693).
//!
//! The declaration of a group says when a version was given up, when it goes, and what takes its place, as upstream's types do.

use crate::groups::group;

/// When a version of a kind was given up, and when it goes; all minor versions of Kubernetes 1.
pub(crate) struct Deprecation {
    version: &'static str,
    kinds: &'static [&'static str],
    since: u8,
    until: Option<u8>,
    /// The `apiVersion` and kind that take its place.
    instead: Option<&'static str>,
}

impl Deprecation {
    /// Names the `apiVersion` and kind that take its place.
    pub(crate) const fn instead(mut self, instead: &'static str) -> Self {
        self.instead = Some(instead);
        self
    }
}

/// The warning for clients that use this version of a kind; `None` for a version that stays.
pub fn deprecation(group_name: &str, version: &str, kind: &str) -> Option<String> {
    let deprecations = group(group_name)?.deprecations;
    let found = deprecations.iter().find(|known| known.kinds.contains(&kind) && known.version == version)?;
    let slash = if group_name.is_empty() { "" } else { "/" };
    let until = found.until.map(|until| format!(", unavailable in v1.{until}+")).unwrap_or_default();
    let instead = found.instead.map(|instead| format!("; use {instead}")).unwrap_or_default();
    Some(format!("{group_name}{slash}{version} {kind} is deprecated in v1.{}+{until}{instead}", found.since))
}

/// A version that is given up but not taken away.
pub(crate) const fn stays(version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { version, kinds, since, until: None, instead: None }
}

/// A version that goes three releases after it is given up, as all do that are not stable.
pub(crate) const fn goes(version: &'static str, kinds: &'static [&'static str], since: u8) -> Deprecation {
    Deprecation { until: Some(since + 3), ..stays(version, kinds, since) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GROUPS;

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
        for group in GROUPS {
            for (known, kind) in
                group.deprecations.iter().flat_map(|known| known.kinds.iter().map(move |kind| (known, kind)))
            {
                let resource = crate::catalogue().by_kind(group.declaration.name, kind);
                assert!(resource.is_some_and(|found| found.version(known.version).is_some()), "{kind}");
            }
        }
    }
}
