//! Starts what runs inside the server as a client of its registry: the bootstrap, and the controllers that are switched on.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use keelson_access::Pki;
use keelson_controllers::{
    Bootstrap, ClusterRoleAggregation, Controller, GarbageCollection, IdentityCollection, KubernetesService,
    Leadership, NamespaceDeletion, NamespaceObjects, PodGarbageCollection, Progress, RegisteredServers,
};
use keelson_meta::ApiError;
use keelson_registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;

/// An address that belongs to nobody (RFC 5737): what would be sent there leaves the host on the way to most others.
const ELSEWHERE: &str = "192.0.2.1:9";

/// How this server stands among those on its store.
pub(crate) struct Place {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// By what its process is told from others of its name.
    pub(crate) holder: String,
    /// All of them.
    pub(crate) servers: Arc<RegisteredServers>,
}

/// The aggregation of cluster roles, if it is switched on.
///
/// # Errors
/// When the catalogue has no cluster roles.
pub(crate) fn aggregation(
    config: &Config,
    registry: &Arc<Registry>,
) -> Result<Option<Arc<ClusterRoleAggregation>>, ApiError> {
    let is_on = config.controllers.is_on(Controller::ClusterRoleAggregation);
    is_on.then(|| ClusterRoleAggregation::new(registry.clone()).map(Arc::new)).transpose()
}

/// Starts all of it; how far the bootstrap has come.
pub(crate) fn spawn(
    config: &Config,
    registry: &Arc<Registry>,
    pki: &Pki,
    place: Place,
    aggregation: Option<Arc<ClusterRoleAggregation>>,
    background: &TaskTracker,
    stopping: &CancellationToken,
) -> Arc<Progress> {
    let Place { addr, holder, servers } = place;
    let ranges = config.registry.service_ranges.clone();
    let service = Arc::new(KubernetesService::new(registry.clone(), ranges, servers.clone(), addr.port()));
    let bootstrap = Bootstrap::new(registry.clone(), service.clone(), aggregation.clone());
    let progress = bootstrap.progress();
    let (first, after) = (progress.clone(), stopping.clone());
    background.spawn(async move {
        // What these keep, the bootstrap makes first.
        if after.run_until_cancelled(first.finished()).await.is_some() {
            let aggregate = async {
                if let Some(aggregation) = aggregation {
                    aggregation.run(after.clone()).await;
                }
            };
            tokio::join!(service.run(after.clone()), aggregate);
        }
    });
    background.spawn(bootstrap.run(stopping.clone()));
    let (registry, root) = (registry.clone(), pki.server_ca_pem.clone());
    let leadership = Leadership::new(registry.clone(), &config.server_id, holder);
    let controllers = Controllers { config: config.clone(), registry, servers, root };
    if config.store.is_shared() {
        let stopping = stopping.clone();
        background.spawn(async move { leadership.run(stopping, |leading| controllers.run(leading)).await });
    } else {
        let stopping = stopping.clone();
        background.spawn(async move { controllers.run(stopping).await });
    }
    progress
}

/// The controllers of which one server runs all.
struct Controllers {
    config: Config,
    registry: Arc<Registry>,
    servers: Arc<RegisteredServers>,
    /// The certificates by which clients know the servers, in PEM.
    root: String,
}

impl Controllers {
    /// Runs those that are switched on, until told to stop.
    async fn run(&self, stopping: CancellationToken) {
        let running = TaskTracker::new();
        if let Err(error) = self.spawn(&running, &stopping) {
            tracing::error!(%error, "not all controllers could be started");
        }
        running.close();
        running.wait().await;
    }

    fn spawn(&self, running: &TaskTracker, stopping: &CancellationToken) -> Result<(), ApiError> {
        let registry = || self.registry.clone();
        let on = |controller| self.config.controllers.is_on(controller);
        let (servers, duration) = (self.servers.clone(), self.config.identity_duration);
        running.spawn(IdentityCollection::new(registry(), servers, duration).run(stopping.clone()));
        if on(Controller::ServiceAccount) {
            running.spawn(NamespaceObjects::service_accounts(registry()).run(stopping.clone()));
        }
        if on(Controller::RootCaCertificates) {
            running.spawn(NamespaceObjects::root_certificates(registry(), &self.root).run(stopping.clone()));
        }
        if on(Controller::GarbageCollector) {
            running.spawn(GarbageCollection::new(registry()).run(stopping.clone()));
        }
        if on(Controller::Namespace) {
            running.spawn(NamespaceDeletion::new(registry())?.run(stopping.clone()));
        }
        if on(Controller::PodGarbageCollector) {
            let collector = PodGarbageCollection::new(registry(), self.config.node_quarantine)?;
            running.spawn(collector.run(stopping.clone()));
        }
        Ok(())
    }
}

/// The address at which this server says that others reach it; `None` for one that nobody can reach.
pub(crate) fn advertised(config: &Config, addr: SocketAddr) -> Option<IpAddr> {
    config.advertise_address.or_else(|| reachable(addr.ip()))
}

/// The address at which others reach a server that listens on `bound`: that one, or the host's own where it listens on all
/// or only on the loopback; `None` for a host that nobody can reach.
fn reachable(bound: IpAddr) -> Option<IpAddr> {
    if !bound.is_unspecified() && !bound.is_loopback() {
        return Some(bound);
    }
    // Nothing is sent: this only asks which of its addresses the host would use.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_where_it_listens_unless_that_is_no_place() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        assert_eq!(reachable(address), Some(address));
        for nowhere in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let found = reachable(nowhere.parse().unwrap());
            assert!(found.is_none_or(|found| !found.is_loopback() && !found.is_unspecified()), "{nowhere}: {found:?}");
        }
    }
}
