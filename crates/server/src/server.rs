//! The composition of a server: creates its components in order.
//!
//! The order is store, cache, registry, certificates, identity, controllers, port. Each uses the ones before it, and
//! clients come last. All steps that can fail run before the server registers its name.
// SIZE: one composition, whose order is the subject of the file.

mod running;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use futures::future::BoxFuture;
use keelson_access::FileReads;
use keelson_access::pki::{self, PendingFiles, Pki, PkiError, WrittenFiles};
use keelson_aggregator::Aggregator;
use keelson_cache::{AddError, Cache, CacheConfig, Compactor};
use keelson_controllers::{
    ClusterRoleAggregation, FlowConfiguration, IdentityConfig, IdentityLease, RegisteredServers,
    StorageVersionPublication, identity_key,
};
use keelson_extensions::Extensions;
use keelson_http::health::CheckResult;
use keelson_http::listener::{self, Limits, Port};
use keelson_http::shutdown::Shutdown;
use keelson_meta::host_port;
use keelson_outbound::{NodeClient, Outbound};
use keelson_registry::Registry;
use keelson_storage::{BoundedStore, Fence, FencedStore, Store, StoreProbe, copy};
use keelson_supervision::{Keeper, Serving, Supervisor, TaskGroup};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::audit::RunningAudit;
use crate::config::Config;
use crate::controllers::{self, ControllerParts, Membership};
use crate::data_directory::{self, OwnDirectory, RecordedStore};
use crate::documents::{self, OtherServers};
use crate::egress::connect_store_through;
use crate::encryption::{Encryption, LoadedConfiguration};
use crate::flow_control;
use crate::fork::{ForkOrigin, Inherited};
use crate::health::health;
use crate::keys::LiveKeys;
use crate::metrics::StoreRequests;
use crate::notices::Notices;
use crate::peer_access::PeerAccess;
use crate::peers::Peers;
use crate::pipeline::PipelineParts;
use crate::readiness::Readiness;
use crate::registry::{AdmissionParts, outbound_of, registry_of};
use crate::remote::{AggregatedServers, PublishedFields};
use crate::rights::{OperatorFiles, Rights};
use crate::store::{Opened, StoreConfig, StoreMetrics};
use crate::tokens::{Tokens, token_issuer};

pub use self::running::RunningServer;

/// The name of the kubeconfig in the data directory.
const KUBECONFIG: &str = "kubeconfig";

/// Starts servers.
pub struct Server;

/// A server with all components, before it registers on the store.
struct PreparedServer {
    config: Config,
    supervisor: Supervisor,
    port: Port,
    addr: SocketAddr,
    store: Arc<dyn Store>,
    encryption: Option<Encryption>,
    metrics: StoreMetrics,
    store_requests: Arc<StoreRequests>,
    fence: Arc<Fence>,
    /// The store for this server's writes, with their limits.
    fenced: Arc<dyn Store>,
    registry: Arc<Registry>,
    outbound: Arc<Outbound>,
    nodes: Arc<NodeClient>,
    admission: AdmissionParts,
    pki: Pki,
    unsaved: PendingFiles,
    tokens: Tokens,
    keys: Arc<LiveKeys>,
    peer_access: Option<PeerAccess>,
    aggregation: Option<Arc<ClusterRoleAggregation>>,
    publication: Option<StorageVersionPublication>,
    extensions: Arc<Extensions>,
    aggregator: Arc<Aggregator>,
    rights: Rights,
    flow: FlowConfiguration,
    /// The values that a fork shares with its origin.
    inherited: Option<Arc<Inherited>>,
}

