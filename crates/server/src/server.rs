//! The composition of a server: opens its parts in order, and closes them in the opposite one.
//!
//! The order is store, cache, registry, certificates, identity, controllers, port: each uses those before it, and clients come
//! last. Everything that can fail is done before the server takes its name among others. A server that runs tells when it has been
//! replaced or has failed; ending the process is for the caller.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keelson_access::AuthenticationInfo;
use keelson_access::pki::{self, Pki};
use keelson_aggregator::Aggregator;
use keelson_cache::{Cache, CacheConfig};
use keelson_controllers::{
    ClusterRoleAggregation, IdentityConfig, IdentityLease, Progress, RegisteredServers, identity_key,
};
use keelson_extensions::Extensions;
use keelson_http::handlers::ResourceHandlers;
use keelson_http::health::{CheckResult, Health, HealthChecks};
use keelson_http::listener::Limits;
use keelson_http::metrics::Metrics;
use keelson_http::pages::Pages;
use keelson_http::router::Router;
use keelson_http::{Pipeline, listener};
use keelson_outbound::{ClusterServices, Outbound};
use keelson_registry::{Registry, ServiceAccountTokens};
use keelson_storage::{BoundedStore, Fence, FencedStore, Store};
use keelson_supervision::{Failure, Supervisor, TaskGroup};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::builtin;
use crate::config::Config;
use crate::controllers::{self, ControllerParts, Membership};
use crate::documents::Documentation;
use crate::history::Compactor;
use crate::metrics::{aggregation_samples, conversion_samples, conversion_times, registry_samples, server_info};
use crate::peers::Peers;
use crate::probe::{LogProbe, StoreProbe};
use crate::remote::{self, AggregatedServers, PublishedFields};
use crate::store::{Opened, StoreConfig, StoreMetrics};
use crate::tokens::{issuer_documents, token_issuer};

/// The name of the kubeconfig in the data directory.
const KUBECONFIG: &str = "kubeconfig";

/// How often a shutdown looks whether the store has been let go.
const CLOSE_POLL: Duration = Duration::from_millis(1);
/// How long a shutdown waits for that. Connections are gone by then, so only tasks that are being aborted still hold it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Makes running servers.
pub struct Server;

/// All that a server needs to run, before others know of it.
struct Prepared {
    config: Config,
    supervisor: Supervisor,
    port: TcpListener,
    addr: SocketAddr,
    store: Arc<dyn Store>,
    metrics: StoreMetrics,
    fence: Arc<Fence>,
    /// The store as this server writes to it.
    fenced: Arc<dyn Store>,
    registry: Arc<Registry>,
    outbound: Arc<Outbound>,
    pki: Pki,
    authentication: AuthenticationInfo,
    tokens: Arc<ServiceAccountTokens>,
    kubeconfig: Option<PathBuf>,
    tls: Arc<ServerConfig>,
    aggregation: Option<Arc<ClusterRoleAggregation>>,
    extensions: Arc<Extensions>,
    aggregator: Arc<Aggregator>,
}

/// A server that answers requests, until it is shut down. Dropping it stops it at once.
pub struct RunningServer {
    addr: SocketAddr,
    server_id: String,
    pki: Pki,
    kubeconfig: Option<PathBuf>,
    registry: Arc<Registry>,
    outbound: Arc<Outbound>,
    bootstrap: Arc<Progress>,
    store: Arc<dyn Store>,
    fence: Arc<Fence>,
    /// Whether others use the store too, so that it is not this server's to close.
    shared: bool,
    stopping: CancellationToken,
    background: TaskGroup,
    listener: Option<JoinHandle<Option<()>>>,
    identity: Option<IdentityTask>,
}

/// Keeps this server's identity: longer than it serves, since writes in flight need it.
struct IdentityTask {
    stopping: CancellationToken,
    keeper: JoinHandle<Option<IdentityLease>>,
}

