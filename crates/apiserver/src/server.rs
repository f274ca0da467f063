//! The composition of an aggregated server: starts its parts in order, and stops them in reverse.
//!
//! The order is main server, store, cache, registry, resources, port. All steps that can fail come before the port
//! accepts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_access::{PublishedAuthorities, pki};
use keelson_cache::{Cache, CacheConfig, Compactor, DEFAULT_CHECK_INTERVAL};
use keelson_http::Pipeline;
use keelson_http::filters::FlowLimits;
use keelson_http::handlers::ResourceHandlers;
use keelson_http::health::{Health, HealthChecks};
use keelson_http::listener::{self, Limits, TlsSettings};
use keelson_http::metrics::Metrics;
use keelson_http::pages::{Documentation, Pages};
use keelson_http::router::Router;
use keelson_meta::random::SystemRandom;
use keelson_meta::{ApiError, Clock, GroupResource, Random, SystemClock};
use keelson_registry::{Admission, Registry, RegistryConfig, ResourceRegistration};
use keelson_resources::{Resource, Verb};
use keelson_storage::bounded::DEFAULT_BOUND;
use keelson_storage::{BoundedStore, Store, StoreProbe};
use keelson_supervision::{Failure, Keeper, Serving, Supervisor, TaskGroup, warn_repeated};
use kube::Client;
use kube::runtime::watcher;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admission::untyped;
use crate::authentication::TokenReviews;
use crate::authorization::AccessReviews;
use crate::builder::{ApiServerBuilder, StartError};
use crate::external::External;
use crate::identity::Identity;
use crate::main_lease::MainLease;
use crate::main_server::{MainServer, Namespaces};
use crate::membership::{Membership, OtherServers, Terms};
use crate::migrations::Migrations;
use crate::mirror::Mirror;
use crate::mirrored_store::MirroredStore;
use crate::namespaces::NamespaceLifecycle;
use crate::read_through::ReadThrough;
use crate::serving_certificate::ServingCertificate;
use crate::shared;
use crate::storage::Storage;
use crate::storage_versions::{self, StorageVersions};

/// The time limit of running requests at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// The longest wait for the publication of storage versions at start.
const PUBLISHING_PATIENCE: Duration = Duration::from_secs(10);

/// The verbs of computed objects.
const READING: &[Verb] = &[Verb::Get, Verb::List, Verb::Watch];

/// A resource whose objects the program keeps or computes.
type ExternalResource = (Arc<Resource>, Arc<dyn External>);

/// The copies by resource.
type Mirrors = Arc<[(GroupResource, Arc<Mirror>)]>;

/// A server that answers requests, until it is shut down. Dropping it stops it at once.
pub struct RunningApiServer {
    addr: SocketAddr,
    ca_pem: String,
    serving: Serving,
    /// Keeps the registrations until the last request has been answered.
    identity: Option<Keeper<Identity>>,
}

/// The parts that answer requests.
struct Parts {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    store: Arc<dyn Store>,
    /// Copies of objects that the program keeps or computes.
    mirrors: Mirrors,
    cache: Arc<Cache>,
    registry: Arc<Registry>,
    main_server: MainServer,
    authorities: Arc<PublishedAuthorities>,
    namespaces: BoxStream<'static, watcher::Result<()>>,
    identity: Identity,
    /// The publication at the main server.
    publication: Option<StorageVersions>,
    server_id: String,
}

