//! An API group: its versions in order of preference and its resources.
//!
//! Priorities decide the order of groups and versions in discovery; they are upstream's.

use std::sync::Arc;

use crate::resource::{Resource, ServedVersion, Text};

/// One API group as it is served.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name, empty for the core group.
    pub name: Text,
    /// Its place in discovery among other groups, higher first; equal ones are ordered by name.
    pub priority: u32,
    /// Its versions, the preferred one first.
    pub versions: Vec<GroupVersionEntry>,
    /// Its resources, ordered by plural name.
    pub resources: Vec<Arc<Resource>>,
}

/// A version of a group with its place among the group's versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersionEntry {
    /// The version, such as `v1`.
    pub name: Text,
    /// Its place in discovery among the group's versions, higher first.
    pub priority: u32,
}

impl Group {
    /// The resources that are served in a version unless settings say otherwise, ordered by plural name.
    pub fn served_in(&self, version: &str) -> impl Iterator<Item = (&Arc<Resource>, &Arc<ServedVersion>)> {
        self.known_in(version).filter(|(_, version)| !version.hidden)
    }

    /// The resources that a version has, served or not, ordered by plural name.
    pub fn known_in(&self, version: &str) -> impl Iterator<Item = (&Arc<Resource>, &Arc<ServedVersion>)> {
        self.resources.iter().filter_map(move |resource| Some((resource, resource.version(version)?)))
    }

    /// Whether the group has a version, be it served or not.
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