impl Server {
    /// Starts a server and returns once it answers requests.
    ///
    /// # Errors
    /// When the store can't be opened, certificates can't be read or made, the address is taken, or servers that run on the
    /// store would not accept what this one signs.
    pub async fn start(config: Config) -> anyhow::Result<RunningServer> {
        let prepared = Prepared::new(config).await?;
        // ORDER: whatever else can fail comes before this server takes its name. A process that has it gives way for good, so
        // nothing would be left that runs.
        let (identity, place) = register(&prepared).await?;
        Ok(prepared.run(identity, place))
    }
}

impl Prepared {
    async fn new(config: Config) -> anyhow::Result<Self> {
        if !config.accept_loss {
            // ORDER: before anything is made in the directory.
            config.store.check_there(config.data_dir.as_deref())?;
        }
        // Both write to disk and wait for it, so they wait together.
        let pki = tokio::task::spawn_blocking({
            let config = config.clone();
            move || prepare_pki(&config)
        });
        let port = TcpListener::bind(config.bind).await.with_context(|| {
            format!("listening on {}; choose another address with --bind if it is taken", config.bind)
        })?;
        let addr = port.local_addr().context("asking for the address")?;
        let supervisor = Supervisor::default();
        let Opened { store, metrics } = config.store.open(&supervisor, config.accept_loss).await?;
        let cache =
            Cache::start(store.clone(), keelson_registry::collection_specs(), cache_config(&config, &supervisor))
                .await
                .context("loading the store into the cache")?;
        let fence = Arc::new(Fence::new(identity_key(&config.server_id)?, config.clock.clone()));
        let fenced = fenced(&config, &store, &fence);
        let registry = Arc::new(Registry::new(
            fenced.clone(),
            cache,
            config.clock.clone(),
            config.random.clone(),
            config.registry.clone(),
        ));
        let services = ClusterServices::new(&registry, config.service_routes.clone(), config.random.clone());
        let (namespaces, pki) = tokio::join!(registry.ensure_system_namespaces(), pki);
        namespaces.context("making the system namespaces")?;
        let pki = pki.context("preparing certificates")?.context("preparing certificates")?;
        let outbound = Outbound::with_certificate(
            Arc::new(services),
            config.random.clone(),
            config.proxy.clone(),
            Some(remote::certificate(&pki)),
        );
        let authentication = AuthenticationInfo::of(&pki).context("reading the certificate authorities")?;
        let tokens = Arc::new(ServiceAccountTokens::new(registry.clone(), token_issuer(&config, &pki)?));
        let kubeconfig = write_kubeconfig(&config, &pki, addr)?;
        let tls = Arc::new(pki.server_config().context("preparing TLS")?);
        let aggregation = controllers::aggregation(&config, &registry)?;
        let extensions =
            Extensions::start(registry.clone(), outbound.clone()).await.context("serving custom resources")?;
        let aggregator =
            Aggregator::start(registry.clone(), outbound.clone()).context("reading who serves which API")?;
        Ok(Self {
            config,
            supervisor,
            port,
            addr,
            store,
            metrics,
            fence,
            fenced,
            registry,
            outbound,
            pki,
            authentication,
            tokens,
            kubeconfig,
            tls,
            aggregation,
            extensions,
            aggregator,
        })
    }