impl RunningApiServer {
    pub(crate) async fn start(settings: ApiServerBuilder) -> Result<Self, StartError> {
        let (contributions, external) = contributions(&settings)?;
        let (clock, random): (Arc<dyn Clock>, Arc<dyn Random>) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let certificates = |error: &dyn std::fmt::Display| StartError::Certificates(error.to_string());
        let serving = pki::serving(settings.data_dir.as_deref(), &settings.pki, &*clock, &*random)
            .map_err(|error| certificates(&error))?;
        let tls = PublishedAuthorities::default().server_config(&serving.pair).map_err(|error| certificates(&error))?;
        let tls = TlsSettings::new(tls);
        let certificate =
            ServingCertificate::new(serving.clone(), settings.data_dir.clone(), settings.pki.clone(), tls.clone());
        let supervisor = Supervisor::default();
        let (address, history) = (settings.listen, settings.history);
        let settings = settings.with_server_id(&*random)?;
        let mut parts = Parts::open(settings, external, clock, random, &supervisor).await?;
        let served = parts.registry.surfaces().put(contributions).await;
        served.map_err(|error| StartError::Resource(error.to_string()))?;
        for (resource, mirror) in parts.mirrors.iter().filter(|(_, mirror)| !mirror.is_computed()) {
            mirror.refresh().await.map_err(|fault| StartError::Storage(format!("listing {resource}: {fault}")))?;
        }
        // ORDER: no client connects before everything can answer.
        let listening = |source| StartError::Listen { address, source };
        let port = TcpListener::bind(address).await.map_err(listening)?;
        let addr = port.local_addr().map_err(listening)?;

        let stopping = CancellationToken::new();
        let background = TaskGroup::new(&supervisor, &stopping);
        let cache = parts.cache.clone();
        let identity = parts.publish(&background).await;
        let renewing = certificate.keep(parts.clock.clone(), parts.random.clone());
        background.spawn("certificate-renewal", until(background.stopping(), renewing));
        let pipeline = parts.run(addr, history, &background);
        let limits = Limits {
            replaced_bytes: Arc::new(move || cache.replaced_bytes()),
            drain: SHUTDOWN_GRACE,
            ..Limits::default()
        };
        let listener = listener::serve(port, tls, Arc::new(pipeline), limits);
        let ca_pem = serving.ca_pem;
        let serving = Serving::start(stopping, background, listener);
        tracing::info!(%addr, "the server is ready");
        Ok(Self { addr, ca_pem, serving, identity: Some(identity) })
    }

    /// The address of the server.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The authority of its serving certificate, or a given certificate itself, in PEM. In base64 it is the `caBundle`
    /// of an APIService.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Waits until an essential task has died, and returns its failure. The server must be shut down then.
    pub async fn failed(&self) -> Failure {
        self.serving.supervisor().failed().await
    }

    /// Shuts down: no new requests, running lists end, watches are closed cleanly. Takes at most half a minute.
    pub async fn shutdown(mut self) {
        self.serving.answered().await;
        self.serving.ended().await;
        // A task that panicked has ended by itself.
        if let Some(identity) = self.identity.take()
            && let Some(identity) = identity.end().await
        {
            identity.leave().await;
        }
    }
}