impl Server {
    /// Starts a server and returns once it answers requests.
    ///
    /// # Errors
    /// When the store cannot be opened, certificates cannot be read or created, the address is in use, or running
    /// servers on the store would not accept this server's signatures.
    pub fn start(config: Config) -> BoxFuture<'static, anyhow::Result<RunningServer>> {
        Box::pin(async { PreparedServer::new(config).await?.take_place().await })
    }

    /// As [`Server::start`], but returns `None` if it is stopped while it loads its objects. After a later stop it
    /// still returns a running server, which the caller must shut down, since other servers know of it by then.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_unless(
        config: Config,
        told_to_stop: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<RunningServer>> {
        let prepared = tokio::select! {
            () = told_to_stop => return Ok(None),
            prepared = PreparedServer::new(config) => prepared?,
        };
        // ORDER: from here on the start is not cancelled. The store may have written the lease before it answers.
        prepared.take_place().await.map(Some)
    }
}

impl PreparedServer {
    /// Boxed like [`take_place`](Self::take_place), so that the whole start is compiled only in this crate.
    fn new(config: Config) -> BoxFuture<'static, anyhow::Result<Self>> {
        Box::pin(Self::prepare(config))
    }

    async fn prepare(mut config: Config) -> anyhow::Result<Self> {
        // SIZE: one list of the steps of a start, in their order.
        connect_store_through(&config.egress, &mut config.store);
        config.store.hold_memory();
        // ORDER: the check comes before anything is created in the directory.
        let least = config.store.check_there(config.data_dir.as_deref(), config.accept_loss)?;
        data_directory::warn_of_other_store(&config);
        // ORDER: the operator's files are validated before anything is created, and created keys are saved when no
        // other step can fail. A failed start leaves nothing behind.
        let (pki, unsaved) = prepare_pki(&config).context("preparing certificates")?;
        let issuer = token_issuer(&config, &pki)?;
        let peer_access = PeerAccess::new(&config, &pki)?;
        let keys = LiveKeys::new(&config, &pki, &issuer)?;
        let files = OperatorFiles::read(&config)?;
        let encryption = LoadedConfiguration::read(&config)?;
        let port = port(&config).await?;
        let addr = port.local_addr().context("asking for the address")?;
        let supervisor = Supervisor::default();
        let Opened { store, metrics } = data_directory::open_store(&config, least, &supervisor).await?;
        if unsaved.makes_keys() && copy::holds_objects(&*store).await.context("looking into the store")? {
            tracing::warn!(
                "new keys were made for a store that holds objects; tokens and certificates of other keys are refused"
            );
        }
        let (store, encryption) = LoadedConfiguration::over(encryption, &config, store).await;
        let inherited = config.inherited.take();
        let cache = cache_of(&config, &store, inherited.as_deref(), &supervisor).await;
        let cache = cache.context("loading the store into the cache")?;
        let fence = Arc::new(Fence::new(identity_key(&config.server_id), config.clock.clone()));
        let store_requests = Arc::<StoreRequests>::default();
        let fenced = fenced(&config, &store, &fence, &store_requests);
        let rights = Rights::new(&config, &cache, files)?;
        let (outbound, services) = outbound_of(&config, &pki);
        let nodes = config.nodes.client(config.outbound_connections, &config.egress)?;
        let (registry, admission) = {
            let origin = inherited.as_ref().map(|inherited| &**inherited.definitions.apis());
            registry_of(&config, fenced.clone(), cache, &rights, &outbound, origin)?
        };
        services.are_those_of(&registry);
        registry.ensure_system_namespaces().await.context("making the system namespaces")?;
        let tokens = Tokens::new(&config, &registry, issuer, &rights, &outbound)?;
        let aggregation = controllers::aggregation(&config, &registry)?;
        let publication = controllers::publication(&config, &registry)?;
        let extensions =
            controllers::extensions(&config, &registry, &outbound, inherited.as_ref().map(|it| &it.definitions))
                .await
                .context("serving custom resources")?;
        let aggregator = Aggregator::start(registry.clone(), outbound.clone()).context("reading API services")?;
        let flow = flow_control::objects(&registry).context("reading flow schemas")?;
        Ok(Self {
            config,
            supervisor,
            port,
            addr,
            store,
            encryption,
            metrics,
            store_requests,
            fence,
            fenced,
            registry,
            outbound,
            nodes,
            admission,
            pki,
            unsaved,
            tokens,
            keys: Arc::new(keys),
            peer_access,
            aggregation,
            publication,
            extensions,
            aggregator,
            rights,
            flow,
            inherited,
        })
    }

    /// Registers the server on the store, and runs it.
    fn take_place(self) -> BoxFuture<'static, anyhow::Result<RunningServer>> {
        Box::pin(self.take_place_and_run())
    }

    async fn take_place_and_run(mut self) -> anyhow::Result<RunningServer> {
        controllers::check_advertised(&self.config);
        // ORDER: all other steps that can fail come before this server registers its name. A process with the same name
        // then stops for good, so a later failure would leave no running server.
        let peers = peers(&self).await?;
        // ORDER: the lock comes before writes to the directory, whose files a running server may use.
        let directory = OwnDirectory::take(&self.config).await?;
        let (saved, kubeconfig) = match self.save_keys().await {
            Ok(saved) => saved,
            Err(error) => {
                directory.take_back();
                return Err(error);
            }
        };
        match register(&self, peers).await {
            Ok((identity, place)) => Ok(self.run(identity, place, kubeconfig, directory)),
            // Another server with other keys has registered meanwhile, and its keys are those of the cluster.
            Err(refused) => {
                keelson_supervision::spawn_blocking(|| {
                    saved.take_back();
                    directory.take_back();
                })
                .await?;
                Err(refused)
            }
        }
    }

    /// Writes the created keys and certificates, and the administrator's kubeconfig.
    async fn save_keys(&mut self) -> anyhow::Result<(WrittenFiles, Option<PathBuf>)> {
        let mut unsaved = std::mem::take(&mut self.unsaved);
        let kubeconfig = self.config.data_dir.as_ref().map(|directory| directory.join(KUBECONFIG));
        if let Some(path) = &kubeconfig {
            self.pki.keep_kubeconfig(path, &url(self.addr), &mut unsaved).context("writing the kubeconfig")?;
        }
        if let Some(directory) = &self.config.data_dir
            && let Some(noted) = RecordedStore::for_config(&self.config.store, directory)
        {
            unsaved.keep_note(directory.join(data_directory::NOTE), &noted.to_line()).context("noting the store")?;
        }
        let saved = keelson_supervision::spawn_blocking(|| unsaved.save()).await?;
        Ok((saved.context("saving keys and certificates")?, kubeconfig))
    }

    /// Runs the registered server. It answers requests when this returns.
    fn run(
        self,
        identity: IdentityLease,
        place: Membership,
        kubeconfig: Option<PathBuf>,
        directory: OwnDirectory,
    ) -> RunningServer {
        // SIZE: one list of the components that run, in the order in which they start.
        let Self { config, supervisor, addr, store, encryption, fence, registry, outbound, pki, .. } = self;
        let identity = Some(Keeper::start(&supervisor, "identity", |stopping| identity.run(stopping)));
        let stopping = CancellationToken::new();
        let shutdown = Shutdown::new(stopping.clone(), config.shutdown);
        let background = TaskGroup::new(&supervisor, &stopping);
        supervisor.watch_threads(&stopping);
        let (announced, servers) = (shutdown.announced().clone(), place.servers.clone());
        background.spawn_finite("departure", async move {
            announced.cancelled().await;
            servers.leave();
        });
        let noting = Arc::downgrade(&self.fenced);
        let refusal = move || noting.upgrade().and_then(|store| store.refusal());
        let (probe, probing) = StoreProbe::start(self.fenced);
        let told = stopping.clone();
        background.spawn("store-probe", async move {
            let _: Option<()> = told.run_until_cancelled_owned(probing).await;
        });
        let compactor = Compactor::new(store.clone(), registry.cache().clone(), config.clock.clone(), config.history);
        background.spawn("compactor", compactor.run(stopping.clone()));
        let fields = PublishedFields::new(&pki.front_proxy.headers);
        let peers = self.peer_access.as_ref();
        let peers = peers.map(|access| access.follow(&self.aggregator, &place.servers, &config.server_id, &background));
        let known = (&self.aggregator, &registry);
        let notices = Notices::start(&config, &self.keys, known, &place.servers, &background);
        let parts = ControllerParts {
            aggregation: self.aggregation,
            publication: self.publication,
            extensions: self.extensions.clone(),
            aggregator: self.aggregator.clone(),
            peers: peers.clone(),
            flow: self.flow.application(),
            fields: fields.clone(),
        };
        let reads = self.rights.reads();
        let audit = self.rights.follow(&self.tokens.foreign, &background, &stopping, &outbound);
        self.admission.follow(&config.admission_configuration, &background, &stopping);
        if let Some(encryption) = &encryption {
            encryption.follow(registry.cache(), &background, &stopping);
        }
        background.spawn("custom-resources", self.extensions.clone().run(stopping.clone()));
        let remotes = AggregatedServers::new(self.aggregator.clone(), outbound.clone(), fields.clone(), peers.clone());
        background.spawn("api-services", self.aggregator.clone().run(stopping.clone()));
        let starting = controllers::spawn(&config, &registry, &self.keys, place, parts, &background);

        let standing = (store_check(&config.store, fence.clone(), probe), refusal);
        let health = health(
            &supervisor,
            standing,
            cache_check(&registry),
            &starting,
            (shutdown.announced(), encryption.as_ref()),
        );
        if let Some(traces) = config.traces.clone() {
            background.spawn(
                "trace-export",
                traces.export(config.egress.clone(), config.server_id.clone(), stopping.clone()),
            );
        }
        let told = stopping.clone();
        let (readiness, following) = {
            let (ready, bootstrap) = (health.ready.clone(), starting.bootstrap.clone());
            Readiness::follow(ready, bootstrap, config.server_id.clone(), addr)
        };
        background.spawn_finite("readiness", async move {
            let _: Option<()> = told.run_until_cancelled_owned(following).await;
        });
        let others = OtherServers { aggregator: self.aggregator, peers };
        let documentation = documents::documentation(&registry, others.clone(), self.inherited.as_deref());
        let origin = ForkOrigin::new(&config, &pki, (&registry, &self.extensions, &documentation));
        let parts = PipelineParts {
            supervisor: supervisor.clone(),
            registry: registry.clone(),
            outbound: outbound.clone(),
            nodes: config.nodes.clone().access(self.nodes, fields, &background),
            admission_counts: self.admission.counts,
            others,
            documentation,
            extensions: self.extensions,
            tokens: self.tokens,
            health,
            store_metrics: self.metrics,
            store_requests: self.store_requests,
            encryption,
            auditor: audit.auditor.clone(),
            reads: file_reads(reads, &self.keys, self.peer_access.as_ref(), &audit),
        };
        let pipeline = parts.into_pipeline(&config, controllers::shown_address(&config, addr), shutdown.clone());
        let pipeline = pipeline.with_remote_servers(remotes, background.clone());
        let pipeline = pipeline.with_certificates(self.keys.certificates());
        pipeline.metrics().add_source(move || notices.samples());
        let dropping = pipeline.metrics().clone().follow(registry.surfaces().changes());
        let dropping = stopping.clone().run_until_cancelled_owned(dropping);
        background.spawn("request-metrics", async move {
            let _: Option<()> = dropping.await;
        });
        flow_control::follow(self.flow, pipeline.flow_control(), &background);
        let listener = listener::serve(self.port, self.keys.tls(), Arc::new(pipeline), limits(&config, &registry));
        self.keys.clone().follow(&outbound, kubeconfig.clone().map(|path| (path, url(addr))), &background);
        let serving = Serving::start(stopping, background, listener);
        tracing::info!(server_id = config.server_id, %addr, "the server listens");
        RunningServer {
            addr,
            origin,
            server_id: config.server_id,
            pki,
            kubeconfig,
            registry,
            outbound,
            starting,
            readiness,
            store,
            fence,
            shared: matches!(config.store, StoreConfig::Shared(_)),
            audit,
            shutdown,
            request_timeout: config.request_timeout,
            serving,
            identity,
            _directory: directory,
        }
    }
}

