//! Starts the controllers inside the server, which are clients of the registry: the bootstrap, and the enabled
//! controllers.
//!
//! The bootstrap, the configuration of aggregated servers, the service `kubernetes` and the aggregation of roles run in
//! every server. All other controllers run in one server on a store, by leader election if the store can be shared.
//! Each is a supervised task with its name in `--controllers`. `keelson_controllers` implements them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use keelson_access::{ClientSigner, RequestHeaders};
use keelson_admission::PolicyStatus;
use keelson_aggregator::{
    AggregatedObjects, Aggregator, AutomaticServices, Availability, PeerServers, RemoteContents, builtin_services,
};
use keelson_controllers::{
    AuthenticationPublication, Bootstrap, CertificateSigning, ClusterRoleAggregation, Controller, CoordinatedElection,
    EventExpiry, FlowApplication, FlowObjects, FlowSchemaStatus, GarbageCollection, IdentityCollection,
    KubernetesService, Leadership, NamespaceDeletion, NamespaceObjects, PodGarbageCollection, Progress, Publication,
    QuotaStatus, RegisteredServers, StorageVersionCollection, StorageVersionMigrator, StorageVersionPublication,
    storage_state_definition,
};
use keelson_extensions::{Extensions, InheritedDefinitions};
use keelson_meta::ApiError;
use keelson_outbound::Outbound;
use keelson_registry::Registry;
use keelson_supervision::{Supervisor, TaskGroup};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::keys::LiveKeys;
use crate::remote::PublishedFields;

/// The feature gate of coordinated leader election.
const COORDINATED_ELECTION: &str = "CoordinatedLeaderElection";

/// An address reserved for documentation (RFC 5737). The host routes it like most other external addresses.
const ELSEWHERE: &str = "192.0.2.1:9";

/// The membership of this server on its store.
pub(crate) struct Membership {
    /// The listening address.
    pub(crate) addr: SocketAddr,
    /// The identity of this process, to distinguish processes with the same server name.
    pub(crate) holder: String,
    /// All servers on the store.
    pub(crate) servers: Arc<RegisteredServers>,
}

/// The publication of storage versions, if it is enabled.
///
/// # Errors
/// When StorageVersions are not served.
pub(crate) fn publication(
    config: &Config,
    registry: &Arc<Registry>,
) -> Result<Option<StorageVersionPublication>, ApiError> {
    let is_on = config.registry.storage_version_api;
    is_on.then(|| StorageVersionPublication::new(registry.clone(), &config.server_id)).transpose()
}

/// The custom resources, including those that the server serves by itself until a definition with their name is
/// installed.
///
/// # Errors
/// When a definition cannot be served.
pub(crate) async fn extensions(
    config: &Config,
    registry: &Arc<Registry>,
    outbound: &Arc<Outbound>,
    inherited: Option<&InheritedDefinitions>,
) -> Result<Arc<Extensions>, ApiError> {
    let mut supplied = Vec::new();
    if config.registry.storage_version_api && config.registry.storage_states {
        let states = keelson_extensions::of_program(&storage_state_definition(), None);
        supplied.push(states.map_err(|error| ApiError::Internal(error.to_string()))?);
    }
    Extensions::start(registry.clone(), outbound.clone(), supplied, keelson_builtin::non_structural, inherited).await
}

/// The aggregation of cluster roles, if it is enabled.
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

/// Values that controllers share with other components.
pub(crate) struct ControllerParts {
    pub(crate) aggregation: Option<Arc<ClusterRoleAggregation>>,
    pub(crate) publication: Option<StorageVersionPublication>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) peers: Option<Arc<PeerServers>>,
    /// The application of flow schemas and priority levels.
    pub(crate) flow: FlowApplication,
    /// The header fields that clients must not set, as published by the servers on the store.
    pub(crate) fields: Arc<PublishedFields>,
}

/// The progress of a start.
pub(crate) struct Starting {
    pub(crate) bootstrap: Arc<Progress>,
    /// The published storage versions, if publishing is on.
    pub(crate) publication: Option<Arc<Publication>>,
}

impl Starting {
    /// Waits until this server has tried to publish its storage versions, so that it may write.
    pub(crate) async fn may_write(publication: Option<Arc<Publication>>) {
        if let Some(publication) = publication {
            publication.tried().await;
        }
    }
}