impl std::fmt::Debug for RunningApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningApiServer").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Parts {
    async fn open(
        settings: ApiServerBuilder,
        external: Vec<ExternalResource>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        supervisor: &Supervisor,
    ) -> Result<Self, StartError> {
        let main_server = MainServer::new(client(settings.main_server).await?);
        let authorities = Arc::new(PublishedAuthorities::default());
        authorities.publish(main_server.authentication().await?);
        let (known, namespaces) = Namespaces::follow(&main_server);
        let mut store = settings.storage.open(supervisor).await?;
        let (server_id, terms) = (settings.server_id.unwrap_or_default(), Terms::new(settings.lease));
        let mut membership = None;
        if settings.storage.is_shared() {
            let joined = Membership::join(store, (clock.clone(), &*random), &server_id, terms).await;
            let (joined, fenced) = joined.map_err(|error| StartError::Storage(error.to_string()))?;
            (membership, store) = (Some(joined), fenced);
        }
        // The program's objects have no encoding of this server.
        let publishes = settings.publishes_storage_versions && external.is_empty();
        let publishes = publishes
            && storage_versions::are_served(&main_server).await.map_err(|error| main_server_failed(&error))?;
        let mirrored = |(resource, external): ExternalResource| {
            let mirror = Mirror::new(external, &resource, store.clone(), random.clone());
            (resource.group_resource(), Arc::new(mirror))
        };
        let mirrors: Mirrors = external.into_iter().map(mirrored).collect();
        if !mirrors.is_empty() {
            store = Arc::new(MirroredStore::new(store, mirrors.clone()));
        }
        let store: Arc<dyn Store> = Arc::new(BoundedStore::new(store, DEFAULT_BOUND));
        let config = CacheConfig {
            supervisor: supervisor.clone(),
            history: settings.history,
            check_interval: Some(DEFAULT_CHECK_INTERVAL),
            ..CacheConfig::new(clock.clone())
        };
        let cache = Cache::start(store.clone(), Vec::new(), config).await;
        let cache = cache.map_err(|error| StartError::Storage(error.to_string()))?;
        let lifecycle: Arc<dyn Admission> = Arc::new(NamespaceLifecycle(known));
        let admission = [lifecycle].into_iter().chain(settings.hooks).collect();
        let (now, numbers) = (clock.clone(), random.clone());
        let config = RegistryConfig { publishes_encodings: publishes, ..RegistryConfig::default() };
        let registry = Registry::without_builtin(store.clone(), cache.clone(), now, numbers, config);
        let authorizer = Arc::new(AccessReviews::new(main_server.client().clone()));
        let registry = Arc::new(registry.with_admission(admission).with_authorizer(authorizer));
        let lease = publishes
            .then(|| MainLease::new(main_server.clone(), registry.clone(), (&server_id, random.uuid()), terms));
        let publication =
            publishes.then(|| StorageVersions::new(main_server.clone(), registry.clone(), &server_id, terms.interval));
        Ok(Self {
            clock,
            random,
            store,
            mirrors,
            cache,
            registry,
            main_server,
            authorities,
            namespaces: namespaces.boxed(),
            identity: Identity { membership, lease },
            publication,
            server_id,
        })
    }

    /// Registers, and publishes the storage versions. Waits for a short time only: unpublished resources can't be
    /// written.
    async fn publish(&mut self, background: &TaskGroup) -> Keeper<Identity> {
        let identity = std::mem::replace(&mut self.identity, Identity { membership: None, lease: None });
        let acknowledged = identity.lease.as_ref().map(MainLease::acknowledged);
        let neighbours = identity.membership.as_ref().map_or_else(OtherServers::none, Membership::neighbours);
        let (registry, supervisor) = (self.registry.clone(), background.supervisor());
        let keep = |stopping| identity.keep(registry, supervisor.clone(), stopping);
        let keeper = Keeper::start(supervisor, "identity", keep);
        if let (Some(publication), Some(acknowledged)) = (self.publication.take(), acknowledged) {
            let mut published = publication.is_published();
            let publishing = publication.run(acknowledged);
            background.spawn("storage-versions", until(background.stopping(), publishing));
            let (main_server, registry) = (self.main_server.clone(), self.registry.clone());
            let migrations = Migrations::new(main_server, registry, &self.server_id, neighbours);
            background.spawn("migrations", until(background.stopping(), migrations.run(published.clone())));
            let published = published.wait_for(|published| *published);
            if tokio::time::timeout(PUBLISHING_PATIENCE, published).await.is_err() {
                tracing::warn!("storage versions are not published yet; writes wait for that");
            }
        }
        keeper
    }

    /// Starts background tasks, and builds the pipeline for requests.
    fn run(self, addr: SocketAddr, history: Duration, background: &TaskGroup) -> Pipeline {
        let Self { clock, random, store, mirrors, cache, registry, main_server, authorities, namespaces, .. } = self;
        let stopping = background.stopping().clone();
        let compactor = Compactor::new(store.clone(), cache.clone(), clock.clone(), history);
        background.spawn("compactor", compactor.run(stopping.clone()));
        let (probe, probing) = StoreProbe::start(store);
        background.spawn("store-probe", until(&stopping, probing));
        let following = main_server.clone().follow_authentication(authorities.clone());
        background.spawn("authorities", until(&stopping, following));
        let following = namespaces.for_each(|change| {
            if let Err(error) = change {
                warn_repeated!(""; %error, "watching the namespaces of the main server failed; retrying");
            }
            std::future::ready(())
        });
        background.spawn("namespaces", until(&stopping, following));
        for (_, mirror) in mirrors.iter() {
            let mirror = mirror.clone();
            if mirror.is_computed() {
                background.spawn("computed-objects", until(&stopping, mirror.look()));
            } else {
                background.spawn("external-objects", until(&stopping, mirror.follow()));
            }
        }

        let metrics = Arc::new(Metrics::new());
        metrics.edge().watched_by(background.supervisor());
        background.supervisor().watch_threads(background.stopping());
        let well = HealthChecks::new()
            .add("etcd", move || probe.check())
            .add_runtime(background.supervisor().clone())
            .add("informer-sync", move || cache.healthy().map_err(|fault| fault.to_string()));
        let pages = Pages::new(health(background, well), metrics.clone(), addr.to_string());
        let documentation = Arc::new(Documentation::new(shared::definitions(), ()));
        let surfaces = registry.clone();
        metrics.serve(move |group, version, plural| surfaces.surface().lookup(group, version, plural).is_some());
        let surfaces = registry.clone();
        let authorizer = registry.authorizer().clone();
        let handlers = Arc::new(ReadThrough::new(ResourceHandlers::new(registry), mirrors));
        let documents = move |surface| Box::pin(documentation.clone().documents(surface)) as _;
        let router = Router::new(move || surfaces.surface(), documents, pages, handlers);
        Pipeline::new(router, metrics, clock, random, stopping, FlowLimits::default())
            .with_certificates(authorities)
            .with_tokens(Arc::new(TokenReviews::new(main_server.client().clone())))
            .with_authorizer(authorizer)
    }
}