/// Opens the port.
async fn port(config: &Config) -> anyhow::Result<Port> {
    if let Some(transport) = &config.transport {
        return Ok(Port::Other(transport.clone()));
    }
    let port = TcpListener::bind(config.bind).await;
    let listening = || format!("listening on {}; choose another address with --bind if it is in use", config.bind);
    port.map(Port::Tcp).with_context(listening)
}

/// The counts of a server's file reads, by the file's content.
fn file_reads(
    mut reads: Vec<(&'static str, FileReads)>,
    keys: &LiveKeys,
    peers: Option<&PeerAccess>,
    audit: &RunningAudit,
) -> Vec<(&'static str, FileReads)> {
    reads.push(("keys", keys.reads().clone()));
    reads.extend(peers.map(|access| ("peer-authorities", access.reads().clone())));
    if audit.auditor.is_some() {
        reads.push(("audit-policy", audit.policy_reads.clone()));
    }
    reads
}

/// Limits the writes of this server: by size, and on a shared store by the validity of its identity.
fn fenced(
    config: &Config,
    store: &Arc<dyn Store>,
    fence: &Arc<Fence>,
    requests: &Arc<StoreRequests>,
) -> Arc<dyn Store> {
    let bounded = match config.store {
        StoreConfig::Etcd(_) => BoundedStore::on_etcd(store.clone(), config.max_object_bytes),
        StoreConfig::Memory
        | StoreConfig::InMemory(_)
        | StoreConfig::Sqlite(_)
        | StoreConfig::Postgres(_)
        | StoreConfig::Shared(_) => BoundedStore::new(store.clone(), config.max_object_bytes),
    };
    let bounded = Arc::new(bounded.metered(requests.clone()));
    if config.store.is_shared() { Arc::new(FencedStore::new(bounded, fence.clone())) } else { bounded }
}

/// The check that the cache receives events from the store.
fn cache_check(registry: &Registry) -> impl Fn() -> CheckResult + Send + Sync + 'static {
    let cache = registry.cache().clone();
    move || cache.healthy().map_err(|fault| fault.to_string())
}

