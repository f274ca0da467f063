//! The composition of a gateway: starts its parts in order, and stops them in reverse.
//!
//! The order is source, mirrors, port. A source that is away at the start delays nothing: its requests are passed
//! through until it is back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_access::{PkiOptions, PublishedAuthorities, pki};
use keelson_apiserver::Delegation;
use keelson_http::Pipeline;
use keelson_http::filters::FlowLimits;
use keelson_http::health::{Health, HealthChecks};
use keelson_http::listener::{self, Limits, TlsSettings};
use keelson_http::metrics::Metrics;
use keelson_http::pages::{Documentation, Pages};
use keelson_http::proxy::PassThrough;
use keelson_http::router::Router;
use keelson_http::version::GIT_VERSION;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use keelson_openapi::SharedDefinitions;
use keelson_outbound::{ClientConfig, Destination, Outbound, Services};
use keelson_registry::{RegistryConfig, Surface};
use keelson_schema::Schemas;
use keelson_supervision::{Failure, Serving, Supervisor, TaskGroup, warn_repeated};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::mirror::Shared;
use crate::mirrors::Mirrors;
use crate::reads::{MirroredReads, is_passed};
use crate::settings::GatewaySettings;
use crate::source::Source;

/// The time limit of running requests at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// The interval between attempts to read the authorities of client certificates.
const AUTHORITIES_AGAIN: Duration = Duration::from_secs(30);

/// The reason why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kubeconfig of a source can't be used.
    #[error("the kubeconfig of the source {name}: {why}")]
    Source {
        /// The name of the source.
        name: String,
        /// The fault.
        why: String,
    },
    /// The serving certificate can't be made or read.
    #[error("the serving certificate: {0}")]
    Certificates(String),
    /// The port can't be opened.
    #[error("listening on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The fault.
        why: std::io::Error,
    },
}

/// A running gateway. Dropping it stops it at once.
pub struct RunningGateway {
    addr: SocketAddr,
    ca_pem: String,
    serving: Serving,
    mirrors: Arc<Mirrors>,
}

/// The gateway calls no services of a cluster.
#[derive(Debug)]
struct NoServices;

impl Services for NoServices {
    fn addresses(&self, namespace: &str, name: &str, _: u16) -> Result<Vec<(String, u16)>, String> {
        Err(format!("the gateway calls no services, such as {namespace}/{name}"))
    }
}

impl RunningGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// The kubeconfig, the certificate or the port can't be used. A source that does not answer is no error.
    pub async fn start(settings: GatewaySettings) -> Result<Self, StartError> {
        let (clock, random): (Arc<dyn Clock>, Arc<dyn Random>) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let certificates = |error: &dyn std::fmt::Display| StartError::Certificates(error.to_string());
        let options = PkiOptions { extra_names: settings.extra_names.clone(), ..PkiOptions::default() };
        let pki = pki::serving(Some(&settings.data_dir), &options, &*clock, &*random)
            .map_err(|error| certificates(&error))?;
        let unusable = |why: String| StartError::Source { name: settings.source.name.clone(), why };
        let (source, config) = Source::open(&settings.source).await.map_err(unusable)?;
        let authorities = Arc::new(PublishedAuthorities::default());
        let tls = authorities.server_config(&pki.pair).map_err(|error| certificates(&error))?;
        let listening = |why| StartError::Listen { address: settings.bind, why };
        let port = TcpListener::bind(settings.bind).await.map_err(listening)?;
        let addr = port.local_addr().map_err(listening)?;

        let supervisor = Supervisor::default();
        let stopping = CancellationToken::new();
        let background = TaskGroup::new(&supervisor, &stopping);
        let source = Arc::new(source);
        let delegation = Delegation::new(source.client().clone());
        let shared = Shared {
            source,
            clock: clock.clone(),
            random: random.clone(),
            authorizer: delegation.authorizer(),
            supervisor: supervisor.clone(),
            registry: RegistryConfig::default(),
        };
        let mirrors = Mirrors::new(shared.clone(), settings.source.not_mirrored.clone());
        let passing = pass_through(&config, random.clone(), &mirrors, &background).map_err(unusable)?;
        background.spawn("mirrors", until(&stopping, mirrors.clone().follow()));
        background.spawn("authorities", until(&stopping, follow(delegation.clone(), authorities.clone())));
        let pipeline = pipeline(&mirrors, addr, (clock, random), &background)
            .with_certificates(authorities)
            .with_tokens(delegation.tokens())
            .with_authorizer(shared.authorizer)
            .with_console(settings.console)
            .with_pass_through(passing);
        let limits = Limits { drain: SHUTDOWN_GRACE, ..Limits::default() };
        let listener = listener::serve(port, TlsSettings::new(tls), Arc::new(pipeline), limits);
        let serving = Serving::start(stopping, background, listener);
        tracing::info!(%addr, source = settings.source.name, "the gateway is ready");
        Ok(Self { addr, ca_pem: pki.ca_pem, serving, mirrors })
    }

    /// The address of the gateway.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The authority of its serving certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns true once each resource of the source was loaded, or could not be loaded.
    pub fn is_loaded(&self) -> bool {
        self.mirrors.is_loaded()
    }

    /// Waits until an essential task has died, and returns its failure. The gateway must be shut down then.
    pub async fn failed(&self) -> Failure {
        self.serving.supervisor().failed().await
    }

    /// Shuts down: no new requests, running lists end, watches are closed cleanly. Takes at most half a minute.
    pub async fn shutdown(mut self) {
        self.serving.answered().await;
        self.serving.ended().await;
    }
}

