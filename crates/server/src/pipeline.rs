//! Builds the request pipeline from the components of the server: the metrics, the pages, the resource handlers, and
//! the router.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_access::FileReads;
use keelson_access::audit::Auditor;
use keelson_access_config::ConfiguredIssuers;
use keelson_extensions::Extensions;
use keelson_http::Pipeline;
use keelson_http::filters::OpenPages;
use keelson_http::handlers::ResourceHandlers;
use keelson_http::health::Health;
use keelson_http::metrics::Metrics;
use keelson_http::nodes::NodeAccess;
use keelson_http::pages::{Documentation, Pages};
use keelson_http::router::{Router, StoredDefinitions};
use keelson_http::shutdown::Shutdown;
use keelson_outbound::Outbound;
use keelson_registry::{Registry, Target};
use keelson_supervision::Supervisor;

use crate::config::Config;
use crate::documents::OtherServers;
use crate::encryption::Encryption;
use crate::metrics::{
    StoreRequests, access_samples, admission_times, aggregation_samples, allocation_samples, client_histograms,
    client_samples, collection_samples, collection_times, comparison_times, conversion_samples, conversion_times,
    egress_samples, egress_times, encryption_samples, encryption_times, feature_gates, graph_times,
    issued_certificate_samples, issuer_times, manifest_samples, peer_samples, pod_security_samples, policy_samples,
    policy_times, program_samples, queue_samples, queue_times, read_samples, regeneration_samples, registry_samples,
    review_times, server_info, token_cache_times, token_use_samples, watchdog_samples, webhook_samples, webhook_times,
};
use crate::registry::AdmissionCounts;
use crate::store::StoreMetrics;
use crate::tokens::{Tokens, issuer_documents};
use crate::{audit, console};

/// The components that answer requests.
pub(crate) struct PipelineParts {
    pub(crate) supervisor: Supervisor,
    pub(crate) registry: Arc<Registry>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) nodes: Arc<NodeAccess>,
    pub(crate) admission_counts: AdmissionCounts,
    pub(crate) others: OtherServers,
    pub(crate) documentation: Arc<Documentation>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) tokens: Tokens,
    pub(crate) health: Health,
    pub(crate) store_metrics: StoreMetrics,
    pub(crate) store_requests: Arc<StoreRequests>,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// The counts of file reads, by the file's content.
    pub(crate) reads: Vec<(&'static str, FileReads)>,
}

impl PipelineParts {
    /// The pipeline of a server with the address `addr`.
    pub(crate) fn into_pipeline(self, config: &Config, addr: SocketAddr, shutdown: Shutdown) -> Pipeline {
        // SIZE: one list of all components of the pipeline and their metrics.
        let Self {
            supervisor,
            registry,
            outbound,
            nodes,
            admission_counts,
            others,
            documentation,
            extensions,
            tokens,
            health,
            store_metrics,
            store_requests,
            encryption,
            auditor,
            reads,
        } = self;
        let metrics = watched_metrics(supervisor);
        let measured = registry.clone();
        metrics.add_source(move || registry_samples(&measured));
        measure_store(&metrics, &registry, store_requests, store_metrics);
        measure_settings(&metrics, config, encryption);
        measure_calls(&metrics, &outbound);
        measure_process(&metrics);
        measure_admission(&metrics, &registry, admission_counts, &config.server_id);
        let defined = extensions.clone();
        metrics.add_source(move || program_samples(defined.program_stats()));
        let defined = extensions.clone();
        metrics.add_source(move || regeneration_samples(defined.regenerations()));
        let Tokens { all: tokens, foreign, authorizers } = tokens;
        let issuers = foreign.issuers.clone();
        let asking = authorizers.clone();
        metrics.add_histograms(move || review_times(&asking));
        measure_issuers(&metrics, issuers.clone());
        let id = config.server_id.clone();
        metrics.add_source(move || access_samples(issuers.as_deref(), &authorizers, &id));
        metrics.add_source(move || read_samples(&reads));
        let info = server_info(&config.server_id);
        metrics.add_source(move || vec![info.clone()]);
        let OtherServers { aggregator, peers } = others;
        metrics.add_source(move || aggregation_samples(&aggregator));
        if let Some(auditor) = &auditor {
            let told = auditor.clone();
            metrics.add_source(move || audit::samples(&told));
        }
        if let Some(peers) = peers {
            metrics.add_source(move || peer_samples(&peers));
        }
        name_resources(&metrics, &registry);

        let release = config.registry.release();
        let issuer = tokens.issuer().clone();
        let pages = Pages::new(health, metrics.clone(), config.shown_host(addr)).emulating(release);
        let shown = config.shown_host(addr);
        let pages = pages.with_issuer(move || issuer_documents(&issuer, &shown));
        let pages = pages.with_diagnostics(config.diagnostics.clone());
        let surfaces = registry.clone();
        let authorizer = registry.authorizer().clone();
        let measured = nodes.clone();
        metrics.add_source(move || measured.samples());
        let handlers = Arc::new(ResourceHandlers::new(registry).with_tokens(tokens.clone()).with_nodes(nodes));
        let router = Router::new(
            move || surfaces.surface(),
            move |surface| Box::pin(documentation.clone().documents(surface)),
            pages,
            handlers,
        )
        .with_definitions(FollowedDefinitions(extensions));
        let (clock, random) = (config.clock.clone(), config.random.clone());
        Pipeline::new(router, metrics, clock, random, shutdown.stopping().clone(), config.flow)
            .with_shutdown(shutdown)
            .with_request_timeout(config.request_timeout)
            .with_goaway_chance(config.goaway_chance)
            .with_origins(config.origins.clone())
            .with_authorizer(authorizer)
            .with_tokens(tokens)
            .with_anonymous(foreign.takes_anonymous(config))
            .with_console(config.console.then_some(console::answer as OpenPages))
            .with_auditor(auditor)
            .with_transport_security(config.transport_security.clone())
    }
}

