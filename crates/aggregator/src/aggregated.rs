//! All APIServices of one moment, by group and version.
//!
//! The value is never changed: who took it keeps it, and the next one shares what has not changed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api_service::ApiService;

/// Who serves each version of each group. A version without an entry is served here, if at all.
#[derive(Debug, Default)]
pub struct Aggregated {
    generation: u64,
    groups: HashMap<String, Vec<Arc<ApiService>>>,
    has_remote: bool,
}

impl Aggregated {
    pub(crate) fn new(generation: u64, services: impl IntoIterator<Item = Arc<ApiService>>) -> Self {
        let mut groups: HashMap<String, Vec<Arc<ApiService>>> = HashMap::new();
        let mut has_remote = false;
        for service in services {
            has_remote |= service.remote().is_some();
            groups.entry(service.group.clone()).or_default().push(service);
        }
        groups.values_mut().for_each(|versions| versions.sort_by(|a, b| a.version.cmp(&b.version)));
        Self { generation, groups, has_remote }
    }

    /// Which one it is: the number goes up with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The APIService of a version of a group, whose name is empty for the core group.
    ///
    /// Cost: a hash of the group and a look at its versions.
    pub fn of(&self, group: &str, version: &str) -> Option<&Arc<ApiService>> {
        self.of_group(group).iter().find(|service| service.version == version)
    }

    /// The APIService of a version that another server serves; `None` for what is served here or not at all.
    ///
    /// Cost: where no server is registered, a comparison.
    pub fn remote(&self, group: &str, version: &str) -> Option<&Arc<ApiService>> {
        if !self.has_remote {
            return None;
        }
        self.of(group, version).filter(|service| service.remote().is_some())
    }

    /// The APIServices of a group, by version.
    pub fn of_group(&self, group: &str) -> &[Arc<ApiService>] {
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }

    /// The APIService of a name.
    pub fn named(&self, name: &str) -> Option<&Arc<ApiService>> {
        let (version, group) = name.split_once('.')?;
        self.of(group, version)
    }

    /// All APIServices, in no order.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ApiService>> {
        self.groups.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;

    use super::*;
    use crate::api_service::{Backend, RemoteService};

    fn service(group: &str, version: &str, backend: Backend) -> Arc<ApiService> {
        Arc::new(ApiService {
            name: format!("{version}.{group}"),
            uid: String::new(),
            group: group.to_owned(),
            version: version.to_owned(),
            group_priority: 1000,
            version_priority: 15,
            backend,
            condition: None,
            revision: Revision::ZERO,
        })
    }

    #[test]
    fn a_version_leads_to_its_server() {
        let remote = RemoteService {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            ca_bundle: Vec::new(),
            insecure_skip_tls_verify: false,
        };
        let services = [service("g", "v2", Backend::Remote(remote)), service("g", "v1", Backend::Local)];
        let aggregated = Aggregated::new(7, services);
        assert_eq!(aggregated.generation(), 7);
        assert!(aggregated.remote("g", "v1").is_none() && aggregated.remote("h", "v2").is_none());
        assert_eq!(aggregated.remote("g", "v2").unwrap().name, "v2.g");
        assert_eq!(aggregated.of("g", "v1").unwrap().name, "v1.g");
        let versions: Vec<&str> = aggregated.of_group("g").iter().map(|service| &*service.version).collect();
        assert_eq!(versions, ["v1", "v2"]);
    }
}
