//! The composition of a gateway: starts its parts in order, and stops them in reverse.
//!
//! The order is port, sources, requests. A source that is away at the start delays nothing: its requests are passed
//! through until it is back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, ready};
use http::{Response, Uri};
use keelson_access::{
    Attributes, Authorizer, Decision, PendingVerdict, PkiOptions, PublishedAuthorities, User, Verdict, pki,
};
use keelson_http::Pipeline;
use keelson_http::body::ResponseBody;
use keelson_http::filters::FlowLimits;
use keelson_http::listener::{self, Limits, TlsSettings};
use keelson_http::metrics::Metrics;
use keelson_http::pages::Pages;
use keelson_http::respond;
use keelson_http::router::Router;
use keelson_http::service::{ApiRequest, ApiService};
use keelson_meta::SystemClock;
use keelson_meta::random::SystemRandom;
use keelson_registry::{ServedApis, Target};
use keelson_supervision::{Failure, Serving, Supervisor, TaskGroup};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Fleet, Member, MergeContext, PermittedLists};
use crate::mirrors::Mirrors;
use crate::settings::{GatewaySettings, SourceSettings};
use crate::site::{Common, Site, health, no_documentation};

/// The time limit of running requests at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// The time for the last writes to the copies of mirrors at shutdown.
const COPY_TIME: Duration = Duration::from_secs(10);
/// The health checks of the gateway.
const HEALTH_PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];
/// The path above the paths of each of several sources.
const CLUSTERS: &str = "/clusters/";

/// The reason why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no source, or two have the same name.
    #[error("{0}")]
    Sources(String),
    /// The kubeconfig of a source, or the copy of its mirrors, can't be used.
    #[error("the source {name}: {why}")]
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
    mirrors: Vec<Arc<Mirrors>>,
}

impl RunningGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// A kubeconfig, the certificate or the port can't be used. A source that does not answer is no error.
    pub async fn start(settings: GatewaySettings) -> Result<Self, StartError> {
        check_names(&settings)?;
        let certificates = |error: &dyn std::fmt::Display| StartError::Certificates(error.to_string());
        let options = PkiOptions { extra_names: settings.extra_names.clone(), ..PkiOptions::default() };
        let pki = pki::serving(Some(&settings.data_dir), &options, &SystemClock, &SystemRandom)
            .map_err(|error| certificates(&error))?;
        let authorities = Arc::new(PublishedAuthorities::default());
        let tls = authorities.server_config(&pki.pair).map_err(|error| certificates(&error))?;
        let listening = |why| StartError::Listen { address: settings.bind, why };
        let port = TcpListener::bind(settings.bind).await.map_err(listening)?;
        let addr = port.local_addr().map_err(listening)?;

        let supervisor = Supervisor::default();
        let stopping = CancellationToken::new();
        let background = TaskGroup::new(&supervisor, &stopping);
        supervisor.watch_threads(&stopping);
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let data_dir = settings.data_dir.clone();
        let common = Common { addr, data_dir, clock, random, background: background.clone() };
        let merging = MergeContext::open(&common.data_dir, common.random.clone());
        let merging = merging.map_err(|why| StartError::Certificates(format!("the key of continue tokens: {why}")))?;
        let mut sites = Vec::with_capacity(settings.sources.len());
        for source in &settings.sources {
            // A connection has one verified certificate, so several sources can't each verify it.
            let own = if settings.sources.len() == 1 { authorities.clone() } else { Arc::default() };
            let site = Site::start(source, &common, own).await;
            let mut site = site.map_err(|why| StartError::Source { name: source.name.clone(), why })?;
            let permitted = PermittedLists::new(merging.clone(), &source.name, site.mirrors.clone());
            site.pipeline = site.pipeline.with_fan_out(Arc::new(permitted));
            sites.push((source, site));
        }
        let mirrors: Vec<_> = sites.iter().map(|(_, site)| site.mirrors.clone()).collect();
        let pipeline = match sites.len() {
            1 => sites.remove(0).1.pipeline.with_console(settings.console),
            _ => front(sites, &mirrors, &common, merging),
        };
        let limits = Limits { drain: SHUTDOWN_GRACE, ..Limits::default() };
        let listener = listener::serve(port, TlsSettings::new(tls), Arc::new(pipeline), limits);
        let serving = Serving::start(stopping, background, listener);
        let names: Vec<_> = settings.sources.iter().map(|source| source.name.as_str()).collect();
        tracing::info!(%addr, sources = names.join(","), "the gateway is ready");
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

    /// Returns true once each resource of each source was loaded, or could not be loaded.
    pub fn is_loaded(&self) -> bool {
        self.mirrors.iter().all(|mirrors| mirrors.is_loaded())
    }

    /// Waits until an essential task has died, and returns its failure. The gateway must be shut down then.
    pub async fn failed(&self) -> Failure {
        self.serving.supervisor().failed().await
    }

    /// Shuts down: no new requests, running lists end, watches are closed cleanly. Takes at most half a minute.
    pub async fn shutdown(mut self) {
        self.serving.answered().await;
        self.serving.ended().await;
        let copies = join_all(self.mirrors.iter().map(|mirrors| mirrors.complete_copies()));
        if tokio::time::timeout(COPY_TIME, copies).await.is_err() {
            tracing::warn!("the copies of the mirrors are not complete; the next start continues from earlier states");
        }
    }
}

