//! The registry of a server, and the calls that it makes.
//!
//! Webhooks are a part of what is asked of each write, so that whatever calls them is there before the registry is.

use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::Pki;
use keelson_admission::{Parts, PodSecurityStats, PolicyStats, WebhookStats};
use keelson_cache::Cache;
use keelson_outbound::{ClusterServices, Outbound};
use keelson_registry::{Registry, RegistryConfig};
use keelson_storage::Store;

use crate::config::Config;
use crate::node_access::NODE_PART;
use crate::remote;
use crate::rights::Rights;

/// Calls to others, and the services that they may go to, which the registry will know.
pub(crate) fn outbound_of(config: &Config, pki: &Pki) -> (Arc<Outbound>, Arc<ClusterServices>) {
    let services = Arc::new(ClusterServices::to_come(config.service_routes.clone(), config.random.clone()));
    let outbound = Outbound::with_certificate(
        services.clone(),
        config.random.clone(),
        config.proxy.clone(),
        Some(&remote::certificate(pki)),
        // A quarter is for nodes.
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
}

/// The registry of a server, with what is asked of each write, and the counts of what that calls.
pub(crate) fn registry_of(
    config: &Config,
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    rights: &Rights,
    outbound: &Arc<Outbound>,
) -> anyhow::Result<(Arc<Registry>, AdmissionCounts)> {
    let settings = RegistryConfig {
        publishes_encodings: config.registry.storage_version_api,
        quotas: config.admission.has_quotas(),
        left_out: config.admission.left_out(),
        limited_resources: config.admission_configuration.limited_resources.clone(),
        token_seal: rights.token_seal(),
        ..config.registry.clone()
    };
    let counts = AdmissionCounts::default();
    let parts = Parts {
        cache: cache.clone(),
        outbound: outbound.clone(),
        webhook_stats: counts.webhooks.clone(),
        policy_stats: counts.policies.clone(),
        pod_security_stats: counts.pod_security.clone(),
        has_node_rights: rights.has_node_rights(),
        random: config.random.clone(),
        configuration: config.admission_configuration.clone(),
    };
    let admission = keelson_admission::chain(&config.admission, &parts).context("preparing admission")?;
    let registry = keelson_builtin::registry(store, cache, config.clock.clone(), config.random.clone(), settings);
    let registry = registry.with_authorizer(rights.authorizer()).with_admission(admission);
    Ok((Arc::new(registry), counts))
}
