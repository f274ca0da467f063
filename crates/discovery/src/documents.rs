//! All documents of one set of sources: made once for each change, then shared by all requests.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use keelson_resources::{Catalogue, Resource};

use crate::aggregated::{self, Document};
use crate::legacy;
use crate::negotiate::AggregatedForm;
use crate::order::{OrderedGroup, arrange};
use crate::source::{VersionSource, builtin};

/// The documents of one set of sources. Immutable; a change of the sources makes a new one.
#[derive(Debug)]
pub struct Documents {
    core: Option<OrderedGroup>,
    groups: Vec<OrderedGroup>,
    aggregated_core: [Document; 2],
    aggregated_groups: [Document; 2],
    group_list: Bytes,
    legacy: HashMap<String, LegacyGroup>,
}

/// A group's documents in the older form. Few clients ask for them, so they are made when one does.
#[derive(Debug, Default)]
struct LegacyGroup {
    group: OnceLock<Option<Bytes>>,
    versions: HashMap<String, OnceLock<Bytes>>,
}

impl Documents {
    /// The documents of the built-in resources.
    pub fn build(catalogue: &Catalogue) -> Self {
        Self::build_storing(catalogue, |_| None)
    }

    /// As [`build`](Self::build), where a server was told in which version to store some resources.
    pub fn build_storing<'v>(catalogue: &Catalogue, stored_as: impl Fn(&Resource) -> Option<&'v str>) -> Self {
        Self::from_sources(&builtin(catalogue, &stored_as))
    }

    /// The documents of the built-in resources and further sources.
    pub fn build_with(catalogue: &Catalogue, further: &[Arc<VersionSource>]) -> Self {
        Self::from_sources(&[&builtin(catalogue, &|_| None), further].concat())
    }

    /// The documents of some sources.
    pub fn from_sources(sources: &[Arc<VersionSource>]) -> Self {
        let (core, groups): (Vec<_>, Vec<_>) = arrange(sources).into_iter().partition(|group| group.name.is_empty());
        Self {
            aggregated_core: aggregated::render(&core),
            aggregated_groups: aggregated::render(&groups),
            group_list: legacy::group_list(&groups).into(),
            legacy: core.iter().chain(&groups).map(|group| (group.name.to_string(), LegacyGroup::new(group))).collect(),
            core: core.into_iter().next(),
            groups,
        }
    }

    /// `/api`, aggregated: the core group.
    pub fn aggregated_core(&self, form: AggregatedForm) -> &Document {
        &self.aggregated_core[form.index()]
    }

    /// `/apis`, aggregated: all other groups.
    pub fn aggregated_groups(&self, form: AggregatedForm) -> &Document {
        &self.aggregated_groups[form.index()]
    }

    /// `/api` in the older form: the versions of the core group. `server_address` is the host and port that clients
    /// outside shall use.
    pub fn api_versions(&self, server_address: &str) -> Bytes {
        legacy::api_versions(self.core.as_ref(), server_address).into()
    }

    /// `/apis` in the older form: the list of groups.
    pub fn group_list(&self) -> Bytes {
        self.group_list.clone()
    }

    /// `/apis/<group>`: the versions of a group.
    pub fn group(&self, name: &str) -> Option<Bytes> {
        let group = self.groups.iter().find(|group| group.name == name)?;
        let document = &self.legacy.get(name)?.group;
        document.get_or_init(|| legacy::group(group).map(Bytes::from)).clone()
    }

    /// `/apis/<group>/<version>`, or `/api/<version>` for the empty group: the resources of a version.
    pub fn resources(&self, group: &str, version: &str) -> Option<Bytes> {
        let source =
            self.all_groups().find(|known| known.name == group)?.versions.iter().find(|v| v.version == version)?;
        let document = self.legacy.get(group)?.versions.get(version)?;
        Some(document.get_or_init(|| legacy::resources(source).into()).clone())
    }

    /// All group versions in the order of discovery, the core group first.
    pub fn group_versions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all_groups()
            .flat_map(|group| group.versions.iter().map(|source| (source.group.as_ref(), source.version.as_ref())))
    }

    fn all_groups(&self) -> impl Iterator<Item = &OrderedGroup> {
        self.core.iter().chain(&self.groups)
    }
}

impl LegacyGroup {
    fn new(group: &OrderedGroup) -> Self {
        let versions = group.versions.iter().map(|source| (source.version.to_string(), OnceLock::new())).collect();
        Self { group: OnceLock::new(), versions }
    }
}
