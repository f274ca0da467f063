//! One source with all that answers for it: its mirrors, its filters, and the way of other requests to it.
//!
//! Sites share nothing but the listener and the background tasks, so that no user or failure of one is one of another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_access::PublishedAuthorities;
use keelson_apiserver::Delegation;
use keelson_http::Pipeline;
use keelson_http::filters::FlowLimits;
use keelson_http::health::{Health, HealthChecks};
use keelson_http::metrics::Metrics;
use keelson_http::pages::{Documentation, Pages};
use keelson_http::proxy::PassThrough;
use keelson_http::router::Router;
use keelson_http::version::GIT_VERSION;
use keelson_meta::{Clock, Random};
use keelson_openapi::SharedDefinitions;
use keelson_outbound::{ClientConfig, Destination, Outbound, Services};
use keelson_registry::{RegistryConfig, ServedApis};
use keelson_schema::Schemas;
use keelson_supervision::{TaskGroup, warn_repeated};
use tokio_util::sync::CancellationToken;

use crate::copy::SourceCopy;
use crate::credentials::impersonator;
use crate::mirror::Shared;
use crate::mirrors::Mirrors;
use crate::reads::{MirroredReads, is_passed};
use crate::settings::SourceSettings;
use crate::source::Source;

/// The interval between attempts to read the authorities of client certificates.
const AUTHORITIES_AGAIN: Duration = Duration::from_secs(30);

/// The directory of the mirrors' copies, below that of the gateway.
const MIRRORS: &str = "mirrors";

/// A source and its pipeline.
pub(crate) struct Site {
    pub(crate) mirrors: Arc<Mirrors>,
    pub(crate) pipeline: Pipeline,
}

/// The parts that all sites share.
pub(crate) struct Common {
    pub(crate) addr: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) background: TaskGroup,
}

/// The gateway calls no services of a cluster.
#[derive(Debug)]
struct NoServices;

impl Services for NoServices {
    fn addresses(&self, namespace: &str, name: &str, _: u16) -> Result<Vec<(String, u16)>, String> {
        Err(format!("the gateway calls no services, such as {namespace}/{name}"))
    }
}

impl Site {
    /// Starts to follow a source.
    ///
    /// # Errors
    /// When the kubeconfig or the directory of the source can't be used. A source that does not respond is no error.
    pub(crate) async fn start(
        settings: &SourceSettings,
        common: &Common,
        authorities: Arc<PublishedAuthorities>,
    ) -> Result<Self, String> {
        let Common { addr, data_dir, clock, random, background } = common;
        let (source, config) = Source::open(settings).await?;
        let copy = SourceCopy::open(&data_dir.join(MIRRORS).join(&settings.name), background.supervisor()).await?;
        let delegation = Delegation::new(source.client().clone());
        let shared = Shared {
            source: Arc::new(source),
            clock: clock.clone(),
            random: random.clone(),
            authorizer: delegation.authorizer(),
            supervisor: background.supervisor().clone(),
            registry: RegistryConfig::default(),
            copy: copy.clone(),
        };
        let mirrors = Mirrors::new(shared.clone(), settings.not_mirrored.clone());
        let passing = pass_through(&config, settings, random.clone(), &mirrors, background)?;
        let stopping = background.stopping();
        background.spawn("mirrors-copy", until(stopping, copy.compact()));
        background.spawn("mirrors", until(stopping, mirrors.clone().follow()));
        background.spawn("authorities", until(stopping, follow(delegation.clone(), authorities.clone())));
        let pipeline = pipeline(&mirrors, *addr, (clock.clone(), random.clone()), background)
            .with_certificates(authorities)
            .with_tokens(delegation.tokens())
            .with_authorizer(shared.authorizer)
            .with_pass_through(passing);
        Ok(Self { mirrors, pipeline })
    }
}

/// The health checks of a gateway with these mirrors. One of several sources holds the others back while it is loaded
/// only, and not if it fails.
pub(crate) fn health(mirrors: Vec<Arc<Mirrors>>, background: &TaskGroup) -> Health {
    let is_single = mirrors.len() == 1;
    let is_waited_for = move |mirrors: &Mirrors| !(if is_single { mirrors.is_loaded() } else { mirrors.is_settled() });
    let is_loaded = move || match mirrors.iter().find(|mirrors| is_waited_for(mirrors)) {
        Some(mirrors) => Err(format!("the mirrors of {} are being loaded", mirrors.source())),
        None => Ok(()),
    };
    let well = HealthChecks::new().add_runtime(background.supervisor().clone()).add("mirrors", is_loaded);
    let live = HealthChecks::new().add_tasks(background.supervisor().clone());
    Health::new(live, well, background.stopping().clone())
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
    let pages = Pages::new(health(vec![mirrors.clone()], background), metrics.clone(), addr.to_string());
    let surfaces = mirrors.clone();
    metrics.serve(move |group, version, plural| surfaces.surface().lookup(group, version, plural).is_some());
    let (surfaces, reads) = (mirrors.clone(), Arc::new(MirroredReads::new(mirrors.clone())));
    let (documentation, nothing) = (no_documentation(), Arc::new(ServedApis::default()));
    let documents = move |_| Box::pin(documentation.clone().documents(nothing.clone())) as _;
    let router = Router::new(move || surfaces.surface(), documents, pages, reads);
    Pipeline::new(router, metrics, clock, random, background.stopping().clone(), FlowLimits::default())
}

/// The documents of no resources: the source serves the documents of its resources itself.
pub(crate) fn no_documentation() -> Arc<Documentation> {
    Arc::new(Documentation::new(SharedDefinitions::new(Schemas::builtin(), &[], GIT_VERSION), ()))
}

/// The way of other requests to the source.
fn pass_through(
    config: &kube::Config,
    settings: &SourceSettings,
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
    // These connections present no certificate: the source must see the credentials of the caller only.
    let upstream = outbound.upstream_by_url(&destination, config.tls_server_name.as_deref(), None)?;
    let impersonator = match settings.impersonates {
        true => Some(impersonator(&outbound, &destination, config, &settings.kubeconfig)?),
        false => None,
    };
    let mirrors = mirrors.clone();
    let rule = move |info: &_, parts: &_| is_passed(&mirrors, info, parts);
    let passing = PassThrough::new(upstream, config.cluster_url.path(), background.clone(), rule);
    Ok(passing.impersonating(impersonator))
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