    /// Runs the server in its place. It answers requests when this returns.
    fn run(self, identity: IdentityLease, place: Membership) -> RunningServer {
        let Self { config, supervisor, addr, store, fence, registry, outbound, pki, .. } = self;
        let identity = Some(IdentityTask::start(identity, &supervisor));
        let stopping = CancellationToken::new();
        let background = TaskGroup::new(&supervisor, &stopping);
        let (probe, probing) = StoreProbe::start(self.fenced, stopping.clone());
        background.spawn("store-probe", probing);
        let cache = registry.cache().clone();
        let compactor = Compactor::new(store.clone(), cache, config.clock.clone(), config.history);
        background.spawn("compactor", compactor.run(stopping.clone()));
        let fields = PublishedFields::new(&pki.front_proxy.headers);
        let parts = ControllerParts {
            aggregation: self.aggregation,
            extensions: self.extensions.clone(),
            aggregator: self.aggregator.clone(),
            fields: fields.clone(),
        };
        background.spawn("custom-resources", self.extensions.run(stopping.clone()));
        let aggregator = self.aggregator;
        let remotes = AggregatedServers::new(aggregator.clone(), outbound.clone(), fields);
        background.spawn("api-services", aggregator.clone().run(stopping.clone()));
        let bootstrap = controllers::spawn(&config, &registry, (&pki, self.authentication), place, parts, &background);

        let parts = (registry.clone(), outbound.clone(), aggregator, self.tokens, self.metrics);
        let standing = store_check(&config.store, fence.clone(), probe);
        let checks = (supervisor.clone(), standing);
        let pipeline = pipeline(&config, parts, addr, checks, &bootstrap, stopping.clone());
        let pipeline = pipeline.with_remote_servers(remotes);
        let cache = registry.cache().clone();
        let limits = Limits {
            connections: config.connections,
            unread: config.unread,
            pinned_bytes: config.pinned_bytes,
            replaced_bytes: Arc::new(move || cache.replaced_bytes()),
            drain: config.shutdown_grace,
        };
        let serving = listener::serve(self.port, self.tls, Arc::new(pipeline), limits);
        let listener = Some(supervisor.spawn("listener", &stopping, serving));
        let shared = matches!(config.store, StoreConfig::Shared(_));
        let (server_id, kubeconfig) = (config.server_id, self.kubeconfig);
        tracing::info!(server_id, %addr, "the server is ready");
        RunningServer {
            addr,
            server_id,
            pki,
            kubeconfig,
            registry,
            outbound,
            bootstrap,
            store,
            fence,
            shared,
            stopping,
            background,
            listener,
            identity,
        }
    }
}

impl RunningServer {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its name among others.
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    /// The administrator's kubeconfig file, where there is a data directory.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Its certificates and keys.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The verbs, for callers in the same process.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// All that it calls.
    pub fn outbound(&self) -> &Arc<Outbound> {
        &self.outbound
    }

    /// Waits until what every cluster has is there: the server answers before. Says so in `/readyz` too.
    pub async fn bootstrapped(&self) {
        self.bootstrap.finished().await;
    }

    /// Waits until another process has started under this server's name, and tells what to do about it. This server writes
    /// nothing then, and is to be shut down.
    pub async fn replaced(&self) -> String {
        self.fence.closed().await
    }

    /// Watches over what runs beside requests.
    pub fn supervisor(&self) -> &Supervisor {
        self.background.supervisor()
    }

    /// Waits until something that the server can't do without has died, such as a background task, and tells what. The
    /// server is no longer live then, and is to be shut down.
    pub async fn failed(&self) -> Failure {
        self.background.supervisor().failed().await
    }

    /// Stops: no new requests, lists in flight end, watches are closed cleanly.
    pub async fn shutdown(mut self) {
        tracing::info!(server_id = self.server_id, "stopping: requests in flight end, watches are closed");
        self.stopping.cancel();
        if let Some(listener) = self.listener.take()
            && let Err(error) = listener.await
        {
            tracing::error!(%error, "the listener ended badly");
        }
        self.background.ended().await;
        if let Some(identity) = self.identity.take() {
            identity.end().await;
        }
        let own = (!self.shared).then(|| self.store.clone());
        drop(self);
        if let Some(store) = own {
            close(store).await;
        }
    }
}

