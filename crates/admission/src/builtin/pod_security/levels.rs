//! Levels and versions of the pod security standards, and the policy from the labels of a namespace.
//!
//! A version is a minor release, whose standard never changes, or the latest. This file does not read pods.

use std::fmt;

use keelson_meta::field_error::FieldError;

/// The prefix of the labels of a namespace.
pub(super) const LABELS: &str = "pod-security.kubernetes.io/";
const WRONG_LEVEL: &str = "must be one of privileged, baseline, restricted";
const WRONG_VERSION: &str = "must be \"latest\" or \"v1.x\"";

/// A level; a stricter level is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// No restrictions.
    #[default]
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Requires the practices for hardened pods.
    Restricted,
}

impl Level {
    /// Parses the name of a level.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The release whose standard applies; a later release is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// Kubernetes 1.x.
    Minor(u64),
    /// The latest release.
    #[default]
    Latest,
}

impl Version {
    /// Parses `latest` or `v1.x`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
        minor.parse().ok().filter(|_| is_plain).map(Self::Minor)
    }

    /// Returns true if this version includes controls that were added in minor release `minor`.
    pub(super) fn is_since(self, minor: u64) -> bool {
        self >= Self::Minor(minor)
    }
}

/// A level and its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standard {
    /// The level.
    pub(super) level: Level,
    /// The version.
    pub(super) version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// The standards of a namespace for enforcement, audit and warnings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// The standard that pods must satisfy.
    pub(super) enforce: Standard,
    /// The standard for audit annotations.
    pub(super) audit: Standard,
    /// The standard for warnings.
    pub(super) warn: Standard,
}

impl Policy {
    /// Returns true if no pod has to be checked.
    pub(super) fn is_privileged(&self) -> bool {
        self.enforce.level == Level::Privileged && self.warns_of_nothing()
    }

    /// Returns true if the policy can cause no warnings.
    pub(super) fn warns_of_nothing(&self) -> bool {
        self.warn.level == Level::Privileged && self.audit.level == Level::Privileged
    }

    /// The policy from the labels of a namespace, with `default` for absent labels. A mode with an invalid label
    /// enforces the strictest level, or gives no warnings. Also returns an error for each invalid label.
    pub(super) fn of_labels<'l>(label: impl Fn(&str) -> Option<&'l str>, default: Self) -> (Self, Vec<FieldError>) {
        let mut read = Reading { label, faults: Vec::new() };
        let mut policy = default;
        let enforced = read.level("enforce");
        if let Some(level) = enforced {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        policy.enforce.version = read.version("enforce").unwrap_or(policy.enforce.version);
        if let Some(level) = read.level("audit") {
            policy.audit.level = level.unwrap_or(Level::Privileged);
        }
        policy.audit.version = read.version("audit").unwrap_or(policy.audit.version);
        let warned = read.level("warn");
        if let Some(level) = warned {
            policy.warn.level = level.unwrap_or(Level::Privileged);
        }
        let warned_of = read.version("warn");
        policy.warn.version = warned_of.unwrap_or(policy.warn.version);
        // A user whose pods will be refused gets warnings about workloads that create them.
        if matches!(enforced, Some(Some(_))) && warned.is_none() && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            policy.warn.version = warned_of.unwrap_or(policy.enforce.version);
        }
        (policy, read.faults)
    }
}

/// Reads labels and collects errors about them.
struct Reading<F> {
    label: F,
    faults: Vec<FieldError>,
}

impl<'l, F: Fn(&str) -> Option<&'l str>> Reading<F> {
    /// The level of a mode: `None` without a label, `Some(None)` for an invalid one.
    fn level(&mut self, mode: &str) -> Option<Option<Level>> {
        let key = format!("{LABELS}{mode}");
        let text = (self.label)(&key)?;
        let level = Level::parse(text);
        if level.is_none() {
            self.faults.push(FieldError::invalid(format!("metadata.labels[{key}]"), text, WRONG_LEVEL));
        }
        Some(level)
    }

    /// The version of a mode; the latest for an invalid label.
    fn version(&mut self, mode: &str) -> Option<Version> {
        let key = format!("{LABELS}{mode}-version");
        let text = (self.label)(&key)?;
        let version = Version::parse(text);
        if version.is_none() {
            self.faults.push(FieldError::invalid(format!("metadata.labels[{key}]"), text, WRONG_VERSION));
        }
        Some(version.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_a_release_or_the_latest() {
        let check = |text: &str, expected: Option<Version>| assert_eq!(Version::parse(text), expected, "{text}");
        check("latest", Some(Version::Latest));
        check("v1.0", Some(Version::Minor(0)));
        check("v1.36", Some(Version::Minor(36)));
        check("v1.999", Some(Version::Minor(999)));
        for wrong in ["", "v1", "1.30", "v1.30.1", "v1.01", "v1.+1", "v2.0", "Latest", "v1.99999999999999999999"] {
            check(wrong, None);
        }
        assert!(Version::Latest.is_since(35) && Version::Minor(35).is_since(35) && !Version::Minor(34).is_since(35));
    }

    #[test]
    fn labels_make_a_policy() {
        let check = |labels: &[(&str, &str)], expected: &str, faults: usize| {
            let of = |key: &str| {
                labels.iter().find(|(name, _)| key.strip_prefix(LABELS) == Some(name)).map(|(_, value)| *value)
            };
            let (policy, found) = Policy::of_labels(of, Policy::default());
            let Policy { enforce, audit, warn } = policy;
            assert_eq!((format!("{enforce} {audit} {warn}").as_str(), found.len()), (expected, faults), "{labels:?}");
        };
        check(&[], "privileged:latest privileged:latest privileged:latest", 0);
        check(&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest", 0);
        let both = [("enforce", "baseline"), ("enforce-version", "v1.30")];
        check(&both, "baseline:v1.30 privileged:latest baseline:v1.30", 0);
        let weaker = [("enforce", "restricted"), ("warn", "baseline"), ("audit", "restricted")];
        check(&weaker, "restricted:latest restricted:latest baseline:latest", 0);
        let dated = [("enforce", "restricted"), ("warn-version", "v1.22")];
        check(&dated, "restricted:latest privileged:latest restricted:v1.22", 0);
        check(&[("enforce", "nope")], "restricted:latest privileged:latest privileged:latest", 1);
        let wrong = [("enforce", "a"), ("audit", "b"), ("warn-version", "c")];
        check(&wrong, "restricted:latest privileged:latest privileged:latest", 3);
        check(&[("warn", "x"), ("enforce", "baseline")], "baseline:latest privileged:latest privileged:latest", 1);
    }
}