impl std::fmt::Debug for RunningGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningGateway").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// The filters and handlers of requests.
fn pipeline(
    mirrors: &Arc<Mirrors>,
    addr: SocketAddr,
    (clock, random): (Arc<dyn Clock>, Arc<dyn Random>),
    background: &TaskGroup,
) -> Pipeline {
    let metrics = Arc::new(Metrics::new());
    metrics.edge().watched_by(background.supervisor());
    background.supervisor().watch_threads(background.stopping());
    let loaded = mirrors.clone();
    let is_loaded = move || if loaded.is_loaded() { Ok(()) } else { Err("the mirrors are being loaded".to_owned()) };
    let well = HealthChecks::new().add_runtime(background.supervisor().clone()).add("mirrors", is_loaded);
    let live = HealthChecks::new().add_tasks(background.supervisor().clone());
    let health = Health::new(live, well, background.stopping().clone());
    let pages = Pages::new(health, metrics.clone(), addr.to_string());
    let surfaces = mirrors.clone();
    metrics.serve(move |group, version, plural| surfaces.surface().lookup(group, version, plural).is_some());
    // Documents of resources are the source's own.
    let definitions = SharedDefinitions::new(Schemas::builtin(), &[], GIT_VERSION);
    let (documentation, nothing) = (Arc::new(Documentation::new(definitions, ())), Arc::new(Surface::default()));
    let documents = move |_| Box::pin(documentation.clone().of(nothing.clone())) as _;
    let (surfaces, reads) = (mirrors.clone(), Arc::new(MirroredReads::new(mirrors.clone())));
    let router = Router::new(move || surfaces.surface(), documents, pages, reads);
    Pipeline::new(router, metrics, clock, random, background.stopping().clone(), FlowLimits::default())
}

/// The way of other requests to the source.
fn pass_through(
    config: &kube::Config,
    random: Arc<dyn Random>,
    mirrors: &Arc<Mirrors>,
    background: &TaskGroup,
) -> Result<PassThrough, String> {
    let outbound = Outbound::new(Arc::new(NoServices), random, None);
    let ca_bundle = config.root_cert.iter().flatten().map(|der| pem(der)).collect::<String>().into_bytes();
    let destination = ClientConfig {
        insecure_skip_tls_verify: config.accept_invalid_certs,
        ..ClientConfig::new(Destination::Url(config.cluster_url.to_string()), ca_bundle)
    };
    let upstream = outbound.upstream_without_identity(&destination, config.tls_server_name.as_deref())?;
    let mirrors = mirrors.clone();
    let rule = move |info: &_, parts: &_| is_passed(&mirrors, info, parts);
    Ok(PassThrough::new(upstream, config.cluster_url.path(), background.clone(), rule))
}

/// A certificate in PEM.
fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64.encode(der))
}

/// Follows the source's authorities of client certificates.
async fn follow(delegation: Delegation, authorities: Arc<PublishedAuthorities>) {
    loop {
        if let Err(error) = delegation.clone().follow_authorities(authorities.clone()).await {
            warn_repeated!(""; %error, "client certificates are not accepted, since the source's authorities can't be read");
        }
        tokio::time::sleep(AUTHORITIES_AGAIN).await;
    }
}

/// Runs endless work until the gateway stops.
fn until(
    stopping: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let stopping = stopping.clone();
    async move {
        let _: Option<()> = stopping.run_until_cancelled_owned(work).await;
    }
}
