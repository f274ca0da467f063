//! Creates the registry of a server, and the outgoing calls that it needs.
//!
//! Admission calls webhooks for writes, so the outgoing connections are created before the registry.

use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::Pki;
use keelson_access_config::ReviewClient;
use keelson_admission::{AdmissionConfiguration, ManifestSet, Parts, PodSecurityStats, PolicyStats, WebhookStats};
use keelson_builtin::Builtin;
use keelson_cache::Cache;
use keelson_outbound::{ClusterServices, Outbound, Proxies};
use keelson_registry::{Registry, RegistryConfig, ServedApis};
use keelson_storage::Store;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::builtin;
use crate::config::Config;
use crate::node_access::NODE_PART;
use crate::remote;
use crate::rights::Rights;

/// The outgoing connections, and the cluster's services that they may reach, which are filled from the registry later.
pub(crate) fn outbound_of(config: &Config, pki: &Pki) -> (Arc<Outbound>, Arc<ClusterServices>) {
    let services = Arc::new(ClusterServices::to_come(config.service_routes.clone(), config.random.clone()));
    let outbound = Outbound::with_certificate(
        services.clone(),
        config.random.clone(),
        Proxies { egress: config.egress.clone(), environment: config.proxy.clone() },
        Some(&remote::certificate(pki)),
        // A quarter of the connections is reserved for nodes.
        config.outbound_connections - config.outbound_connections / NODE_PART,
    );
    (outbound, services)
}

/// The counts of admission plugins.
#[derive(Clone, Default)]
pub(crate) struct AdmissionCounts {
    pub(crate) webhooks: Arc<WebhookStats>,
    pub(crate) policies: Arc<PolicyStats>,
    pub(crate) pod_security: Arc<PodSecurityStats>,
    /// The manifests of webhooks and policies, with the counts of their reloads.
    pub(crate) manifests: ManifestSet,
}

/// The parts of admission that a running server follows.
pub(crate) struct AdmissionParts {
    pub(crate) counts: AdmissionCounts,
    /// The client of the image review webhook, whose files are followed.
    pub(crate) image_reviews: Option<Arc<ReviewClient>>,
}

impl AdmissionParts {
    /// Follows the files that admission plugins use, until the server stops.
    pub(crate) fn follow(
        &self,
        configuration: &AdmissionConfiguration,
        background: &TaskGroup,
        stopping: &CancellationToken,
    ) {
        for credentials in configuration.credentials() {
            let (credentials, stopping) = (credentials.clone(), stopping.clone());
            background.spawn("webhook-credentials", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(async move { credentials.follow().await }).await;
            });
        }
        for manifests in self.counts.manifests.values() {
            let (manifests, stopping) = (manifests.clone(), stopping.clone());
            background.spawn("admission-manifests", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(manifests.follow()).await;
            });
        }
        if let Some(client) = self.image_reviews.clone() {
            let stopping = stopping.clone();
            background.spawn("image-policy-webhook", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(async move { client.follow().await }).await;
            });
        }
    }
}

/// Creates the registry of a server with its admission chain, and the metrics of that. A fork begins with the resources
/// of its origin.
pub(crate) fn registry_of(
    config: &Config,
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    rights: &Rights,
    outbound: &Arc<Outbound>,
    origin: Option<&ServedApis>,
) -> anyhow::Result<(Arc<Registry>, AdmissionParts)> {
    let image_reviews = config.admission.image_reviews(&config.admission_configuration, outbound, &config.random);
    let image_reviews = image_reviews.map_err(anyhow::Error::msg).context("preparing admission")?;
    let settings = RegistryConfig {
        publishes_encodings: config.registry.storage_version_api,
        quotas: config.admission.has_quotas(),
        provides_namespaces: config.admission.provides_namespaces(),
        left_out: config.admission.left_out(),
        limited_resources: config.admission_configuration.limited_resources.clone(),
        token_seal: rights.token_seal(),
        ..config.registry.clone()
    };
    let schemas = builtin::schemas(config.registry.release());
    let manifests = config.admission_configuration.manifests(&config.registry.gates, schemas, &config.clock);
    let manifests = manifests.map_err(anyhow::Error::msg).context("preparing admission")?;
    let counts = AdmissionCounts { manifests, ..AdmissionCounts::default() };
    let parts = Parts {
        cache: cache.clone(),
        outbound: outbound.clone(),
        webhook_stats: counts.webhooks.clone(),
        policy_stats: counts.policies.clone(),
        pod_security_stats: counts.pod_security.clone(),
        has_node_rights: rights.has_node_rights(),
        image_reviews: image_reviews.clone(),
        random: config.random.clone(),
        configuration: config.admission_configuration.clone(),
        manifests: counts.manifests.clone(),
    };
    let admission = keelson_admission::chain(&config.admission, &parts).context("preparing admission")?;
    let (clock, random) = (config.clock.clone(), config.random.clone());
    let registry = match origin {
        Some(origin) => Registry::forked(Arc::new(Builtin), origin, store, cache, clock, random, settings),
        None => keelson_builtin::registry(store, cache, clock, random, settings),
    };
    let registry = registry.with_authorizer(rights.authorizer()).with_admission(admission);
    Ok((Arc::new(registry), AdmissionParts { counts, image_reviews }))
}