/// Starts the bootstrap and all controllers. Returns their progress.
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
    let service = Arc::new(
        KubernetesService::new(registry.clone(), ranges, servers.clone(), addr.port())
            .publishing(config.publishes_endpoints),
    );
    let published = move |headers: &RequestHeaders| fields.publish(headers);
    let authentication = Arc::new(AuthenticationPublication::new(registry.clone(), keys.authentication(), published));
    let bootstrap = Bootstrap::new(registry.clone(), authentication.clone(), service.clone(), aggregation.clone())
        .with_api_services(builtin_services(&registry.surface()))
        .with_flow(flow);
    let progress = bootstrap.progress();
    // The bootstrap creates the objects that these controllers maintain.
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
    let leadership = Leadership::new(registry.clone(), &config.server_id, holder).with_times(config.leadership);
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

/// Runs `work` after the bootstrap, unless the server stops earlier.
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

/// The controllers that run in only one server on the store.
struct Controllers {
    config: Config,
    registry: Arc<Registry>,
    extensions: Arc<Extensions>,
    aggregator: Arc<Aggregator>,
    peers: Option<Arc<PeerServers>>,
    servers: Arc<RegisteredServers>,
    /// The signer of client certificates.
    signer: watch::Receiver<Arc<ClientSigner>>,
    /// The authorities of the serving certificate, which controllers publish to clients.
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
        if self.config.registry.gates.is_on(COORDINATED_ELECTION) {
            match CoordinatedElection::new(registry())? {
                Some(election) => running.spawn("coordinated-leader-election", election.run(stopping())),
                None => tracing::warn!(
                    "no holder of a lease is elected: {COORDINATED_ELECTION} is on, but no version of LeaseCandidate is served; \
                     add --runtime-config coordination.k8s.io/v1beta1=true"
                ),
            }
        }
        if let Some(time) = self.config.event_ttl {
            running.spawn("event-expiry", EventExpiry::new(registry(), time)?.run(stopping()));
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

/// The address that this server advertises to others. `None` if it is unreachable. As upstream, an unspecified address
/// counts as none.
pub(crate) fn advertised(config: &Config, addr: SocketAddr) -> Option<IpAddr> {
    match config.advertise_address.filter(|given| !given.is_unspecified()) {
        Some(given) => is_elsewhere(given).then_some(given),
        None => reachable(addr.ip()),
    }
}

/// The address of this server in documents. A server that listens on all addresses of the host gets the one at which
/// other hosts reach it.
pub(crate) fn shown_address(config: &Config, addr: SocketAddr) -> SocketAddr {
    let elsewhere = addr.ip().is_unspecified().then(|| advertised(config, addr)).flatten();
    elsewhere.map_or(addr, |address| SocketAddr::new(address, addr.port()))
}

/// Logs a warning if no service can route to the advertised address. As upstream, the server starts anyway, since a
/// host that runs all components may have no other address.
pub(crate) fn check_advertised(config: &Config) {
    let given = config.advertise_address.is_some_and(|given| !given.is_unspecified());
    if config.bind.ip().is_loopback() && !given && reachable(config.bind.ip()).is_some() {
        tracing::info!(
            bind = %config.bind,
            "the server listens only on a loopback address, so pods can't reach it by the service default/kubernetes; \
             if they have to, set --bind or --advertise-address"
        );
    }
    if let Some(given) = config.advertise_address.filter(|given| !given.is_unspecified() && !is_elsewhere(*given)) {
        tracing::warn!(
            address = %given,
            "other hosts can't reach --advertise-address, so the service default/kubernetes has no endpoint for this server"
        );
    }
}

/// Returns true if other hosts can reach the address, as endpoints require.
const fn is_elsewhere(address: IpAddr) -> bool {
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return false;
    }
    match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

/// The address at which other hosts reach a server that listens on `bound`: `bound` itself, or an address of the host
/// if `bound` is unspecified or loopback. `None` if the host is unreachable.
fn reachable(bound: IpAddr) -> Option<IpAddr> {
    if is_elsewhere(bound) {
        return Some(bound);
    }
    // This sends no packet. It only selects the host's source address.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    is_elsewhere(address).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_unspecified_addresses_are_not_advertised() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        assert_eq!(reachable(address), Some(address));
        for nowhere in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let found = reachable(nowhere.parse().unwrap());
            assert!(found.is_none_or(|found| !found.is_loopback() && !found.is_unspecified()), "{nowhere}: {found:?}");
        }
    }
}
