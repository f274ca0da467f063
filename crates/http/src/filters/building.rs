//! The parts of a pipeline: its defaults, and the methods that replace them.
//!
//! The order of the filters is in `filters.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::Version;
use http::header::HeaderValue;
use keelson_access::audit::Auditor;
use keelson_access::{Authorizer, ClientCertificates, PrivilegedGroup, PublishedAuthorities};
use keelson_meta::{Clock, Random};
use keelson_outbound::NODE_CONNECTIONS;
use keelson_supervision::{TaskGroup, TurnsByOwner};
use tokio_util::sync::CancellationToken;

use super::flow_control::{self, FlowControl, FlowLimits};
use super::impersonation::Impersonation;
use super::long_work::LongWork;
use super::{AllowedOrigins, OpenPages, Pipeline, Sites, TokenAuthenticator, response_memory, slow_bodies, time_limit};
use crate::metrics::Metrics;
use crate::proxy::{PassThrough, Proxy, RemoteServers};
use crate::router::Router;
use crate::shares::Shares;
use crate::shutdown::{Shutdown, ShutdownTimes};

/// The maximum number of concurrent watches and sessions of aggregated servers.
const WATCHES_ELSEWHERE: usize = 10_000;
/// One user's watches with queries may use at most one in this many processors.
const QUERY_WATCH_PART: usize = 2;

impl Pipeline {
    /// Creates the filters in front of `router`. Cancelling `stopping` begins the shutdown of the server.
    pub fn new(
        router: Router,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        stopping: CancellationToken,
        limits: FlowLimits,
    ) -> Self {
        let flow_control = FlowControl::new(limits);
        let measured = flow_control.clone();
        metrics.add_source(move || flow_control::samples(&measured));
        let measured = flow_control.clone();
        metrics.add_histograms(move || flow_control::histograms(&measured));
        let impersonation = Impersonation::default();
        let measured = impersonation.metrics().clone();
        metrics.add_source(move || measured.samples());
        let measured = impersonation.metrics().clone();
        metrics.add_histograms(move || measured.histograms());
        let long_work = LongWork::new();
        metrics.add_source(long_work.source());
        let watches = Shares::new("watches", limits.watches);
        let watches_elsewhere = Shares::new("aggregated watches", WATCHES_ELSEWHERE);
        let node_sessions = Shares::new("requests to nodes", NODE_CONNECTIONS);
        let slow_bodies = Shares::new("slow request bodies", slow_bodies::MOST);
        let kept = response_memory::shares();
        let shares = [&watches, &watches_elsewhere, &node_sessions, &slow_bodies, &kept].map(Arc::clone);
        metrics.add_source(move || shares.iter().flat_map(|shares| shares.samples()).collect());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            router,
            sites: None,
            fan_outs: Vec::new(),
            pass_through: None,
            proxy: None,
            certificates: Arc::new(PublishedAuthorities::default()),
            tokens: None,
            anonymous: Arc::new(|_| true),
            console: None,
            impersonation,
            authorizer: Arc::new(PrivilegedGroup),
            auditor: None,
            flow_control,
            long_work,
            watches,
            watches_elsewhere,
            node_sessions,
            slow_bodies,
            transport_security: None,
            origins: None,
            request_timeout: time_limit::REQUEST_TIMEOUT,
            goaway_chance: 0.0,
            query_watches: TurnsByOwner::new(processors / QUERY_WATCH_PART),
            metrics,
            clock,
            random,
            shutdown: Shutdown::new(stopping, ShutdownTimes::default()),
        }
    }

    /// Replaces the authorizer.
    #[must_use]
    pub fn with_authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = authorizer;
        self
    }

    /// Accepts the client certificates that `certificates` verifies.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Arc<dyn ClientCertificates>) -> Self {
        self.certificates = certificates;
        self
    }

    /// The verifier of client certificates.
    pub fn certificates(&self) -> &Arc<dyn ClientCertificates> {
        &self.certificates
    }

    /// Accepts the bearer tokens that `tokens` authenticates.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<dyn TokenAuthenticator>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Accepts requests without credentials for the paths for which `takes` returns true.
    #[must_use]
    pub fn with_anonymous(mut self, takes: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.anonymous = Arc::new(takes);
        self
    }

    /// Serves the console's files to every client, or none if absent.
    #[must_use]
    pub fn with_console(mut self, console: Option<OpenPages>) -> Self {
        self.console = console;
        self
    }

    /// Sends this header `Strict-Transport-Security` with each response.
    #[must_use]
    pub fn with_transport_security(mut self, directives: Option<HeaderValue>) -> Self {
        self.transport_security = directives;
        self
    }

    /// Follows the phases of this shutdown, whose end is the token that the pipeline was created with.
    #[must_use]
    pub fn with_shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Lets pages of these origins read responses.
    #[must_use]
    pub fn with_origins(mut self, origins: Option<AllowedOrigins>) -> Self {
        self.origins = origins;
        self
    }

    /// Limits the time until the headers of a response.
    #[must_use]
    pub fn with_request_timeout(mut self, longest: Duration) -> Self {
        self.request_timeout = longest;
        self
    }

    /// Closes the connections of this share of HTTP/2 requests with GOAWAY, so that clients spread over servers.
    #[must_use]
    pub fn with_goaway_chance(mut self, chance: f64) -> Self {
        self.goaway_chance = chance;
        self
    }

    /// Writes audit events by the auditor's policy.
    #[must_use]
    pub fn with_auditor(mut self, auditor: Option<Arc<Auditor>>) -> Self {
        self.auditor = auditor;
        self
    }

    /// Forwards requests to these aggregated servers and peers.
    #[must_use]
    pub fn with_remote_servers(mut self, servers: impl RemoteServers + 'static, tasks: TaskGroup) -> Self {
        self.proxy = Some(Proxy::new(Box::new(servers), tasks));
        self
    }

    /// Lets other pipelines answer for parts of the paths. They have their own authentication and limits. Clients are
    /// known there by tokens only, since this pipeline verifies the certificate of a connection.
    #[must_use]
    pub fn with_sites(mut self, sites: Sites) -> Self {
        self.sites = Some(sites);
        self
    }

    /// Lets another server answer the requests that this server does not answer itself.
    #[must_use]
    pub fn with_pass_through(mut self, pass_through: PassThrough) -> Self {
        self.pass_through = Some(pass_through);
        self
    }

    /// Cancelled when the server stops.
    pub fn stopping(&self) -> &CancellationToken {
        self.shutdown.stopping()
    }

    /// Cancelled when the server accepts no more connections.
    pub(crate) fn closing(&self) -> &CancellationToken {
        self.shutdown.closing()
    }

    /// Returns true if the connection of this request gets GOAWAY, by chance.
    pub(crate) fn sends_goaway(&self, version: Version) -> bool {
        // The upper 53 bits are an even number in 0..1.
        #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let drawn = || (self.random.u64() >> 11) as f64 / (1_u64 << 53) as f64;
        self.goaway_chance > 0.0 && version == Version::HTTP_2 && drawn() < self.goaway_chance
    }

    /// The flow control, which gets its flow schemas and priority levels from a controller.
    pub fn flow_control(&self) -> &FlowControl {
        &self.flow_control
    }

    /// The metrics of all requests.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}