/// Waits until nobody else holds the store, and closes it: only then may another server open its directory.
async fn close(store: Arc<dyn Store>) {
    let alone = async {
        while Arc::strong_count(&store) > 1 {
            tokio::time::sleep(CLOSE_POLL).await;
        }
    };
    if tokio::time::timeout(CLOSE_PATIENCE, alone).await.is_err() {
        tracing::warn!("the store is still in use at the end of the shutdown");
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

impl IdentityTask {
    fn start(lease: IdentityLease, supervisor: &Supervisor) -> Self {
        let stopping = CancellationToken::new();
        let keeper = supervisor.spawn("identity", &stopping, lease.run(stopping.clone()));
        Self { stopping, keeper }
    }

    async fn end(mut self) {
        self.stopping.cancel();
        match (&mut self.keeper).await {
            Ok(Some(lease)) => lease.release().await,
            // It has panicked. The lease ends by itself.
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "keeping the identity ended badly"),
        }
    }
}

impl Drop for IdentityTask {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// What writes go through: up to a size, and where others write too, only as long as this server's identity stands.
fn fenced(config: &Config, store: &Arc<dyn Store>, fence: &Arc<Fence>) -> Arc<dyn Store> {
    let bounded = Arc::new(BoundedStore::new(store.clone(), config.max_object_bytes));
    if config.store.is_shared() { Arc::new(FencedStore::new(bounded, fence.clone())) } else { bounded }
}

/// Takes this server's place among those on the store, if it may be there.
async fn register(prepared: &Prepared) -> anyhow::Result<(IdentityLease, Membership)> {
    let Prepared { config, registry, fence, addr, .. } = prepared;
    let (addr, fence) = (*addr, fence.clone());
    let servers = registered_servers(config, registry, addr);
    let mut peers = Peers::new(config, &prepared.pki, prepared.tokens.issuer(), servers.clone())?;
    // ORDER: before this server takes its name, which another process may have.
    peers.check().await?;
    let identity = identity_config(config, addr, peers.annotations());
    let lease = IdentityLease::register(registry.clone(), fence, &*config.random, identity).await;
    let lease = peers.join(lease.context("registering this server's identity")?).await?;
    let place = Membership { addr, holder: lease.holder().to_owned(), servers };
    Ok((lease, place))
}

/// Whether the store answers, and lets this server write.
fn store_check(
    config: &StoreConfig,
    fence: Arc<Fence>,
    probe: StoreProbe,
) -> impl Fn() -> CheckResult + Send + Sync + 'static {
    let fence = config.is_shared().then_some(fence);
    // The probe asks the fence too, but only now and then.
    move || match fence.as_ref().map(|fence| fence.check()) {
        Some(Err(lost)) => Err(lost.to_string()),
        Some(Ok(())) | None => probe.check(),
    }
}

/// The servers on the store, this one among them at the address where others reach it, if any.
fn registered_servers(config: &Config, registry: &Arc<Registry>, addr: SocketAddr) -> Arc<RegisteredServers> {
    let own = controllers::advertised(config, addr).map(|address| SocketAddr::new(address, addr.port()));
    Arc::new(RegisteredServers::new(registry.clone(), own, config.identity_interval))
}

fn identity_config(config: &Config, addr: SocketAddr, annotations: BTreeMap<String, String>) -> IdentityConfig {
    IdentityConfig {
        server_id: config.server_id.clone(),
        host: Config::host_name(),
        address: SocketAddr::new(controllers::advertised(config, addr).unwrap_or(addr.ip()), addr.port()).to_string(),
        annotations,
        duration: config.identity_duration,
        interval: config.identity_interval,
    }
}

fn prepare_pki(config: &Config) -> anyhow::Result<Pki> {
    let (clock, random) = (&*config.clock, &*config.random);
    Ok(match &config.data_dir {
        Some(directory) => pki::ensure(directory, &config.pki, clock, random)?,
        None => pki::ephemeral(&config.pki, clock, random)?,
    })
}

fn write_kubeconfig(config: &Config, pki: &Pki, addr: SocketAddr) -> anyhow::Result<Option<PathBuf>> {
    let Some(directory) = &config.data_dir else {
        return Ok(None);
    };
    let path = directory.join(KUBECONFIG);
    pki.write_kubeconfig(&path, &url(addr)).context("writing the kubeconfig")?;
    Ok(Some(path))
}

/// How a client on this host reaches the server.
fn url(addr: SocketAddr) -> String {
    let host = if addr.ip().is_unspecified() { "localhost".to_owned() } else { addr.ip().to_string() };
    if host.contains(':') {
        format!("https://[{host}]:{}", addr.port())
    } else {
        format!("https://{host}:{}", addr.port())
    }
}

fn cache_config(config: &Config, supervisor: &Supervisor) -> CacheConfig {
    CacheConfig {
        supervisor: supervisor.clone(),
        history: config.history,
        history_bytes: config.history_bytes,
        check_interval: config.cache_check_interval,
        ..CacheConfig::new(config.clock.clone())
    }
}

/// What `/livez`, `/readyz` and `/healthz` check. A server lives as long as each of its background tasks does. One whose store is away
/// lives too: it serves what it has, and to start it anew would take even that.
fn health(
    supervisor: Supervisor,
    store: impl Fn() -> CheckResult + Send + Sync + 'static,
    cache: impl Fn() -> CheckResult + Send + Sync + 'static,
    bootstrap: &Arc<Progress>,
    stopping: &CancellationToken,
) -> Health {
    let log = LogProbe::new();
    let shared = HealthChecks::new().add("log", move || log.check());
    let live = shared.clone().add_each(move || {
        let result = |failure: Option<Failure>| failure.map_or(Ok(()), |failure| Err(failure.to_string()));
        supervisor.tasks().into_iter().map(|(task, failure)| (format!("task/{task}"), result(failure))).collect()
    });
    let store = Arc::new(store);
    let ready_store = store.clone();
    let well = shared.add("etcd", move || store());
    let well = well.add("informer-sync", cache).add("poststarthook/storage-readiness", move || ready_store());
    let well = Progress::steps().fold(well, |well, step| {
        let bootstrap = bootstrap.clone();
        let done = move || if bootstrap.is_done(step) { Ok(()) } else { Err("not finished".to_owned()) };
        well.add(step, done)
    });
    let stopping = stopping.clone();
    let stops = move || if stopping.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) };
    Health { live, ready: well.clone().add("shutdown", stops), well }
}