impl std::fmt::Debug for RunningGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningGateway").field("addr", &self.addr).finish_non_exhaustive()
    }
}

fn check_names(settings: &GatewaySettings) -> Result<(), StartError> {
    let mut names: Vec<&str> = settings.sources.iter().map(|source| source.name.as_str()).collect();
    names.sort_unstable();
    if names.is_empty() {
        return Err(StartError::Sources("there is no source".to_owned()));
    }
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(StartError::Sources(format!("two sources have the name {}", pair[0]))),
        None => Ok(()),
    }
}

/// The pipeline in front of several sources. It answers only about the gateway itself.
fn front(
    sites: Vec<(&SourceSettings, Site)>,
    mirrors: &[Arc<Mirrors>],
    common: &Common,
    merging: Arc<MergeContext>,
) -> Pipeline {
    let Common { addr, clock, random, background, .. } = common;
    let metrics = Arc::new(Metrics::new());
    metrics.edge().watched_by(background.supervisor());
    let pages = Pages::new(health(mirrors.to_vec(), background), metrics.clone(), addr.to_string());
    let (documentation, nothing) = (no_documentation(), Arc::new(ServedApis::default()));
    let surface = nothing.clone();
    let documents = move |_| Box::pin(documentation.clone().documents(nothing.clone())) as _;
    let router = Router::new(move || surface.clone(), documents, pages, Arc::new(NoResources));
    let mut pipelines: HashMap<String, Arc<Pipeline>> = HashMap::new();
    let mut members = Vec::with_capacity(sites.len());
    for (source, site) in sites {
        let pipeline = Arc::new(site.pipeline);
        members.push(Member::new(&source.name, source.labels.clone(), site.mirrors, pipeline.clone()));
        pipelines.insert(source.name.clone(), pipeline);
    }
    let stopping = background.stopping().clone();
    let find = move |uri: &Uri| {
        let (name, rest) = site_of(uri)?;
        Some((pipelines.get(name)?.clone(), rest))
    };
    Pipeline::new(router, metrics, clock.clone(), random.clone(), stopping, FlowLimits::default())
        .with_authorizer(Arc::new(HealthForAll))
        .with_sites(Box::new(find))
        .with_fan_out(Arc::new(Fleet::new(merging, members)))
}

/// Health checks need no rights, and nothing else is allowed: no user is known outside of sources.
#[derive(Debug)]
struct HealthForAll;

impl Authorizer for HealthForAll {
    fn authorize<'a>(&'a self, _: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let is_health = matches!(attributes, Attributes::Path { verb: "get", path } if HEALTH_PATHS.contains(path));
        let decision = if is_health { Decision::Allow } else { Decision::NoOpinion };
        Either::Left(ready(Verdict::new(decision, "")))
    }
}

/// The name of the source in a path, and the path at that source.
fn site_of(uri: &Uri) -> Option<(&str, Uri)> {
    let below = uri.path().strip_prefix(CLUSTERS)?;
    let name = below.split('/').next()?;
    let rest = uri.path_and_query()?.as_str().strip_prefix(CLUSTERS)?.strip_prefix(name)?;
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    // An authority in the target of a request has no effect below.
    Some((name, rest.parse().ok()?))
}

/// No resource is served outside of sources.
struct NoResources;

impl ApiService for NoResources {
    fn call(&self, _: Box<ApiRequest>, _: Target) -> BoxFuture<'static, Response<ResponseBody>> {
        Box::pin(async { respond::no_such_page() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_source_begins_with_its_name() {
        let check = |uri: &str, expected: Option<(&str, &str)>| {
            let uri = uri.parse().unwrap();
            let found = site_of(&uri).map(|(name, rest)| (name, rest.to_string()));
            assert_eq!(found.as_ref().map(|(name, rest)| (*name, rest.as_str())), expected, "{uri}");
        };
        check("/clusters/a/api/v1/pods?limit=1", Some(("a", "/api/v1/pods?limit=1")));
        check("https://host/clusters/a/api", Some(("a", "/api")));
        check("/clusters/a", Some(("a", "/")));
        check("/clusters/a?x=/y", Some(("a", "/?x=/y")));
        check("/clusters/a//api", Some(("a", "//api")));
        check("/clusters/", Some(("", "/")));
        check("/api/v1/clusters/a", None);
        check("/clusters", None);
    }
}
