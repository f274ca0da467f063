//! An API group: its versions in order of preference and its resources.
//!
//! Priorities determine the order of groups and versions in discovery. They are upstream's.

use std::sync::Arc;

use crate::resource::{Resource, ServedVersion, Text};

/// One served API group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name. Empty for the core group.
    pub name: Text,
    /// The priority of the group in discovery, higher first. Groups of equal priority are sorted by name.
    pub priority: u32,
    /// Its versions, the preferred one first.
    pub versions: Vec<GroupVersionEntry>,
    /// Its resources, sorted by plural name.
    pub resources: Vec<Arc<Resource>>,
}

/// A version of a group and its priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersionEntry {
    /// The version, such as `v1`.
    pub name: Text,
    /// The priority of the version in discovery among the group's versions, higher first.
    pub priority: u32,
}

impl Group {
    /// The resources served in a version by default, sorted by plural name.
    pub fn served_in(&self, version: &str) -> impl Iterator<Item = (&Arc<Resource>, &Arc<ServedVersion>)> {
        self.known_in(version).filter(|(_, version)| !version.hidden)
    }

    /// The resources of a version, served or not, sorted by plural name.
    pub fn known_in(&self, version: &str) -> impl Iterator<Item = (&Arc<Resource>, &Arc<ServedVersion>)> {
        self.resources.iter().filter_map(move |resource| Some((resource, resource.version(version)?)))
    }

    /// Returns true if the group has a version, served or not.
    pub fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|entry| entry.name == version)
    }

    /// The path of one of its versions: `/api/v1`, or `/apis/<group>/<version>`.
    pub fn version_path(&self, version: &str) -> String {
        if self.name.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", self.name) }
    }

    /// The `apiVersion` of one of its versions: `v1`, or `<group>/<version>`.
    pub fn api_version(&self, version: &str) -> String {
        if self.name.is_empty() { version.to_owned() } else { format!("{}/{version}", self.name) }
    }
}
