//! Starts the clients of the registry inside the server: the bootstrap, and the enabled controllers.
//!
//! The bootstrap, the configuration of aggregated servers, the service `kubernetes` and the aggregation of roles run in every
//! server. One server on a store runs all other controllers, by leader election where the store can be shared. Each is a supervised
//! task under its name in `--controllers`. `keelson_controllers` implements them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use keelson_access::{ClientSigner, RequestHeaders};
use keelson_admission::PolicyStatus;
use keelson_aggregator::{
    AggregatedObjects, Aggregator, AutomaticServices, Availability, PeerServers, RemoteContents, builtin_services,
};
use keelson_controllers::{
    AuthenticationPublication, Bootstrap, CertificateSigning, ClusterRoleAggregation, Controller, FlowObjects,
    FlowSchemaStatus, GarbageCollection, IdentityCollection, KubernetesService, Leadership, NamespaceDeletion,
    NamespaceObjects, PodGarbageCollection, Progress, Publication, QuotaStatus, RegisteredServers,
    StorageVersionCollection, StorageVersionMigrator, StorageVersionPublication, storage_state_definition,
};
use keelson_extensions::Extensions;
use keelson_meta::{ApiError, Revision};
use keelson_outbound::Outbound;
use keelson_registry::Registry;
use keelson_supervision::{Supervisor, TaskGroup};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::keys::LiveKeys;
use crate::remote::PublishedFields;

/// An address reserved for documentation (RFC 5737): a route to it leaves the host as most others do.
const ELSEWHERE: &str = "192.0.2.1:9";

/// The membership of this server on its store.
pub(crate) struct Membership {
    /// The address it listens on.
    pub(crate) addr: SocketAddr,
    /// The identity of its process among others of its name.
    pub(crate) holder: String,
    /// All of them.
    pub(crate) servers: Arc<RegisteredServers>,
}

/// The publication of storage versions, if it is switched on.
///
/// # Errors
/// When they are not served.
pub(crate) fn publication(
    config: &Config,
    registry: &Arc<Registry>,
) -> Result<Option<StorageVersionPublication>, ApiError> {
    let is_on = config.registry.storage_version_api;
    is_on.then(|| StorageVersionPublication::new(registry.clone(), &config.server_id)).transpose()
}

/// The custom resources, and what the server serves as one by itself until a definition of the name is installed.
///
/// # Errors
/// When something that is defined can't be served.
pub(crate) async fn extensions(
    config: &Config,
    registry: &Arc<Registry>,
    outbound: &Arc<Outbound>,
) -> Result<Arc<Extensions>, ApiError> {
    let mut supplied = Vec::new();
    if config.registry.storage_version_api && config.registry.storage_states {
        let states = keelson_extensions::of_program(&storage_state_definition(), None);
        supplied.push(states.map_err(|error| ApiError::Internal(error.to_string()))?);
    }
    Extensions::start(registry.clone(), outbound.clone(), supplied, keelson_builtin::non_structural).await
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

/// The parts that controllers share with other components.
pub(crate) struct ControllerParts {
    pub(crate) aggregation: Option<Arc<ClusterRoleAggregation>>,
    pub(crate) publication: Option<StorageVersionPublication>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) peers: Option<Arc<PeerServers>>,
    /// The revision up to which flow schemas and priority levels are in effect.
    pub(crate) flow: watch::Receiver<Revision>,
    /// The header fields that no client may set, since servers on the store have published them.
    pub(crate) fields: Arc<PublishedFields>,
}

/// The progress of a start.
pub(crate) struct Starting {
    pub(crate) bootstrap: Arc<Progress>,
    /// The published storage versions, if publishing is on.
    pub(crate) publication: Option<Arc<Publication>>,
}

impl Starting {
    /// Waits until this server may write what it stores, as far as that could be published.
    pub(crate) async fn may_write(publication: Option<Arc<Publication>>) {
        if let Some(publication) = publication {
            publication.tried().await;
        }
    }
}

