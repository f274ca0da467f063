//! Names of kinds and resources: group, version, kind, resource.
//!
//! Each combination has its own type, so that mixing them up does not compile. This module has their text forms. It
//! must not know which kinds and resources exist.

use std::fmt;

/// The API group of this server itself, to which its parameters belong. Definitions and aggregated servers must not use
/// this group.
pub const SERVER_GROUP: &str = "keelson.io";

/// A version of an API group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group. Empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
}

/// A kind in a group, without a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// The group. Empty for the core group.
    pub group: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A resource in a group, without a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The group. Empty for the core group.
    pub group: String,
    /// The plural resource name, such as `pods`.
    pub resource: String,
}

/// A kind in a version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The group. Empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A resource in a version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// The group. Empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural resource name, such as `pods`.
    pub resource: String,
}

impl GroupVersion {
    /// Parses an `apiVersion`: `v1` is a version of the core group, `apps/v1` of the group `apps`.
    ///
    /// # Errors
    /// `None` for more than one slash.
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = Self::split(api_version)?;
        Some(Self { group: group.to_owned(), version: version.to_owned() })
    }

    /// The group and version of an `apiVersion`, borrowed.
    ///
    /// # Errors
    /// As [`GroupVersion::parse`].
    pub fn split(api_version: &str) -> Option<(&str, &str)> {
        match api_version.split_once('/') {
            None => Some(("", api_version)),
            Some((_, version)) if version.contains('/') => None,
            parts => parts,
        }
    }
}

/// `apps/v1`, or `v1` in the core group.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { self.version.fmt(f) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

/// `Deployment.apps`, or `Pod` in the core group.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

/// `deployments.apps`, or `pods` in the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

impl GroupVersionKind {
    /// This kind without its version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// The `apiVersion` of an object of this kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
}
