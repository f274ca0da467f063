//! All documents of one set of fragments: assembled once for each change, then shared by all requests.
//!
//! Assembling sorts and copies the fragments. Large documents are built on demand, so a thousand successive changes
//! cost a thousand sorts, but few copies.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::aggregated::{Aggregated, Document};
use crate::fragment::Fragment;
use crate::legacy;
use crate::negotiate::AggregatedForm;
use crate::order::{OrderedGroup, arrange, shown};
use crate::source::SourceOrder;

/// The number of versions whose documents can be built within a millisecond. It is several times the number of built-in
/// versions.
const QUICK_VERSIONS: usize = 100;

/// The documents of one set of fragments. Immutable: a change builds a new one.
#[derive(Debug)]
pub struct Documents {
    core: Option<OrderedGroup>,
    /// All other groups, sorted by name.
    groups: Vec<OrderedGroup>,
    /// The indexes of these groups in the order of discovery.
    shown: Vec<usize>,
    aggregated_core: Aggregated,
    aggregated_groups: Aggregated,
    group_list: OnceLock<Bytes>,
    /// The number of versions of all groups.
    versions: usize,
}

impl Documents {
    /// The documents of these fragments, in any order.
    pub fn assemble(fragments: &[Arc<Fragment>]) -> Self {
        let mut groups = arrange(fragments);
        let core = groups.first().is_some_and(|first| first.name().is_empty()).then(|| groups.remove(0));
        Self {
            core,
            shown: shown(&groups),
            groups,
            aggregated_core: Aggregated::default(),
            aggregated_groups: Aggregated::default(),
            group_list: OnceLock::new(),
            versions: fragments.len(),
        }
    }

    /// `/api`, aggregated: the core group.
    pub fn aggregated_core(&self, form: AggregatedForm) -> &Document {
        self.aggregated_core.document(form, || self.core.iter())
    }

    /// `/apis`, aggregated: all other groups.
    pub fn aggregated_groups(&self, form: AggregatedForm) -> &Document {
        self.aggregated_groups.document(form, || self.shown_groups())
    }

    /// Returns true if the document exists, compressed if requested, or is small enough to be built at once.
    pub fn is_ready(&self, form: AggregatedForm, compressed: bool) -> bool {
        self.versions <= QUICK_VERSIONS || self.aggregated_groups.is_ready(form, compressed)
    }

    /// Returns true if the document was requested before, in either form.
    pub fn has_aggregated_groups(&self) -> bool {
        self.aggregated_groups.is_made()
    }

    /// `/api` in the legacy form: the versions of the core group. `server_address` is the host and port for external
    /// clients.
    pub fn api_versions(&self, server_address: &str) -> Bytes {
        legacy::api_versions(self.core.as_ref(), server_address).into()
    }

    /// `/apis` in the legacy form: the list of groups.
    pub fn group_list(&self) -> Bytes {
        self.group_list.get_or_init(|| legacy::group_list(self.shown_groups()).into()).clone()
    }

    /// `/apis/<group>`: the versions of a group.
    pub fn group(&self, name: &str) -> Option<Bytes> {
        let place = self.groups.binary_search_by(|group| group.name().cmp(name)).ok()?;
        Some(legacy::group(&self.groups[place]).into())
    }

    /// Returns true if a group has built-in versions.
    pub fn is_builtin(&self, group: &str) -> bool {
        let place = self.groups.binary_search_by(|known| known.name().cmp(group)).ok();
        let of_program = |version: &Arc<Fragment>| version.source().order == SourceOrder::BuiltIn;
        group.is_empty() || place.is_some_and(|place| self.groups[place].versions.iter().any(of_program))
    }

    /// `/apis/<group>/<version>`, or `/api/<version>` for the empty group: the resources of a version. `None` for an
    /// aggregated version, whose server answers itself, since the known state may be outdated or empty.
    pub fn resources(&self, group: &str, version: &str) -> Option<Bytes> {
        let group = match group {
            "" => self.core.as_ref()?,
            name => &self.groups[self.groups.binary_search_by(|group| group.name().cmp(name)).ok()?],
        };
        let found = group.versions.iter().find(|known| known.source().version == version)?;
        (found.source().order != SourceOrder::Aggregated).then(|| found.resources())
    }

    /// All group versions in the order of discovery, the core group first.
    pub fn group_versions(&self) -> impl Iterator<Item = (&str, &str)> {
        let sources = self.core.iter().chain(self.shown_groups()).flat_map(|group| &group.versions);
        sources.map(|fragment| (fragment.source().group.as_ref(), fragment.source().version.as_ref()))
    }

    fn shown_groups(&self) -> impl Iterator<Item = &OrderedGroup> {
        self.shown.iter().map(|place| &self.groups[*place])
    }
}