/// The servers on the store, after the comparison with their keys.
async fn peers(prepared: &PreparedServer) -> anyhow::Result<Peers> {
    let PreparedServer { config, registry, addr, .. } = prepared;
    let servers = registered_servers(config, registry, *addr);
    let mut peers = Peers::new(config, &prepared.pki, prepared.tokens.all.issuer(), servers)?;
    // ORDER: before this server registers its name, which another process may have.
    peers.check().await?;
    Ok(peers)
}

/// Registers this server on the store.
async fn register(prepared: &PreparedServer, mut peers: Peers) -> anyhow::Result<(IdentityLease, Membership)> {
    let PreparedServer { config, registry, fence, addr, keys, .. } = prepared;
    let identity = identity_config(config, *addr, keys.published());
    let lease = IdentityLease::register(registry.clone(), fence.clone(), &*config.random, identity).await;
    let lease = lease.context("registering this server's identity")?.announcing(peers.servers().leaving().clone());
    let lease = peers.join(lease).await?;
    let place = Membership { addr: *addr, holder: lease.holder().to_owned(), servers: peers.servers() };
    Ok((lease, place))
}

/// Checks that the store answers, and accepts writes of this server.
fn store_check(
    config: &StoreConfig,
    fence: Arc<Fence>,
    probe: StoreProbe,
) -> impl Fn() -> CheckResult + Send + Sync + 'static {
    let fence = config.is_shared().then_some(fence);
    // The probe checks the fence too, but only at intervals.
    move || match fence.as_ref().map(|fence| fence.check()) {
        Some(Err(lost)) => Err(lost.to_string()),
        Some(Ok(())) | None => probe.check(),
    }
}