/// Runs endless work until the server stops.
fn until(
    stopping: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let stopping = stopping.clone();
    async move {
        let _: Option<()> = stopping.run_until_cancelled_owned(work).await;
    }
}

/// The start error for a failed request to the main server.
fn main_server_failed(error: &ApiError) -> StartError {
    StartError::MainServer(error.to_string())
}

/// The client of the main server, found as kubectl finds it unless given.
async fn client(given: Option<Client>) -> Result<Client, StartError> {
    match given {
        Some(client) => Ok(client),
        None => Client::try_default().await.map_err(|error| StartError::MainServer(error.to_string())),
    }
}

/// The served resources of all definitions, with those whose objects the program keeps or computes.
fn contributions(
    settings: &ApiServerBuilder,
) -> Result<(Vec<ResourceRegistration>, Vec<ExternalResource>), StartError> {
    if settings.definitions.is_empty() && settings.external.is_empty() {
        return Err(StartError::Resource("the server has no resources: name one with `resource`".to_owned()));
    }
    if !settings.external.is_empty() && !matches!(settings.storage, Storage::Memory) {
        let what = "objects that the program keeps or computes are copied to memory, so the storage must be memory";
        return Err(StartError::Resource(what.to_owned()));
    }
    let mut all = Vec::new();
    for definition in &settings.definitions {
        all.push(contribution(definition, None)?);
    }
    let mut external = Vec::new();
    for (definition, objects) in &settings.external {
        let contribution = contribution(definition, objects.is_computed().then_some(READING))?;
        external.push((contribution.resource().clone(), objects.clone()));
        all.push(contribution);
    }
    Ok((all, external))
}

/// The served resource of a definition, limited to these verbs if given.
fn contribution(
    definition: &CustomResourceDefinition,
    verbs: Option<&'static [Verb]>,
) -> Result<ResourceRegistration, StartError> {
    let names = &definition.spec.names;
    let named = |error: String| {
        StartError::Resource(format!("{}.{} can't be served: {error}", names.plural, definition.spec.group))
    };
    let object = untyped(definition).map_err(|error| named(error.to_string()))?;
    keelson_extensions::of_program(&object, verbs).map_err(|error| named(error.to_string()))
}

/// The checks of `/livez`, `/readyz` and `/healthz`. A server is live while all its background tasks are.
fn health(background: &TaskGroup, well: HealthChecks) -> Health {
    let live = HealthChecks::new().add_tasks(background.supervisor().clone());
    Health::new(live, well, background.stopping().clone())
}