fn pipeline(
    config: &Config,
    (registry, outbound, aggregator, tokens, store_metrics): (
        Arc<Registry>,
        Arc<Outbound>,
        Arc<Aggregator>,
        Arc<ServiceAccountTokens>,
        StoreMetrics,
    ),
    addr: SocketAddr,
    (supervisor, store): (Supervisor, impl Fn() -> CheckResult + Send + Sync + 'static),
    bootstrap: &Arc<Progress>,
    stopping: CancellationToken,
) -> Pipeline {
    let metrics = Arc::new(Metrics::new());
    let measured = registry.clone();
    metrics.add_source(move || registry_samples(&measured));
    metrics.add_source(store_metrics);
    let calls = outbound.clone();
    metrics.add_source(move || conversion_samples(calls.stats()));
    metrics.add_histograms(move || conversion_times(outbound.stats()));
    let info = server_info(&config.server_id);
    metrics.add_source(move || vec![info.clone()]);
    let cache = registry.cache().clone();
    let health =
        health(supervisor, store, move || cache.healthy().map_err(|fault| fault.to_string()), bootstrap, &stopping);
    let registered = aggregator.clone();
    metrics.add_source(move || aggregation_samples(&registered));
    let documentation = Documentation::new(builtin::catalogue(), builtin::schemas(), aggregator);
    let pages = Pages::new(health, metrics.clone(), addr.to_string());
    let pages = pages.with_issuer(issuer_documents(&tokens, addr));
    let surfaces = registry.clone();
    metrics.serve(move |group, version, plural| surfaces.surface().lookup(group, version, plural).is_some());
    let surfaces = registry.clone();
    let handlers = Arc::new(ResourceHandlers::new(registry, tokens.clone()));
    let router = Router::new(move || surfaces.surface(), move |surface| documentation.of(surface), pages, handlers);
    let (clock, random) = (config.clock.clone(), config.random.clone());
    Pipeline::new(router, metrics, clock, random, stopping, config.flow).with_tokens(tokens)
}