/// The servers on the store, including this one with the address at which others reach it, if any.
fn registered_servers(config: &Config, registry: &Arc<Registry>, addr: SocketAddr) -> Arc<RegisteredServers> {
    let own = controllers::advertised(config, addr).map(|address| SocketAddr::new(address, addr.port()));
    Arc::new(RegisteredServers::new(registry.clone(), own, config.identity_interval))
}

fn identity_config(
    config: &Config,
    addr: SocketAddr,
    annotations: watch::Receiver<BTreeMap<String, String>>,
) -> IdentityConfig {
    let address = SocketAddr::new(controllers::advertised(config, addr).unwrap_or(addr.ip()), addr.port());
    // The unspecified address counts as none, as for clients.
    let peer_ip = config.peer_advertise_ip.filter(|ip| !ip.is_unspecified()).unwrap_or(address.ip());
    IdentityConfig {
        server_id: config.server_id.clone(),
        host: Config::host_name(),
        address,
        peer_address: SocketAddr::new(peer_ip, config.peer_advertise_port.unwrap_or(address.port())),
        annotations,
        duration: config.identity_duration,
        interval: config.identity_interval,
    }
}

/// The keys and certificates, and those of them that must be saved.
fn prepare_pki(config: &Config) -> anyhow::Result<(Pki, PendingFiles)> {
    let (clock, random) = (&*config.clock, &*config.random);
    Ok(match &config.data_dir {
        Some(directory) => pki::prepare(directory, &config.pki, clock, random).map_err(with_way_on)?,
        None => {
            let made = config.made_pki.clone().map_or_else(|| pki::ephemeral(&config.pki, clock, random), Ok)?;
            (made, PendingFiles::default())
        }
    })
}

