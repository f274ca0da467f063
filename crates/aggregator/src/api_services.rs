//! All APIServices at one moment, by group and version.
//!
//! The value is immutable, and the next one shares all unchanged parts.

use std::collections::HashMap;
use std::sync::Arc;

use keelson_meta::SharedMap;
use keelson_outbound::RemoteService;

use crate::api_service::ApiService;

/// The server for each version of each group. A version without an entry has no APIService: this server serves it or no
/// server does.
#[derive(Debug, Default)]
pub struct ApiServices {
    generation: u64,
    /// APIServices by group, then version. Names and lists are shared with the previous value.
    groups: SharedMap<Arc<str>, Arc<[Arc<ApiService>]>>,
    count: usize,
    /// APIServices of aggregated servers, by namespace and name of their service.
    behind: HashMap<(String, String), Vec<Arc<ApiService>>>,
}

impl ApiServices {
    pub(crate) fn new(generation: u64, services: impl IntoIterator<Item = Arc<ApiService>>) -> Self {
        let all = services.into_iter().map(|service| (service.name.clone(), Some(service)));
        Self { generation, ..Self::default().with(all) }
    }

    /// Returns the next value with these APIServices replaced or removed.
    ///
    /// Cost: proportional to the number of changes. If there are aggregated servers, also to the number of all
    /// APIServices.
    pub(crate) fn with(&self, changes: impl IntoIterator<Item = (String, Option<Arc<ApiService>>)>) -> Self {
        let mut groups = self.groups.clone();
        let (mut count, mut remotes) = (self.count, self.behind.clone());
        for (name, service) in changes {
            let Some((version, group)) = name.split_once('.') else { continue };
            let known: &[Arc<ApiService>] = groups.get(group).map_or(&[], |versions| &**versions);
            let mut versions: Vec<_> = known.iter().filter(|known| known.version != version).cloned().collect();
            for gone in known.iter().filter(|known| known.version == version) {
                count -= 1;
                remove(&mut remotes, gone);
            }
            if let Some(service) = service {
                count += 1;
                if let Some(remote) = service.remote() {
                    let name = (remote.namespace.clone(), remote.name.clone());
                    remotes.entry(name).or_default().push(service.clone());
                }
                versions.push(service);
                versions.sort_by(|a, b| a.version.cmp(&b.version));
            }
            if versions.is_empty() {
                groups.remove(group);
            } else {
                groups.insert(group.into(), versions.into());
            }
        }
        Self { generation: self.generation + 1, groups, count, behind: remotes }
    }

    /// The generation, which increases with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The APIService of a version of a group; the core group's name is empty.
    ///
    /// Cost: a hash of the group and a scan of its versions.
    pub fn get(&self, group: &str, version: &str) -> Option<&Arc<ApiService>> {
        self.of_group(group).iter().find(|service| service.version == version)
    }

    /// The APIService of a version on an aggregated server; `None` for any other version.
    ///
    /// Cost: one comparison while no server is registered.
    pub fn remote(&self, group: &str, version: &str) -> Option<&Arc<ApiService>> {
        if self.behind.is_empty() {
            return None;
        }
        self.get(group, version).filter(|service| service.remote().is_some())
    }

    /// The APIServices of a group, by version.
    pub fn of_group(&self, group: &str) -> &[Arc<ApiService>] {
        self.groups.get(group).map_or(&[], |versions| &**versions)
    }

    /// The APIServices that name this service.
    pub fn behind(&self, namespace: &str, name: &str) -> &[Arc<ApiService>] {
        self.behind.get(&(namespace.to_owned(), name.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// The APIService with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<ApiService>> {
        let (version, group) = name.split_once('.')?;
        self.get(group, version)
    }

    /// All APIServices, in no order.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ApiService>> {
        self.groups.values().flat_map(|versions| versions.iter())
    }

    /// The APIServices of aggregated servers with their services, in no order.
    pub fn remotes(&self) -> impl Iterator<Item = (&Arc<ApiService>, &RemoteService)> {
        self.behind.values().flatten().filter_map(|service| Some((service, service.remote()?)))
    }

    /// The number of APIServices.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// Removes an APIService from the list of its service.
fn remove(behind: &mut HashMap<(String, String), Vec<Arc<ApiService>>>, gone: &ApiService) {
    let Some(remote) = gone.remote() else { return };
    let name = (remote.namespace.clone(), remote.name.clone());
    if let Some(services) = behind.get_mut(&name) {
        services.retain(|service| service.name != gone.name);
        if services.is_empty() {
            behind.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;

    use super::*;
    use crate::api_service::Backend;

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
            written: 0,
        })
    }

    #[test]
    fn a_group_version_resolves_to_its_server() {
        let remote = RemoteService {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            ca_bundle: Vec::new(),
            insecure_skip_tls_verify: false,
        };
        let services = [service("g", "v2", Backend::Remote(remote)), service("g", "v1", Backend::Local)];
        let aggregated = ApiServices::new(7, services);
        assert_eq!(aggregated.generation(), 7);
        assert!(aggregated.remote("g", "v1").is_none() && aggregated.remote("h", "v2").is_none());
        assert_eq!(aggregated.remote("g", "v2").unwrap().name, "v2.g");
        assert_eq!(aggregated.get("g", "v1").unwrap().name, "v1.g");
        assert_eq!(aggregated.behind("n", "s").len(), 1);
        assert!(aggregated.behind("n", "t").is_empty());
        let versions: Vec<&str> = aggregated.of_group("g").iter().map(|service| &*service.version).collect();
        assert_eq!(versions, ["v1", "v2"]);

        // Unchanged parts are shared.
        let next = aggregated.with([
            ("v2.g".to_owned(), Some(service("g", "v2", Backend::Local))),
            ("v1.h".to_owned(), Some(service("h", "v1", Backend::Local))),
            ("v9.none".to_owned(), None),
        ]);
        assert_eq!((next.generation(), next.len(), next.remotes().count()), (8, 3, 0));
        assert!(next.behind("n", "s").is_empty() && aggregated.behind("n", "s").len() == 1);
        assert!(Arc::ptr_eq(next.get("g", "v1").unwrap(), aggregated.get("g", "v1").unwrap()));
        let gone = next.with(["v1.g", "v2.g", "v1.h"].map(|name| (name.to_owned(), None)));
        assert_eq!((gone.len(), gone.services().count()), (0, 0));
    }
}