/// Starts all of it; how far that has come.
pub(crate) fn spawn(
    config: &Config,
    registry: &Arc<Registry>,
    keys: &LiveKeys,
    place: Membership,
    parts: ControllerParts,
    background: &TaskGroup,
) -> Starting {
    let stopping = background.stopping();
    let Membership { addr, holder, servers } = place;
    let ControllerParts { aggregation, publication, extensions, aggregator, peers, flow, fields } = parts;
    let ranges = config.registry.service_ranges.clone();
    let service = Arc::new(KubernetesService::new(registry.clone(), ranges, servers.clone(), addr.port()));
    let published = move |headers: &RequestHeaders| fields.publish(headers);
    let authentication = Arc::new(AuthenticationPublication::new(registry.clone(), keys.authentication(), published));
    let bootstrap = Bootstrap::new(registry.clone(), authentication.clone(), service.clone(), aggregation.clone())
        .with_api_services(builtin_services(&registry.surface()))
        .with_flow(flow);
    let progress = bootstrap.progress();
    // The bootstrap creates the objects that these maintain.
    let publishing = authentication.run(stopping.clone());
    background.spawn("cluster-authentication-info", after(&progress, stopping, publishing));
    background.spawn("kubernetes-service", after(&progress, stopping, service.run(stopping.clone())));
    if let Some(aggregation) = aggregation {
        let name = Controller::ClusterRoleAggregation.name();
        background.spawn(name, after(&progress, stopping, aggregation.run(stopping.clone())));
    }
    let publication = publication.map(|publication| {
        let progress = publication.progress();
        background.spawn("storage-versions", publication.run(stopping.clone()));
        progress
    });
    let (may_write, told) = (Starting::may_write(publication.clone()), stopping.clone());
    let is_done = config.bootstrapped;
    if is_done {
        bootstrap.skip();
    }
    background.spawn_finite("bootstrap", async move {
        if !is_done && told.run_until_cancelled(may_write).await.is_some() {
            bootstrap.run(told).await;
        }
    });
    let (registry, signer, root_certificates) = (registry.clone(), keys.signer(), keys.root_certificates());
    let leadership = Leadership::new(registry.clone(), &config.server_id, holder);
    let supervisor = background.supervisor().clone();
    let (config, is_shared) = (config.clone(), config.store.is_shared());
    let controllers =
        Controllers { config, registry, extensions, aggregator, peers, servers, signer, root_certificates, supervisor };
    let (stopping, may_write) = (stopping.clone(), Starting::may_write(publication.clone()));
    let lead = async move {
        if stopping.run_until_cancelled(may_write).await.is_none() {
            return;
        }
        if is_shared {
            leadership.run(stopping, |leading| controllers.run(leading)).await;
        } else {
            controllers.run(stopping).await;
        }
    };
    background.spawn(if is_shared { "leader-election" } else { "controllers" }, lead);
    Starting { bootstrap: progress, publication }
}

/// Does some work once the bootstrap is over, unless the server stops before.
fn after<W: Future<Output = ()> + Send + 'static>(
    progress: &Arc<Progress>,
    stopping: &CancellationToken,
    work: W,
) -> impl Future<Output = ()> + Send + 'static + use<W> {
    let (progress, stopping) = (progress.clone(), stopping.clone());
    async move {
        if stopping.run_until_cancelled(progress.finished()).await.is_some() {
            work.await;
        }
    }
}

/// The controllers that run in one server only.
struct Controllers {
    config: Config,
    registry: Arc<Registry>,
    extensions: Arc<Extensions>,
    aggregator: Arc<Aggregator>,
    peers: Option<Arc<PeerServers>>,
    servers: Arc<RegisteredServers>,
    /// The signer of client certificates.
    signer: watch::Receiver<Arc<ClientSigner>>,
    /// The certificates by which clients know the server.
    root_certificates: watch::Receiver<String>,
    supervisor: Supervisor,
}

impl Controllers {
    /// Runs the enabled controllers until the server stops.
    async fn run(&self, stopping: CancellationToken) {
        let running = TaskGroup::new(&self.supervisor, &stopping);
        if let Err(error) = self.spawn(&running) {
            self.supervisor.fail("controllers", format!("could not all be started: {error}"));
        }
        running.ended().await;
        stopping.cancelled().await;
    }