/// Adds the name of the flag that accepts the loss.
fn with_way_on(error: PkiError) -> anyhow::Error {
    match error {
        PkiError::KeyMissing { .. } | PkiError::Lost { .. } => {
            anyhow!("{error}, or start with --accept-loss to have new ones made")
        }
        other => other.into(),
    }
}

/// The URL of the server for a client on this host.
fn url(addr: SocketAddr) -> String {
    let host = if addr.ip().is_unspecified() { "localhost".to_owned() } else { addr.ip().to_string() };
    format!("https://{}", host_port(&host, addr.port()))
}

/// The cache of a server. A fork begins with the collections of its origin.
async fn cache_of(
    config: &Config,
    store: &Arc<dyn Store>,
    inherited: Option<&Inherited>,
    supervisor: &Supervisor,
) -> Result<Arc<Cache>, AddError> {
    let settings = cache_config(config, supervisor);
    if let Some(inherited) = inherited {
        return Cache::from_state(store.clone(), &inherited.cache, settings).await;
    }
    let specs = keelson_builtin::collection_specs_for(config.registry.release(), &config.registry.service_ranges);
    Cache::start(store.clone(), specs, settings).await
}

fn cache_config(config: &Config, supervisor: &Supervisor) -> CacheConfig {
    CacheConfig {
        supervisor: supervisor.clone(),
        history: config.history,
        history_bytes: config.history_bytes,
        view_bytes: config.view_bytes,
        packing: config.packing,
        check_interval: config.cache_check_interval,
        ..CacheConfig::new(config.clock.clone())
    }
}

/// The limits of the listener.
fn limits(config: &Config, registry: &Registry) -> Limits {
    let cache = registry.cache().clone();
    Limits {
        connections: config.connections,
        unread: config.unread,
        pinned_bytes: config.pinned_bytes,
        replaced_bytes: Arc::new(move || cache.replaced_bytes()),
        streams: config.streams,
        drain: config.shutdown_grace,
        parting: config.parting,
        ..Limits::default()
    }
}