/// Adds the metrics of feature gates, and those of traces and encryption if they are configured.
fn measure_settings(metrics: &Metrics, config: &Config, encryption: Option<Encryption>) {
    if let Some(traces) = config.traces.clone() {
        metrics.add_source(move || traces.samples());
    }
    let gates = feature_gates(&config.registry);
    metrics.add_source(move || gates.clone());
    let Some(Encryption { metrics: numbers, .. }) = encryption else { return };
    let (told, id) = (numbers.clone(), config.server_id.clone());
    metrics.add_source(move || encryption_samples(&told, &id));
    metrics.add_histograms(move || encryption_times(&numbers));
}

/// The custom resource definitions that requests wait for.
struct FollowedDefinitions(Arc<Extensions>);

impl StoredDefinitions for FollowedDefinitions {
    fn is_current(&self, target: &Target) -> bool {
        self.0.is_current(target)
    }

    fn catch_up(&self, group: &str, plural: &str) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().catch_up(group.to_owned(), plural.to_owned()))
    }

    fn catch_up_group(&self, group: &str) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().catch_up_group(group.to_owned()))
    }

    fn catch_up_with_cache(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().catch_up_with_cache())
    }
}

/// Adds the metrics of the store, of requests to it, and of allocated addresses and ports.
fn measure_store(metrics: &Metrics, registry: &Arc<Registry>, requests: Arc<StoreRequests>, own: StoreMetrics) {
    metrics.add_source(own);
    let measured = registry.clone();
    metrics.add_source(move || allocation_samples(&measured));
    let (counted, measured) = (requests.clone(), registry.clone());
    metrics.add_source(move || counted.samples(&measured));
    let measured = registry.clone();
    metrics.add_histograms(move || requests.times(&measured));
    let measured = registry.clone();
    metrics.add_source(move || collection_samples(&measured));
    let measured = registry.clone();
    metrics.add_histograms(move || collection_times(&measured));
}

/// Adds the metrics that all servers of a process share.
fn measure_process(metrics: &Metrics) {
    metrics.add_source(queue_samples);
    metrics.add_histograms(queue_times);
    metrics.add_histograms(token_cache_times);
    metrics.add_source(token_use_samples);
    metrics.add_source(issued_certificate_samples);
    metrics.add_histograms(comparison_times);
    metrics.add_histograms(graph_times);
}

/// Adds the durations of issuers' token verifications.
fn measure_issuers(metrics: &Metrics, issuers: Option<Arc<ConfiguredIssuers>>) {
    if let Some(issuers) = issuers {
        metrics.add_histograms(move || issuer_times(&issuers));
    }
}

/// Adds the metrics of outgoing calls.
fn measure_calls(metrics: &Metrics, outbound: &Arc<Outbound>) {
    let calls = outbound.clone();
    metrics.add_source(move || conversion_samples(calls.stats()));
    let calls = outbound.clone();
    metrics.add_histograms(move || conversion_times(calls.stats()));
    let calls = outbound.clone();
    metrics.add_source(move || client_samples(calls.stats()));
    let calls = outbound.clone();
    metrics.add_histograms(move || client_histograms(calls.stats()));
    let calls = outbound.clone();
    metrics.add_source(move || egress_samples(calls.egress()));
    let calls = outbound.clone();
    metrics.add_histograms(move || egress_times(calls.egress()));
}

/// Adds the metrics of admission.
fn measure_admission(metrics: &Metrics, registry: &Arc<Registry>, counts: AdmissionCounts, server_id: &str) {
    let admitting = registry.clone();
    metrics.add_histograms(move || admission_times(admitting.admission()));
    let AdmissionCounts { webhooks, policies, pod_security, manifests } = counts;
    let id = server_id.to_owned();
    metrics.add_source(move || manifest_samples(&manifests, &id));
    let checked = policies.clone();
    metrics.add_source(move || policy_samples(&checked));
    metrics.add_histograms(move || policy_times(&policies));
    metrics.add_source(move || pod_security_samples(&pod_security));
    let called = webhooks.clone();
    metrics.add_source(move || webhook_samples(&called));
    metrics.add_histograms(move || webhook_times(&webhooks));
}

/// Lets the request metrics find served resources and deprecated versions.
fn name_resources(metrics: &Metrics, registry: &Arc<Registry>) {
    let surfaces = registry.clone();
    metrics.serve(move |group, version, plural| surfaces.surface().lookup(group, version, plural).is_some());
    let surfaces = registry.clone();
    metrics.deprecate(move |group, version, plural| {
        surfaces.surface().lookup(group, version, plural)?.version.deprecation().map(ToOwned::to_owned)
    });
}

/// The metrics, with a watchdog that names requests which block a thread.
fn watched_metrics(supervisor: Supervisor) -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::new());
    metrics.edge().watched_by(&supervisor);
    metrics.add_source(move || watchdog_samples(&supervisor));
    metrics
}