    fn spawn(&self, running: &TaskGroup) -> Result<(), ApiError> {
        let registry = || self.registry.clone();
        let stopping = || running.stopping().clone();
        let on = |controller| self.config.controllers.is_on(controller);
        let (servers, duration) = (self.servers.clone(), self.config.identity_duration);
        running.spawn("server-leases", IdentityCollection::new(registry(), servers, duration).run(stopping()));
        running.spawn("custom-resource-deletion", self.extensions.clone().empty_definitions(stopping()));
        let automatic = AutomaticServices::new(self.aggregator.clone(), self.servers.clone());
        running.spawn("automatic-api-services", automatic.run(stopping()));
        running.spawn("api-service-availability", Availability::new(self.aggregator.clone())?.run(stopping()));
        running.spawn(
            "flow-control-objects",
            FlowObjects::new(registry(), self.config.flow_object_interval).run(stopping()),
        );
        running.spawn("flow-schema-status", FlowSchemaStatus::new(registry())?.run(stopping()));
        if on(Controller::CertificateSigning) {
            let signing = CertificateSigning::new(registry(), self.signer.clone(), self.config.random.clone())?;
            running.spawn(Controller::CertificateSigning.name(), signing.run(stopping()));
        }
        if on(Controller::ServiceAccount) {
            let accounts = NamespaceObjects::service_accounts(registry());
            running.spawn(Controller::ServiceAccount.name(), accounts.run(stopping()));
        }
        if on(Controller::RootCaCertificates) {
            let certificates = NamespaceObjects::root_certificates(registry(), self.root_certificates.clone());
            running.spawn(Controller::RootCaCertificates.name(), certificates.run(stopping()));
        }
        if on(Controller::ResourceQuota) {
            running.spawn(Controller::ResourceQuota.name(), QuotaStatus::new(registry()).run(stopping()));
        }
        if on(Controller::GarbageCollector) {
            let elsewhere = Arc::new(AggregatedObjects::new(self.aggregator.clone(), self.peers.clone()));
            let collection = GarbageCollection::with_elsewhere(registry(), elsewhere);
            running.spawn(Controller::GarbageCollector.name(), collection.run(stopping()));
        }
        if on(Controller::StorageVersionGarbageCollector) && self.config.registry.storage_version_api {
            let collection = StorageVersionCollection::new(registry())?;
            running.spawn(Controller::StorageVersionGarbageCollector.name(), collection.run(stopping()));
        }
        if on(Controller::StorageVersionMigrator) && self.config.registry.storage_version_api {
            let migrator = StorageVersionMigrator::new(registry())?;
            running.spawn(Controller::StorageVersionMigrator.name(), migrator.run(stopping()));
        }
        if on(Controller::ValidatingPolicyStatus) {
            running.spawn(Controller::ValidatingPolicyStatus.name(), PolicyStatus::new(registry())?.run(stopping()));
        }
        if on(Controller::PodGarbageCollector) {
            let collector = PodGarbageCollection::new(registry(), self.config.node_quarantine)?;
            running.spawn(Controller::PodGarbageCollector.name(), collector.run(stopping()));
        }
        if on(Controller::Namespace) {
            let elsewhere = Arc::new(RemoteContents::new(self.aggregator.clone(), self.peers.clone()));
            let deletion = NamespaceDeletion::new(registry())?.also_elsewhere(elsewhere);
            running.spawn(Controller::Namespace.name(), deletion.run(stopping()));
        }
        Ok(())
    }
}

/// The address that this server advertises to others; `None` for one that cannot be reached. As upstream, an unspecified address
/// counts as none.
pub(crate) fn advertised(config: &Config, addr: SocketAddr) -> Option<IpAddr> {
    match config.advertise_address.filter(|given| !given.is_unspecified()) {
        Some(given) => is_elsewhere(given).then_some(given),
        None => reachable(addr.ip()),
    }
}

/// The address that documents name as this server's. A server that listens on every address of the host is named by the one at which
/// others reach it.
pub(crate) fn shown_address(config: &Config, addr: SocketAddr) -> SocketAddr {
    let elsewhere = addr.ip().is_unspecified().then(|| advertised(config, addr)).flatten();
    elsewhere.map_or(addr, |address| SocketAddr::new(address, addr.port()))
}

/// Warns the operator of an address that no service can lead to. As upstream, the server starts with it: a host that runs
/// everything may have no other.
pub(crate) fn check_advertised(config: &Config) {
    let given = config.advertise_address.is_some_and(|given| !given.is_unspecified());
    if config.bind.ip().is_loopback() && !given && reachable(config.bind.ip()).is_some() {
        tracing::info!(
            bind = %config.bind,
            "the server listens on the loopback address alone, and the service default/kubernetes leads to another address of the \
             host: give --bind or --advertise-address where pods are to reach it"
        );
    }
    if let Some(given) = config.advertise_address.filter(|given| !given.is_unspecified() && !is_elsewhere(*given)) {
        tracing::warn!(
            address = %given,
            "--advertise-address is one that others can't reach, so the service default/kubernetes does not lead to this server"
        );
    }
}

/// Returns true if other hosts can reach such an address: endpoints can have no other.
const fn is_elsewhere(address: IpAddr) -> bool {
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return false;
    }
    match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

/// The address at which others reach a server that listens on `bound`. That is `bound`, or the host's own for all addresses and the
/// loopback; `None` for a host that cannot be reached.
fn reachable(bound: IpAddr) -> Option<IpAddr> {
    if is_elsewhere(bound) {
        return Some(bound);
    }
    // Nothing is sent: this only asks which of its addresses the host would use.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    is_elsewhere(address).then_some(address)
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
